"""Cross-encoders of sentence-transformers: models that read two texts together.

Nothing of theirs is imported before one is asked for. See `find_cross_encoder`.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from msi_engine.errors import ConfigError
from msi_scorers.embedders import INSTALL, one_thread, quiet, short

_BATCH = 32
_FEW = 8  # pairs
_LOCK = threading.Lock()
_LOADED: dict[str, Any] = {}


def find_cross_encoder(name: str, label: int | None = None) -> CrossEncoderJudge:
    """A cross-encoder by name, loaded once for the whole process.

    Args:
        name: Name or folder of a model that sentence-transformers can load: one of natural
            language inference, or a reranker with a single score.
        label: Which of several labels means entailment; None reads it from the model.

    Raises:
        ConfigError: If there is no such model or label, or sentence-transformers is missing.
    """
    with _LOCK:
        if name not in _LOADED:
            _LOADED[name] = _load(name)
        model = _LOADED[name]
    return CrossEncoderJudge(model, _place(name, model.config, label))


class CrossEncoderJudge:
    """Probabilities that a text follows from another.

    A model of several labels gives the softmax of the one that means entailment; a model of one
    score gives the sigmoid of it. A pair that is longer than the model's window is cut.

    Args:
        model: A sentence-transformers ``CrossEncoder``.
        label: Place of the label, None for a model of one score.

    Attributes:
        works_apart: It may be called on another thread while a model decodes.
    """

    works_apart = True

    def __init__(self, model: Any, label: int | None) -> None:
        self._model = model
        self._label = label

    def judge(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """See `msi_scorers.entailment.Judge`. Shape ``(pairs,)``, float64."""
        import torch

        with one_thread() if len(pairs) <= _FEW else nullcontext():
            logits = self._model.predict(
                list(pairs),
                batch_size=_BATCH,
                show_progress_bar=False,
                activation_fn=torch.nn.Identity(),
            )
        logits = np.asarray(logits, dtype=np.float64).reshape(len(pairs), -1)
        if self._label is None:
            return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logits[:, 0], -500, 500))))
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(shares[:, self._label] / shares.sum(axis=1))


def _load(name: str) -> Any:
    if importlib.util.find_spec("sentence_transformers") is None:
        raise ConfigError(f"cross-encoder {name!r} needs sentence-transformers: {INSTALL}")
    from sentence_transformers import CrossEncoder

    path = Path(name).expanduser()
    try:
        with quiet():
            return CrossEncoder(str(path) if path.is_dir() else name)
    except Exception as error:  # of the hub, of files, of torch: anything
        raise ConfigError(
            f"cross-encoder {name!r} cannot be loaded ({short(error)}); give the name of a "
            "model that sentence-transformers can load, or its folder"
        ) from error


def _place(name: str, config: Any, label: int | None) -> int | None:
    """Where entailment stands among the labels; None where there is one score."""
    labels: Mapping[int, str] = config.id2label
    if len(labels) == 1:
        if label:
            raise ConfigError(f"cross-encoder {name!r} has one score, and no label {label}")
        return None
    if label is not None:
        if label not in labels:
            raise ConfigError(
                f"cross-encoder {name!r} has no label {label}; it has 0 to {len(labels) - 1}"
            )
        return label
    found = [place for place, word in labels.items() if word.strip().casefold() == "entailment"]
    if len(found) != 1:
        raise ConfigError(
            f"cross-encoder {name!r} does not say which of its labels means entailment "
            f"({', '.join(map(str, labels.values()))}); give option `label`, its number from 0"
        )
    return int(found[0])
