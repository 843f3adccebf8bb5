"""Scorer `register`: how near a path sounds to a target register."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msi_engine import PathView, ScoreContext
from msi_engine.errors import ConfigError
from msi_scorers.gallery import Gallery, cosines, open_gallery
from msi_scorers.targets import RegisterOptions, TargetOptions
from msi_scorers.words import last_words

DEFAULT_FILE = "registers.toml"


class RegisterScorer:
    """Judges a text by its direction in a register feature space.

    phi = cos(z(text), t)

    in [-1, 1]: z holds each feature as its distance from the mean in deviations, at most
    +-`CLIP`; t is the mean z of the target's exemplars, or z of the example. 0 for a text without
    words. What is judged are the last ``window`` words of the answer or, with
    ``scope=segment``, of the segment.

    Example:
        With the target ``casual``, "yeah I dunno, let's just get pizza lol" scores 0.73, and
        "The parties hereto shall comply with this clause." -0.08.

    Args:
        options: Target, text judged, file, control.

    Raises:
        ConfigError: If the file cannot be used, has no such target, or the example no words.
    """

    def __init__(self, options: RegisterOptions) -> None:
        self.options = options
        self._gallery = open_gallery(options.file, DEFAULT_FILE)
        self._target = _target(self._gallery, options)

    @classmethod
    def of(cls, context: ScoreContext) -> RegisterScorer:
        """The scorer of one generation; the prompt does not matter."""
        return cls(RegisterOptions(**context.options))

    def score(self, paths: Sequence[PathView]) -> list[float]:
        """See `msi_engine.Scorer`."""
        vectors = self._gallery.vectors(judged_texts(paths, self.options))
        scores: list[float] = cosines(vectors, self._target)[:, 0].tolist()
        return scores


def judged_texts(paths: Sequence[PathView], options: TargetOptions) -> list[str]:
    """The text of each path that is judged under ``scope`` and ``window``."""
    whole = options.scope == "text"
    return [last_words(p.text if whole else p.segment, options.window) for p in paths]


def other_target(gallery: Gallery, target: int, seed: int) -> int:
    """The position that takes the place of ``target`` as a negative control.

    All others in turn, by seed.

    Raises:
        ConfigError: If there is no other.
    """
    others = [index for index in range(len(gallery.names)) if index != target]
    if not others:
        raise ConfigError("control=shuffle needs a second target in the file; there is one")
    return others[seed % len(others)]


def _target(gallery: Gallery, options: RegisterOptions) -> np.ndarray:
    """The target's vector, shape ``(1, features)``."""
    if options.example is not None:
        vector = gallery.vectors([options.example])
        if not vector.any():
            raise ConfigError(f"example {options.example[:60]!r} has no words to judge by")
        index = int(cosines(vector, gallery.targets).argmax())
    else:
        index = gallery.index(options.target or "")
        vector = gallery.targets[[index]]
    if options.control == "shuffle":
        vector = gallery.targets[[other_target(gallery, index, options.control_seed)]]
    return vector
