"""Drives the decoder on a toy model: no cache, no MLX, logits recomputed from whole histories.

The token lists kept here follow the decoder's cache operations to the letter, so that an operation
that would spoil a real cache is an error or gives other logits here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from msi_engine.boundary import BoundaryPredicate, make_boundaries
from msi_engine.collapse import Similarity, chrf_similarity
from msi_engine.config import DecodeConfig
from msi_engine.decoder import Decoder
from msi_engine.errors import CacheError
from msi_engine.events import Event
from msi_engine.feed import (
    BRANCH,
    Accept,
    Branch,
    CacheOp,
    Drop,
    Feed,
    Fork,
    Merge,
    Park,
    Reject,
    Sweep,
    Turn,
)
from msi_engine.panel import ScorerPanel
from msi_engine.plugins import find_scorers, load_boundaries
from msi_engine.sampling import NextToken, Proposal
from msi_engine.scorer import ScoreContext, ScorerFactory
from msi_engine.testing.toy import ToyModel, ToyTokenizer

ToyProcessor = Callable[[list[int], np.ndarray], np.ndarray]
"""Token history and raw logits ``(V,)`` to processed logits ``(V,)``."""

Sample = Callable[[NextToken], int]


def run_toy(
    config: DecodeConfig,
    model: ToyModel,
    tokenizer: ToyTokenizer | None = None,
    *,
    prompt: Sequence[int] = (0,),
    seed: int = 0,
    scorers: Mapping[str, ScorerFactory] | None = None,
    boundaries: Sequence[BoundaryPredicate] | None = None,
    processors: Sequence[ToyProcessor] = (),
    similarity: Similarity = chrf_similarity,
    target: ToyModel | None = None,
) -> Iterator[Event]:
    """Run one generation on a toy model, event by event.

    Args:
        config: The options. ``config.seed`` is used if set, else ``seed``.
        model: Gives the logits.
        tokenizer: Texts of the tokens; a `ToyTokenizer` of six pieces if None.
        prompt: Token ids of the prompt; at least one.
        seed: Root of all randomness.
        scorers: Factories of scorers that no plugin has registered. Weights and options come from
            ``config.scorers`` and ``config.scorer_options``.
        boundaries: In place of those that ``config.boundary`` names.
        processors: Logits processors, run in order on every path.
        similarity: Text similarity for collapse mode `mbr`.
        target: The model that checks, where ``config.refine`` asks for one.
    """
    decoder = make_toy_decoder(
        config,
        tokenizer or ToyTokenizer(),
        prompt=prompt,
        seed=seed,
        scorers=scorers,
        boundaries=boundaries,
        similarity=similarity,
    )
    sample = _sampler(config, decoder.seed) if config.k == 1 and not config.verifies else None
    yield from drive(decoder, ToyRunner(model, prompt, processors, sample, target))


def make_toy_decoder(
    config: DecodeConfig,
    tokenizer: ToyTokenizer,
    *,
    prompt: Sequence[int] = (0,),
    seed: int = 0,
    scorers: Mapping[str, ScorerFactory] | None = None,
    boundaries: Sequence[BoundaryPredicate] | None = None,
    similarity: Similarity = chrf_similarity,
) -> Decoder:
    """The decoder that `run_toy` drives, for a test that wants to hold it. Same arguments."""
    text = tokenizer.decode(prompt)
    panel = ScorerPanel(
        {
            name: (
                factory(ScoreContext(prompt=text, options=config.scorer_options.get(name, {}))),
                config.scorers[name],
            )
            for name, factory in find_scorers(config.scorers, scorers or {}).items()
        }
    )
    if boundaries is None:
        load_boundaries(config.boundary)
        boundaries = make_boundaries(config.boundary, language=config.language)
    return Decoder(
        config,
        tokenizer.vocabulary,
        boundaries,
        panel,
        Proposal(config),
        seed=seed if config.seed is None else config.seed,
        prompt_tokens=prompt,
        prompt=text,
        similarity=similarity,
    )


def drive(decoder: Decoder, runner: ToyRunner) -> Iterator[Event]:
    """Carry out a decoder's turns until it has finished, and yield its events."""
    turn = decoder.start(runner.root())
    while turn.feed is not None:
        yield from turn.events
        turn = decoder.advance(runner.run(turn))
    runner.run(turn)
    yield from turn.events


class ToyRunner:
    """Token lists in the place of a cache.

    Args:
        model: Gives the logits.
        prompt: Token ids of the prompt.
        processors: Logits processors.
        sample: Chooses the token of ordinary decoding (K = 1); the most probable one if None.
        target: The model that checks.

    Attributes:
        prefix: Tokens that all paths share.
        tails: Tokens of each path since the fork, by path index; empty when one row runs
            straight on the prefix.
        feeds: Every feed so far.
        seen: Tokens that the target has kept.
        sweeps: Every sweep so far.
    """

    def __init__(
        self,
        model: ToyModel,
        prompt: Sequence[int],
        processors: Sequence[ToyProcessor] = (),
        sample: Sample | None = None,
        target: ToyModel | None = None,
    ) -> None:
        self._model = model
        self._target = target
        self._processors = processors
        self._sample = sample
        self.prefix = list(prompt)
        self.tails: dict[int, list[int]] = {}
        self.feeds: list[Feed] = []
        self.seen: list[int] = []
        self.sweeps: list[Sweep] = []
        self._swept: list[list[int]] = []
        self._parked: set[int] = set()
        self._committed = 0  # tokens in the prefix at the last sweep

    def root(self) -> NextToken:
        """The model's opinion of the first token."""
        return self._next_token(self.prefix)

    def run(self, turn: Turn) -> list[NextToken]:
        """Apply the turn's operations and run its feed.

        Raises:
            CacheError: If a real cache could not do that.
        """
        for op in turn.ops:
            self._apply(op)
        if isinstance(turn.feed, Sweep):
            return self._sweep(turn.feed)
        return [] if turn.feed is None else self._feed(turn.feed)

    def _apply(self, op: CacheOp) -> None:
        match op:
            case Fork(num_paths):
                _require(not self.tails, op, "the prefix is forked already")
                self.tails = {index: [] for index in range(num_paths)}
            case Branch():
                _require(BRANCH not in self.tails, op, "there is a branch already")
                self.tails[BRANCH] = []
            case Park(path):
                _require(path in self.tails and path not in self._parked, op, "it is not fed")
                self._parked.add(path)
            case Drop(path):
                _require(path in self.tails, op, "it has no tail")
                del self.tails[path]
                self._parked.discard(path)
            case Merge(path, length):
                _require(path in self.tails, op, "it has no tail")
                held = len(self.tails[path])
                _require(length is None or length <= held, op, f"its tail has {held} tokens")
                self.prefix += self.tails[path][:length]
                self.tails = {}
                self._parked = set()
            case Accept(row, length):
                _require(row < len(self._swept), op, "there is no such row")
                fed = self._swept[row]
                _require(length <= len(fed), op, f"the row has {len(fed)} tokens")
                self.seen += [*self.prefix[len(self.seen) : self._committed], *fed[:length]]
                self._swept = []
            case Reject():
                _require(bool(self._swept), op, "nothing has been swept")
                self._swept = []

    def _sweep(self, sweep: Sweep) -> list[NextToken]:
        """The target's logits before every token; it may go on only from what it has seen."""
        _require(not self._swept, sweep, "the last one is not settled")
        target = self._target
        if target is None:
            raise CacheError("a sweep was asked for and there is no target")
        self.sweeps.append(sweep)
        self._committed = len(self.prefix)
        _require(self.seen == self.prefix[: len(self.seen)], sweep, "the target is out of step")
        _require(len(self.seen) < self._committed, sweep, "the target has no token to go on from")
        self._swept = [list(row[:-1]) for row in sweep.rows]
        return [
            self._processed([*self.prefix, *row[:i]], target.logits([*self.prefix, *row[:i]]))
            for row in sweep.rows
            for i in range(len(row))
        ]

    def _feed(self, feed: Feed) -> list[NextToken]:
        # A real cache is not told which rows these are: they are all paths not parked, in order.
        fed = [path for path in self.tails if path not in self._parked]
        _require(feed.forked == bool(self.tails), feed, "the prefix is forked, or is not")
        _require(not fed or list(feed.paths) == fed, feed, f"the paths to be fed are {fed}")
        _require(len(feed.tokens) == max(len(fed), 1), feed, "rows and paths differ in number")
        _require(len({len(row) for row in feed.tokens}) == 1, feed, "rows differ in length")
        _require(not feed.all_positions or len(feed.tokens) == 1, feed, "it has several rows")
        self.feeds.append(feed)
        rows = []
        for tail, tokens in zip(self._targets(feed), feed.tokens, strict=True):
            for position, token in enumerate(tokens):
                tail.append(token)
                if feed.all_positions or position == len(tokens) - 1:
                    own = [] if tail is self.prefix else tail
                    rows.append(self._next_token([*self.prefix, *own]))
        return rows

    def _targets(self, feed: Feed) -> list[list[int]]:
        if not feed.forked:
            return [self.prefix]
        return [self.tails[path] for path in feed.paths if path is not None]

    def _next_token(self, history: list[int]) -> NextToken:
        row = self._processed(history, self._model.logits(history))
        if self._sample is not None:
            row.sampled = self._sample(row)
        return row

    def _processed(self, history: list[int], raw: np.ndarray) -> NextToken:
        processed = raw
        for process in self._processors:
            processed = process(history, processed.copy())
        return NextToken(raw, processed)


def _sampler(config: DecodeConfig, seed: int) -> Sample:
    """Ordinary decoding's draws, which a real runner leaves to mlx-lm's sampler."""
    proposal, rng = Proposal(config), np.random.default_rng(seed)
    return lambda row: proposal.draw(row, rng).token


def _require(condition: bool, what: CacheOp | Feed | Sweep, reason: str) -> None:
    if not condition:
        raise CacheError(f"a cache cannot do {what}: {reason}")
