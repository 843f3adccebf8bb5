"""Whether held sentences are better: answers to questions about a passage, under several choices.

    python -m benchmarks.grounding FILE [--questions 100] [--tokens 48] [--judge NAME]

FILE is in SQuAD's JSON format. The passage of a question stands in the prompt; the evidence is its
chunks and six paragraphs of other documents. Nearness in the loop is that of the default embedder,
and grounding is judged by another: a sentence-transformers model, or words weighed by how rare they
are. Differences are paired, question by question, with 95 % intervals from 10,000 resamples.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msi_scorers.chunking import chunked
from msi_scorers.embedders import find_embedder
from msi_scorers.vectors import unit_vectors

from msi_engine import Embedder, Engine, Evidence

CHUNK = 400  # characters: two chunks for most paragraphs
DISTRACTORS = 6
RAG = {"scorers": {"rag": 10.0}}
ARMS: Mapping[str, dict] = {
    "greedy": {"k": 1},
    "default, no scorer": {},
    "rag": RAG,
    "rag, control": RAG,
    "best of 4 by rag": {"scorers": {"rag": 1000.0}, "majority": 1.0},
}
METRICS = ("grounded", "contained", "f1", "forward tokens")


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

    name = "rare words"

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.grounding")
    parser.add_argument("file", type=Path)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--judge")
    options = parser.parse_args()
    questions, paragraphs = read(options.file, options.questions)
    judge = find_embedder(options.judge) if options.judge else RareWords(paragraphs)
    engine, embedder = Engine.load("embedded"), find_embedder()
    table = {arm: np.zeros((len(questions), len(METRICS))) for arm in ARMS}
    for number, question in enumerate(questions):
        other = questions[(number + 1) % len(questions)]
        for arm, values in table.items():
            values[number] = measure(engine, question, other, arm, embedder, judge, options.tokens)
    print(f"{len(questions)} questions; {embedder.name} in the loop, judged by {judge.name}")
    show(table)


def read(path: Path, number: int) -> tuple[list[Question], list[str]]:
    """The first question of ``number`` paragraphs, spread over all documents; all paragraphs."""
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
    return questions, paragraphs


def measure(
    engine: Engine,
    question: Question,
    other: Question,
    arm: str,
    embedder: Embedder,
    judge: Embedder,
    tokens: int,
) -> list[float]:
    """The metrics of one answer."""
    options = dict(ARMS[arm])
    if "control" in arm:
        control = {"control": "shuffle", "control_evidence": [*other.gold, *other.others]}
        options["scorer_options"] = {"rag": control}
    content = f"{question.passage}\n\n{question.text}"
    answer = engine.generate(
        [{"role": "user", "content": content}],
        max_tokens=tokens,
        evidence=[*question.gold, *question.others],
        embedder=embedder,
        **options,
    )
    return [
        grounded(answer.text, question, judge),
        float(any(holds(answer.text, gold) for gold in question.answers)),
        max(f1(answer.text, gold) for gold in question.answers),
        float(answer.stats.forward_tokens),
    ]


def grounded(text: str, question: Question, judge: Embedder) -> float:
    """Share of the sentences whose nearest chunk is of the passage."""
    sentences = [s for s in re.split(r"(?<=[.!?])\s+|\n+", text) if normal(s)]
    if not sentences:
        return 0.0
    chunks = unit_vectors(judge, [*question.gold, *question.others])
    nearest = (unit_vectors(judge, sentences) @ chunks.T).argmax(axis=1)
    return float((nearest < len(question.gold)).mean())


def normal(text: str) -> list[str]:
    """Words as SQuAD compares them: no case, punctuation or articles."""
    plain = text.casefold().translate(str.maketrans("", "", string.punctuation))
    return [word for word in plain.split() if word not in ("a", "an", "the")]


def holds(text: str, gold: str) -> bool:
    return f" {' '.join(normal(gold))} " in f" {' '.join(normal(text))} "


def f1(text: str, gold: str) -> float:
    given, wanted = Counter(normal(text)), Counter(normal(gold))
    common = (given & wanted).total()
    return 2 * common / (given.total() + wanted.total()) if common else 0.0


def show(table: Mapping[str, np.ndarray]) -> None:
    print(f"{'':20}" + "".join(f"{name:>16}" for name in METRICS))
    for arm, values in table.items():
        print(f"{arm:20}" + "".join(f"{mean:16.3f}" for mean in values.mean(axis=0)))
    print("\nrag minus")
    for arm in ARMS:
        if arm != "rag":
            cells = [interval(d) for d in (table["rag"] - table[arm]).T[:-1]]
            print(f"{arm:20}" + "".join(f"{cell:>26}" for cell in cells))


def interval(differences: Iterable[float]) -> str:
    values = np.array(list(differences))
    random = np.random.default_rng(0)
    means = values[random.integers(0, len(values), (10_000, len(values)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{values.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


if __name__ == "__main__":
    main()
