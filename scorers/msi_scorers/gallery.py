"""Galleries: where the entries of an exemplar file lie in its feature space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from msi_engine.errors import ConfigError
from msi_engine.model.home import home
from msi_scorers.exemplars import ExemplarFile, read_exemplars
from msi_scorers.features import FeatureSpace, feature_space

CLIP = 3.0  # in deviations: one rare feature shall not outweigh all others
_SMALLEST_DEVIATION = 1e-6


@dataclass(frozen=True)
class Gallery:
    """The entries of a file in its feature space.

    Attributes:
        file: What was read.
        names: The entries' names, in the order of the file.
        targets: Mean standardised vector of each entry's exemplars, shape ``(entries, features)``.
    """

    file: ExemplarFile
    names: tuple[str, ...]
    targets: np.ndarray
    _space: FeatureSpace
    _means: np.ndarray
    _deviations: np.ndarray

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Standardised features, in deviations within +-`CLIP`. Shape ``(texts, features)``.

        A feature that a text does not have is at its mean, 0.
        """
        raw = self._space.measure(texts)
        scaled = (raw - self._means) / self._deviations
        return np.asarray(np.clip(np.nan_to_num(scaled, nan=0.0), -CLIP, CLIP))

    def index(self, name: str) -> int:
        """Position of an entry.

        Raises:
            ConfigError: If there is none of this name.
        """
        if name not in self.names:
            raise ConfigError(f"no target {name!r}; there are {', '.join(self.names)}")
        return self.names.index(name)


def cosines(vectors: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Cosine of each vector with each target, shape ``(vectors, targets)``; 0 where one is zero."""
    return np.asarray(_unit(vectors) @ _unit(targets).T)


def _unit(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths == 0.0, 1.0, lengths))


def open_gallery(file: str | None, default: str) -> Gallery:
    """Read a file of exemplars, once for as long as it does not change.

    Args:
        file: Path of the file; if None, ``default`` in MSI's folder, or as it is shipped.
        default: Name of the shipped file.

    Raises:
        ConfigError: If the file cannot be read, is not as described, or names a feature space
            that does not exist.
    """
    if file is not None:
        path = Path(file).expanduser()
    else:
        own = home() / default
        path = own if own.is_file() else Path(__file__).with_name(default)
    try:
        return _opened(str(path.absolute()), path.stat().st_mtime_ns)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror or error}") from None


@lru_cache(maxsize=16)
def _opened(path: str, _changed: int) -> Gallery:
    return make_gallery(read_exemplars(path))


def make_gallery(file: ExemplarFile) -> Gallery:
    """The gallery of a file's content.

    Raises:
        ConfigError: If the feature space does not exist, or ``[norms]`` lacks a feature.
    """
    space = feature_space(file.space)
    norms = file.norms if file.norms is not None else measured_norms(file)
    if missing := [name for name in space.names if name not in norms]:
        raise ConfigError(
            f"[norms] has no {missing[0]!r}, a feature of space {file.space!r}; "
            "leave [norms] out to have it computed"
        )
    means, deviations = np.array([norms[name] for name in space.names], np.float64).T
    deviations = np.maximum(deviations, _SMALLEST_DEVIATION)
    names = tuple(entry.name for entry in file.entries)
    empty = Gallery(file, names, np.zeros((0, len(means))), space, means, deviations)
    targets = np.stack([empty.vectors(entry.exemplars).mean(axis=0) for entry in file.entries])
    return Gallery(file, names, targets, space, means, deviations)


def measured_norms(file: ExemplarFile) -> dict[str, tuple[float, float]]:
    """Mean and deviation of each feature over a file's exemplars, each entry counted alike.

    A feature that never varies gets the deviation 1.

    Raises:
        ConfigError: If no exemplar of an entry has some feature, or the space does not exist.
    """
    space = feature_space(file.space)
    parts = [np.asarray(space.measure(entry.exemplars), np.float64) for entry in file.entries]
    for entry, part in zip(file.entries, parts, strict=True):
        if np.isnan(part).all(axis=0).any():
            raise ConfigError(f"the exemplars of {entry.name!r} have no words to measure")
    means = np.mean([np.nanmean(part, axis=0) for part in parts], axis=0)
    variances = np.mean([np.nanmean((part - means) ** 2, axis=0) for part in parts], axis=0)
    deviations = np.where(variances > 0, np.sqrt(variances), 1.0)
    values = zip(space.names, means.tolist(), deviations.tolist(), strict=True)
    return {name: (mean, deviation) for name, mean, deviation in values}
