"""Incremental decoding against the tokenizer's own decode of the whole sequence."""

from __future__ import annotations

import copy
import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from msi_engine.text import Vocabulary
from tests.engine.toy_tokenizers import ADDED, CORPUS, FAMILIES, SPECIAL, tokenizer_of

# How long an example takes says nothing on a busy machine.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
VOCABULARIES = {}
# Every character of a language is one that some tokenizer must spell out in bytes.
TEXTS = st.lists(
    st.one_of(
        st.text(max_size=12), st.sampled_from([*CORPUS, *SPECIAL, *ADDED, " ", "\n\n", "👩‍💻"])
    ),
    max_size=6,
).map("".join)


def vocabulary_of(family: str) -> Vocabulary:
    if family not in VOCABULARIES:
        tokenizer = tokenizer_of(family)
        VOCABULARIES[family] = Vocabulary(tokenizer, [tokenizer.eos_token_id])
    return VOCABULARIES[family]


def decode(family: str, tokens: list[int]) -> str:
    return tokenizer_of(family).decode(
        tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def pushed(family: str, tokens: list[int], context: list[int] | None = None) -> str:
    detokenizer = vocabulary_of(family).detokenizer(context or [])
    parts = [detokenizer.push(t) for t in tokens]
    assert "".join(parts) == detokenizer.text
    return detokenizer.text + detokenizer.flush()


def decodable(family: str, tokens: list[int]) -> list[int]:
    """``tokens`` with the broken part of byte-fallback runs replaced by a token for U+FFFD.

    ``decode`` gives up a whole run for one invalid byte; a stream has given out by then what
    was whole. This is what a stream can do, written down independently of how it is done.
    """
    tokenizer = tokenizer_of(family)
    names = tokenizer.convert_ids_to_tokens(tokens)
    kept = [(t, n) for t, n in zip(tokens, names, strict=True) if n not in SPECIAL]
    if "<0x00>" not in tokenizer.get_vocab():
        return [t for t, _ in kept]
    broken = tokenizer.convert_tokens_to_ids("\ufffd")
    result = []
    for is_byte, group in itertools.groupby(
        kept, lambda tn: len(tn[1]) == 6 and tn[1][:3] == "<0x"
    ):
        run = list(group)
        if not is_byte:
            result += [t for t, _ in run]
            continue
        data = bytes(int(n[3:5], 16) for _, n in run)
        good = len(data)
        while good:
            try:
                data[:good].decode()
                break
            except UnicodeDecodeError:
                good -= 1
        result += [t for t, _ in run[:good]] + [broken] * (len(data) - good)
    return result


def test_the_fast_forms_are_taken():
    forms = {f: type(vocabulary_of(f)._form).__name__ for f in FAMILIES}
    assert forms["byte_level"] == forms["spm_bpe"] == forms["spm_no_strip"] == "Table"
    assert forms["unigram"] == forms["wordpiece"] == forms["suffix_bpe"] == "Window"


@pytest.mark.parametrize("family", FAMILIES)
@UNHURRIED
@given(text=TEXTS)
def test_text_of_encoded_text(family, text):
    tokens = tokenizer_of(family).encode(text)
    assert pushed(family, tokens) == decode(family, tokens)


@pytest.mark.parametrize("family", FAMILIES)
@settings(UNHURRIED, max_examples=150)
@given(data=st.data())
def test_text_of_random_tokens(family, data):
    size = vocabulary_of(family).size
    tokens = data.draw(st.lists(st.integers(0, size - 1), max_size=80))
    assert pushed(family, tokens) == decode(family, decodable(family, tokens))


@pytest.mark.parametrize("family", FAMILIES)
@UNHURRIED
@given(text=TEXTS, data=st.data())
def test_segments_join_as_one_text(family, text, data):
    """A segment decoded after the committed tokens continues their text exactly."""
    tokens = tokenizer_of(family).encode(text, add_special_tokens=False)
    cut = data.draw(st.integers(0, len(tokens)))
    detokenizer = vocabulary_of(family).detokenizer()
    head = "".join(map(detokenizer.push, tokens[:cut]))
    assert head + pushed(family, tokens[cut:], tokens[:cut]) == decode(family, tokens)


@pytest.mark.parametrize("family", FAMILIES)
@UNHURRIED
@given(tokens=st.lists(st.integers(0, 10_000), min_size=1, max_size=40), data=st.data())
def test_forks_are_independent(family, tokens, data):
    tokens = [t % vocabulary_of(family).size for t in tokens]
    cut = data.draw(st.integers(0, len(tokens)))
    trunk = vocabulary_of(family).detokenizer()
    for token in tokens[:cut]:
        trunk.push(token)
    before = (trunk.text, trunk.complete)
    fork = trunk.fork()
    for token in reversed(tokens):
        fork.push(token)
    fork.flush()
    assert (trunk.text, trunk.complete) == before
    for token in tokens[cut:]:
        trunk.push(token)
    assert trunk.text + copy.copy(trunk).flush() == pushed(family, tokens)


@pytest.mark.parametrize("family", ["byte_level", "spm_bpe", "spm_no_strip"])
@UNHURRIED
@given(text=st.text(alphabet="aé€😀👩‍💻 你", min_size=1, max_size=12))
def test_nothing_of_an_incomplete_character(family, text):
    detokenizer = vocabulary_of(family).detokenizer()
    tokenizer = tokenizer_of(family)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    for count, token in enumerate(tokens, 1):
        detokenizer.push(token)
        assert "\ufffd" not in detokenizer.text
        assert detokenizer.complete == ("\ufffd" not in decode(family, tokens[:count]))
    assert detokenizer.complete


@pytest.mark.parametrize("family", FAMILIES)
def test_control_tokens_have_no_text_and_added_ones_have(family):
    tokenizer = tokenizer_of(family)
    control = tokenizer.convert_tokens_to_ids(["<s>", "<|im_end|>", "</s>"])
    assert pushed(family, control) == ""
    assert "<think>" in pushed(family, tokenizer.convert_tokens_to_ids(["<think>"]))


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_beyond_the_vocabulary_have_no_text(family):
    assert pushed(family, [vocabulary_of(family).size + 7]) == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_end_mask(family):
    """A token ends a word if, put after a word, it adds white space there."""
    vocabulary, tokenizer = vocabulary_of(family), tokenizer_of(family)
    word = tokenizer.encode("a", add_special_tokens=False)
    base = decode(family, word)
    assert vocabulary.end_mask.dtype == bool
    assert vocabulary.end_mask.any()
    assert not vocabulary.end_mask.all()
    for token in range(vocabulary.size):
        added = decode(family, [*word, token])[len(base) :]
        expected = added[:1].isspace() or token == tokenizer.eos_token_id
        assert vocabulary.end_mask[token] == expected, tokenizer.convert_ids_to_tokens(token)


def test_end_mask_fits_the_logits():
    vocabulary = vocabulary_of("byte_level")
    wide, narrow = vocabulary.end_mask_for(vocabulary.size + 5), vocabulary.end_mask_for(7)
    assert wide.shape == (vocabulary.size + 5,)
    assert (wide[: vocabulary.size] == vocabulary.end_mask).all()
    assert not wide[vocabulary.size :].any()
    assert (narrow == vocabulary.end_mask[:7]).all()


def test_a_tokenizer_that_changes_its_decoders_text_is_decoded_by_itself():
    from mlx_lm.tokenizer_utils import NewlineTokenizer

    backend = Tokenizer.from_str(tokenizer_of("byte_level").backend_tokenizer.to_str())
    backend.add_tokens(["<n>"])
    tokenizer = NewlineTokenizer(tokenizer_object=backend)
    tokens = tokenizer.encode("one\ntwo")
    detokenizer = Vocabulary(tokenizer, []).detokenizer()
    assert "".join(map(detokenizer.push, tokens)) + detokenizer.flush() == tokenizer.decode(tokens)
    assert "\n" in tokenizer.decode(tokens)


@pytest.mark.real_model
def test_the_embedded_models_tokenizer(store, monkeypatch):
    monkeypatch.setenv("MSI_HOME", str(store))
    from msi_engine.model import load_model

    tokenizer = load_model("embedded").tokenizer
    vocabulary = Vocabulary(tokenizer, tokenizer.eos_token_ids)
    rng = random.Random(3)
    special = set(tokenizer.all_special_ids) | set(tokenizer.eos_token_ids)
    sequences = [tokenizer.encode(text) for text in CORPUS]
    sequences += [[rng.randrange(vocabulary.size) for _ in range(40)] for _ in range(300)]
    for tokens in sequences:
        detokenizer = vocabulary.detokenizer()
        text = "".join(map(detokenizer.push, tokens)) + detokenizer.flush()
        assert text == tokenizer.decode([t for t in tokens if t not in special])
    word = tokenizer.encode("a")
    for token in range(0, vocabulary.size, 7):
        expected = tokenizer.decode([*word, token])[1:2].isspace() or token in special
        if token not in special or token in tokenizer.eos_token_ids:
            assert vocabulary.end_mask[token] == expected, token
