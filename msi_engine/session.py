"""A session: one generation from prompt to the last event, on the engine thread."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterator, Mapping
from functools import cached_property
from typing import Any

import mlx.core as mx

from msi_engine.boundary import make_boundaries
from msi_engine.cache import SharedPrefixCache
from msi_engine.collapse import chrf_similarity
from msi_engine.config import DecodeConfig
from msi_engine.decoder import Decoder
from msi_engine.errors import MSIError, PromptTooLongError, ScorerError
from msi_engine.events import Event, Prefilled, Stats
from msi_engine.evidence import Evidence
from msi_engine.grammar.processor import GrammarProcessor
from msi_engine.model import LoadedModel
from msi_engine.options import fit_to_vocabulary, penalties, sampler
from msi_engine.pair import Target
from msi_engine.panel import ScorerPanel
from msi_engine.passages import evidence_of
from msi_engine.plugins import find_scorers, load_boundaries
from msi_engine.prefix import PrefixKeeper
from msi_engine.prompt import EncodedPrompt, encode_prompt, last_question
from msi_engine.request import Request
from msi_engine.runner import Runner, SingleRunner
from msi_engine.sampling import Proposal
from msi_engine.scorer import ScoreContext
from msi_engine.similarity import cosine_similarity
from msi_engine.stepping import LogitsProcessor
from msi_engine.sweeper import Sweeper
from msi_engine.text import Vocabulary


class Session:
    """One generation on a loaded model.

    Args:
        loaded: Model and tokenizer.
        vocabulary: Of that tokenizer.
        keeper: Where the cache comes from and goes to.
        request: What is asked for.
        target: What checks the model's tokens, where the options ask for it.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        vocabulary: Vocabulary,
        keeper: PrefixKeeper,
        request: Request,
        target: Target | None = None,
    ) -> None:
        self._target = target
        self._num_logits = None if target is None else target.num_logits
        self._width = self._num_logits or loaded.vocab_size or vocabulary.size
        self._loaded = loaded
        self._vocabulary = vocabulary
        self._keeper = keeper
        self._request = request

    def events(self) -> Generator[Event]:
        """Run the generation.

        One that ends leaves its cache for the next; one that fails or is given up does not.
        """
        start = time.perf_counter()
        prompt = encode_prompt(
            self._loaded.tokenizer,
            self._request.prompt,
            vocab_size=self._width,
        )
        config = self._fit(prompt)
        processors = self._processors(prompt, config)
        decoder = self._decoder(prompt, config)
        cache, reused = self._keeper.take(prompt.tokens, config)
        yield from self._prefill(cache, prompt, reused, config)
        sweeper = None
        if self._target is not None:
            target_cache, seen = self._target.keeper.take(prompt.tokens, config)
            yield from self._prefill(target_cache, prompt, seen, config)
            sweeper = Sweeper(
                target_cache,
                processors,
                lambda: decoder.history(None),
                config.prefill_step_size,
                self._num_logits,
            )
        runner = self._runner(cache, processors, decoder, config, sweeper)
        turn = decoder.start(runner.root(prompt.tokens[-1]))
        decoder.stats.prefilled_tokens = len(prompt.tokens) - reused
        decoder.stats.prompt_s = time.perf_counter() - start
        while turn.feed is not None:
            yield from turn.events
            turn = decoder.advance(runner.run(turn))
        runner.run(turn)
        self._keeper.keep(cache, decoder.history(None), config)
        if self._target is not None and sweeper is not None:
            self._target.keeper.keep(target_cache, decoder.history(None), config)
            self._account(decoder.stats, runner, self._target, sweeper)
        decoder.stats.decode_s = time.perf_counter() - start - decoder.stats.prompt_s
        decoder.stats.peak_cache_bytes = runner.peak_bytes
        yield from turn.events

    def _fit(self, prompt: EncodedPrompt) -> DecodeConfig:
        """The options with a token budget that the context of every model at work can hold."""
        # Some tokenizers have more tokens than the model; a bias there would be written anywhere.
        size = min(self._vocabulary.size, self._width)
        config = fit_to_vocabulary(self._request.config, size)
        read = [(self._loaded.context_length, self._loaded.name)]
        if self._target is not None:
            read.append((self._target.model.context_length, self._target.model.name))
        contexts = [(length, name) for length, name in read if length is not None]
        if not contexts:
            return config
        context, name = min(contexts)
        room = context - len(prompt.tokens)
        if room < 1:
            raise PromptTooLongError(
                f"the prompt has {len(prompt.tokens)} tokens, and {name} reads at "
                f"most {context} with its answer; shorten the prompt"
            )
        return config if config.max_tokens <= room else config.replace(max_tokens=room)

    def _prefill(
        self, cache: SharedPrefixCache, prompt: EncodedPrompt, reused: int, config: DecodeConfig
    ) -> Iterator[Event]:
        """All but the last token, in chunks; the last one's logits are the first root."""
        total = len(prompt.tokens)
        yield Prefilled(reused, total, reused)
        for begin in range(reused, total - 1, config.prefill_step_size):
            end = min(begin + config.prefill_step_size, total - 1)
            cache.prefill(prompt.tokens[begin:end], config.prefill_step_size)
            yield Prefilled(end, total, reused)

    def _decoder(self, prompt: EncodedPrompt, config: DecodeConfig) -> Decoder:
        load_boundaries(config.boundary)
        embedder = self._request.embedder
        return Decoder(
            config,
            self._vocabulary,
            make_boundaries(config.boundary, language=config.language),
            self._panel(prompt, config),
            Proposal(config, self._xtc_special_tokens),
            seed=secrets.randbelow(2**32) if config.seed is None else config.seed,
            prompt_tokens=prompt.tokens,
            prompt=prompt.text,
            similarity=chrf_similarity if embedder is None else cosine_similarity(embedder),
        )

    def _panel(self, prompt: EncodedPrompt, config: DecodeConfig) -> ScorerPanel:
        factories = find_scorers(config.scorers, self._request.scorer_factories)
        if not factories:
            return ScorerPanel({})
        evidence = evidence_of(self._request.prompt, config, self._request.evidence)
        scorers = {}
        for name, factory in factories.items():
            try:
                options = config.scorer_options.get(name, {})
                scorer = factory(self._context(prompt, options, evidence))
            except MSIError:
                raise
            except Exception as error:
                raise ScorerError(name, f"not made: {type(error).__name__}: {error}") from error
            scorers[name] = (scorer, config.scorers[name])
        return ScorerPanel(scorers)

    def _context(
        self, prompt: EncodedPrompt, options: Mapping[str, Any], evidence: tuple[Evidence, ...]
    ) -> ScoreContext:
        return ScoreContext(
            prompt=prompt.text,
            options=options,
            question=last_question(self._request.prompt, prompt.text),
            evidence=evidence,
            embedder=self._request.embedder,
        )

    def _processors(self, prompt: EncodedPrompt, config: DecodeConfig) -> list[LogitsProcessor]:
        """The options', the caller's, and last, so that nothing undoes it, the constraint's."""
        processors = [*penalties(config), *self._request.logits_processors]
        constraint = self._request.constraint
        if constraint is None:
            return processors
        tokenizer, ends = self._loaded.tokenizer, self._vocabulary.eos_token_ids
        mask = GrammarProcessor(constraint.grammar, tokenizer, ends, len(prompt.tokens))
        return [*processors, mask]

    def _runner(
        self,
        cache: SharedPrefixCache,
        processors: list[LogitsProcessor],
        decoder: Decoder,
        config: DecodeConfig,
        sweeper: Sweeper | None,
    ) -> Runner:
        if config.k > 1 or sweeper is not None:
            return Runner(cache, processors, decoder.history, sweeper, self._num_logits)
        mx.random.seed(decoder.seed)  # the engine thread's own state, nobody else's
        draw = sampler(config, self._xtc_special_tokens)
        return SingleRunner(
            cache, processors, decoder.history, sampler=draw, max_tokens=config.max_tokens
        )

    def _account(self, stats: Stats, runner: Runner, target: Target, sweeper: Sweeper) -> None:
        """What the passes of both models have cost."""
        cost = stats.refinement
        if cost is None:
            return
        cost.target_kind = target.model.kind
        cost.draft_s, cost.sweep_s = runner.draft_s, runner.sweep_s
        passes = stats.forward_passes + 1 + runner.replays  # the first draws on the prompt's last
        cost.draft_bytes = passes * target.draft_bytes
        cost.target_bytes = sweeper.passes * target.model.bytes_per_sweep
        cost.plain_bytes_per_token = target.model.bytes_per_sweep
        read = cost.draft_bytes + cost.target_bytes
        cost.bytes_per_token = read / max(stats.output_tokens, 1)

    @cached_property
    def _xtc_special_tokens(self) -> list[int]:
        """Tokens that XTC never removes: mlx-lm's choice, newline and end-of-sequence."""
        newline: list[int] = self._loaded.tokenizer.encode("\n", add_special_tokens=False)
        return [*newline, *self._vocabulary.eos_token_ids]
