"""A pair at work: the model that drafts, the target that checks, and what each remembers."""

from __future__ import annotations

from dataclasses import dataclass

from msi_engine.config import DecodeConfig
from msi_engine.model import LoadedModel, OnProgress, TargetModel, load_model, load_target, resolve
from msi_engine.model.pairs import check_pair, common_logits
from msi_engine.model.target import target_folder
from msi_engine.model.tensors import logical_nbytes
from msi_engine.prefix import PrefixKeeper


@dataclass(frozen=True, slots=True)
class Target:
    """What checks.

    Attributes:
        model: The model of higher precision.
        keeper: Keeps its cache between generations.
        draft_bytes: Bytes of weights that one pass of the draft reads, at their stored size.
        num_logits: Logits of a row that the draft gives, too, from the first; None is all.
    """

    model: TargetModel
    keeper: PrefixKeeper
    draft_bytes: int
    num_logits: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Draft and target, in memory.

    Attributes:
        draft: What writes.
        keeper: Keeps the draft's cache between generations.
        target: What checks.
    """

    draft: LoadedModel
    keeper: PrefixKeeper
    target: Target

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer by the configuration of either."""
        return self.draft.eos_token_ids | self.target.model.eos_token_ids


def load_pair(
    held: LoadedModel,
    keeper: PrefixKeeper,
    config: DecodeConfig,
    on_progress: OnProgress,
    *,
    trust_remote_code: bool = False,
) -> Pair:
    """The pair of a model that is in memory; weights that are there already are used again.

    Args:
        held: The model that plain decoding uses: a lone model, or either part of a pair.
        keeper: Its keeper.
        config: Names the target and says where its weights stay.
        on_progress: Told of what takes long.
        trust_remote_code: Let the models' own Python code run.

    Raises:
        ModelError: If there is no target, or it does not fit the draft.
    """
    draft, draft_keeper = held, keeper
    if resolve(held.name).draft not in (None, held.path):
        draft = load_model(
            held.name, on_progress, part="draft", trust_remote_code=trust_remote_code
        )
        draft_keeper = PrefixKeeper(draft.model)
    model, target_keeper = None, keeper
    if draft is not held:
        model = _held_target(draft, held, config, trust_remote_code)
    if model is None:
        model = load_target(
            draft,
            name=config.target,
            residency=config.target_residency,
            on_progress=on_progress,
            trust_remote_code=trust_remote_code,
        )
        target_keeper = PrefixKeeper(model.model)
    target = Target(
        model,
        target_keeper,
        draft_bytes=logical_nbytes(draft.path),
        num_logits=common_logits(draft.vocab_size, model.vocab_size),
    )
    return Pair(draft, draft_keeper, target)


def _held_target(
    draft: LoadedModel, held: LoadedModel, config: DecodeConfig, trust_remote_code: bool
) -> TargetModel | None:
    """The model in memory as the target, if it is the one that is wanted."""
    wanted = target_folder(held.name, config.target)
    if wanted != held.path or config.target_residency == "stream":
        return None
    sizes = draft.vocab_size, held.vocab_size
    check_pair(draft.path, held.path, sizes, trust_remote_code=trust_remote_code)
    return TargetModel.of(
        held.model,
        "resident",
        held.name,
        held.path,
        nbytes=held.nbytes,
        vocab_size=held.vocab_size,
    )
