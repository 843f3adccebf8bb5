"""A held model: in memory, with all that its generations leave behind for the next.

That is the cache of the last one, the target once it was asked for, and vocabularies. Everything
here belongs to the engine thread.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

from msi_engine.config import DecodeConfig
from msi_engine.errors import ModelFileError
from msi_engine.events import Event
from msi_engine.model import LoadedModel, OnProgress
from msi_engine.model.progress import ignore_progress
from msi_engine.model.store import Part
from msi_engine.opinions import Opinion, opinions
from msi_engine.pair import Pair, load_pair
from msi_engine.prefix import PrefixKeeper
from msi_engine.prompt import Prompt, encode_prompt
from msi_engine.prompt.tools import Chat
from msi_engine.request import Request
from msi_engine.session import Session
from msi_engine.text import Vocabulary


class HeldModel:
    """A model, and what stays with it.

    Args:
        loaded: The model.
        trust_remote_code: Let the Python code of a target run, as the model's own was let.
        keeper: Keeps the model's cache between generations; None makes one.

    Attributes:
        loaded: The model.
        keeper: Keeps its cache.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        trust_remote_code: bool = False,
        keeper: PrefixKeeper | None = None,
    ) -> None:
        self.loaded = loaded
        self.keeper = keeper or PrefixKeeper(loaded.model)
        self._trust_remote_code = trust_remote_code
        self._pair: tuple[tuple[str | None, str], Pair] | None = None
        self._vocabularies: dict[tuple[frozenset[int], bool], Vocabulary] = {}

    def renamed(self, name: str) -> HeldModel:
        """The same weights and the same cache under another name, which may have another target."""
        loaded = replace(self.loaded, name=name)
        return HeldModel(loaded, trust_remote_code=self._trust_remote_code, keeper=self.keeper)

    def events(self, request: Request) -> Generator[Event]:
        """Run a generation."""
        if request.config.refine == "off":
            words = self.vocabulary(request.prompt)
            yield from Session(self.loaded, words, self.keeper, request).events()
            return
        pair = self.pair(request.config)
        words = self.vocabulary(request.prompt, pair.eos_token_ids)
        try:
            yield from Session(pair.draft, words, pair.keeper, request, pair.target).events()
        except ModelFileError:  # the target's have changed: the next one begins with them anew
            self._pair = None
            raise

    def pair(self, config: DecodeConfig, on_progress: OnProgress = ignore_progress) -> Pair:
        """Draft and target, in memory from the first time they are asked for.

        A target that is no longer asked for makes room for the next.

        Args:
            config: Names the target and says where its weights stay.
            on_progress: Told of what takes long.

        Raises:
            ModelError: If there is no target, or it does not fit the model.
            DownloadError: If it has to be fetched and cannot be.
        """
        key = (config.target, config.target_residency)
        if self._pair is None or self._pair[0] != key:
            self._pair = None
            trust = self._trust_remote_code
            pair = load_pair(self.loaded, self.keeper, config, on_progress, trust_remote_code=trust)
            self._pair = (key, pair)
        return self._pair[1]

    def ends(self, config: DecodeConfig) -> frozenset[int]:
        """Tokens that end an answer with these options."""
        if config.refine == "off":
            return self.loaded.eos_token_ids
        return self.pair(config).eos_token_ids

    def opinions(
        self, prompt: Prompt, tokens: Sequence[int], config: DecodeConfig, of: Part
    ) -> list[Opinion]:
        """What the draft or the target would write before each of ``tokens``."""
        pair = self.pair(config)
        model = pair.draft.model if of == "draft" else pair.target.model.model
        encoded = encode_prompt(pair.draft.tokenizer, prompt).tokens
        width = pair.target.num_logits or pair.draft.vocab_size
        encode_prompt(pair.draft.tokenizer, [*encoded, *tokens], vocab_size=width)  # only the range
        return opinions(model, encoded, tokens, config.prefill_step_size, pair.target.num_logits)

    def vocabulary(self, prompt: Prompt, more_ends: frozenset[int] = frozenset()) -> Vocabulary:
        """The vocabulary that an answer is written in.

        Args:
            prompt: With tools, it has the special tokens that some models mark their calls with.
            more_ends: Tokens that end it, beside the model's own.
        """
        ends, is_special = self.loaded.eos_token_ids | more_ends, isinstance(prompt, Chat)
        if (ends, is_special) not in self._vocabularies:
            words = Vocabulary(self.loaded.tokenizer, ends, special_texts=is_special)
            self._vocabularies[ends, is_special] = words
        return self._vocabularies[ends, is_special]
