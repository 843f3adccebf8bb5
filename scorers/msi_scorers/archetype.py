"""Scorer `archetype`: how far a path agrees with a target archetype."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msi_engine import PathView, ScoreContext
from msi_engine.errors import ConfigError
from msi_scorers.gallery import Gallery, cosines, open_gallery
from msi_scorers.register import judged_texts, other_target
from msi_scorers.targets import ArchetypeOptions

DEFAULT_FILE = "archetypes.toml"


class ArchetypeScorer:
    """Judges a text by its distribution over archetypes.

    p_k = softmax over k of cos(z(text), t_k) / temperature
    phi = sum over k of p_k * cos(axes_k, axes_target)

    in [-1, 1], and in [0, 1] if no axis is negative: t_k is the mean z of archetype k's
    exemplars as in scorer `register`, ``temperature`` stands in the file, and an axis that an
    archetype does not name is 0 for it. A text that is like another archetype still agrees as far
    as their axes do. For a text without words p is uniform.

    Example:
        With the shipped archetypes Tide (E=1), Compass (T=1, R=1) and Bloom (T=1, E=1), the axes
        of Bloom agree with Tide's and Compass's by 0.707 and 0.5. A text with
        p = (0.6, 0.1, 0.3) scores 0.6 * 1 + 0.1 * 0 + 0.3 * 0.707 = 0.812 for the target Tide.

    Args:
        options: Target, text judged, file, control.

    Raises:
        ConfigError: If the file cannot be used, has no such target, or the target no axes.
    """

    def __init__(self, options: ArchetypeOptions) -> None:
        self.options = options
        self._gallery = open_gallery(options.file, DEFAULT_FILE)
        target = self._gallery.index(options.target)
        if options.control == "shuffle":
            target = other_target(self._gallery, target, options.control_seed)
        self._agreement = axes_agreement(self._gallery)[:, target]

    @classmethod
    def of(cls, context: ScoreContext) -> ArchetypeScorer:
        """The scorer of one generation; the prompt does not matter."""
        return cls(ArchetypeOptions(**context.options))

    def score(self, paths: Sequence[PathView]) -> list[float]:
        """See `msi_engine.Scorer`."""
        shares = distribution(self._gallery, judged_texts(paths, self.options))
        scores: list[float] = (shares @ self._agreement).tolist()
        return scores


def distribution(gallery: Gallery, texts: Sequence[str]) -> np.ndarray:
    """Share of each archetype in each text, shape ``(texts, archetypes)``; rows sum to 1."""
    likeness = cosines(gallery.vectors(texts), gallery.targets) / gallery.file.temperature
    shares = np.exp(likeness - likeness.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def axes_agreement(gallery: Gallery) -> np.ndarray:
    """Cosine of the axes of each two archetypes, shape ``(archetypes, archetypes)``.

    Raises:
        ConfigError: If an archetype has no axis that is not 0.
    """
    entries = gallery.file.entries
    axes = sorted({axis for entry in entries for axis in entry.axes})
    for entry in entries:
        if not any(entry.axes.values()):
            raise ConfigError(f"archetype {entry.name!r} has no axes; give it one that is not 0")
    rows = np.array([[entry.axes.get(axis, 0.0) for axis in axes] for entry in entries])
    return cosines(rows, rows)
