"""Opinions: read in a few passes, they are those of a model that is asked token by token."""

from __future__ import annotations

import numpy as np
import pytest

from msi_engine import DecodeConfig
from msi_engine.errors import PromptError
from msi_engine.pair import Pair, Target
from msi_engine.prefix import PrefixKeeper
from msi_engine.service import ENGINE_THREAD
from tests.engine.tiny_engine import tiny_engine


def one_by_one(model, prompt, tokens):
    """Without a cache, every token in a pass of its own; also the lead in float64."""
    import mlx.core as mx

    def asked():
        found = []
        for count in range(len(tokens)):
            logits = np.array(model(mx.array([[*prompt, *tokens[:count]]]))[0, -1], np.float64)
            second, first = np.sort(logits)[-2:]
            found.append((int(logits.argmax()), first - second))
        return found

    return ENGINE_THREAD.call(asked)


@pytest.fixture(scope="module")
def engine():
    """A pair of two unlike random models."""
    draft, target = tiny_engine(seed=0), tiny_engine(seed=1)
    model = target._held.loaded.model
    checks = Target(model=type("Model", (), {"model": model})(), keeper=PrefixKeeper(model),
                    draft_bytes=1)  # fmt: skip
    draft._held._pair = ((None, "auto"), Pair(draft._held.loaded, draft._held.keeper, checks))
    draft.target_for_tests = model
    return draft


@pytest.mark.parametrize("length", [1, 7, 130])  # 130: in three chunks
def test_opinions_are_those_of_a_model_asked_token_by_token(engine, length):
    prompt = [3, 5, 7, 11, 13, 17, 19]
    tokens = [(31 * i) % 97 for i in range(length)]
    config = DecodeConfig(prefill_step_size=4)
    for part, model in (("draft", engine._held.loaded.model), ("target", engine.target_for_tests)):
        found = engine.opinions(prompt, tokens, config, of=part)
        expected = one_by_one(model, prompt, tokens)
        assert [o.token for o in found] == [token for token, _ in expected]
        np.testing.assert_allclose(
            [o.margin for o in found], [margin for _, margin in expected], atol=1e-4
        )


def test_draft_and_target_differ_here(engine):
    read = [engine.opinions([3, 5], [7] * 20, DecodeConfig(), of=of) for of in ("draft", "target")]
    assert read[0] != read[1]


@pytest.mark.parametrize("of", ["draft", "target"])
def test_tokens_that_the_models_lack_are_refused(engine, of):
    """What lies beyond the embeddings would be read from foreign memory."""
    width = engine._held.loaded.vocab_size
    assert len(engine.opinions([5, width - 1], [width - 1], DecodeConfig(k=1), of=of)) == 1
    for prompt, tokens in (([5, width], [3]), ([5, 6], [3, width])):
        with pytest.raises(PromptError, match=f"token {width} .* go from 0 to {width - 1}"):
            engine.opinions(prompt, tokens, DecodeConfig(k=1), of=of)
