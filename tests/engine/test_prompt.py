"""Prompts: exactly the tokenizer's own tokens, and never a control token from a message's text."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import TokenizerWrapper
from tokenizers import AddedToken, Tokenizer, normalizers
from transformers import PreTrainedTokenizerFast

from msi_engine.errors import PromptError
from msi_engine.prompt import control_token_ids, encode_prompt
from tests.engine.toy_tokenizers import ADDED, CORPUS, SPECIAL, tokenizer_of

# How long an example takes says nothing on a busy machine.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
MORE = (
    "<|start_header_id|> <|end_header_id|> <|eot_id|> <start_of_turn> <end_of_turn> [INST] [/INST]"
)
CONTROL = [*SPECIAL, *MORE.split(), "<think>", "</think>", "<tool_call>"]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA2 = (
    "{% if messages[0].role == 'system' %}{% set ms = messages[1:] %}"
    "{% set sys = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}"
    "{% else %}{% set ms = messages %}{% set sys = '' %}{% endif %}"
    "{% for m in ms %}{% set c = (sys if loop.index0 == 0 else '') + m.content %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}{{ bos_token + '[INST] ' + c.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + c.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + "
    "'<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate\nuser/assistant') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' "
    "+ m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('After the optional system message, roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% elif m.role == 'assistant' %}{{ m.content + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
    "{% endfor %}"
)
THINKING = (  # takes reasoning out of earlier answers
    "{% for m in messages %}{% set c = m.content %}"
    "{% if m.role == 'assistant' and '</think>' in c %}"
    "{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ c }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}"
)
REASONING = (  # and puts that of the last answer back between its own tokens
    "{% for m in messages %}{% set c = m.content %}<|im_start|>{{ m.role }}\n"
    "{% if '</think>' in c %}<think>{{ c.split('</think>')[0].split('<think>')[-1] }}</think>"
    "{{ c.split('</think>')[-1] }}{% else %}{{ c }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SILENT = CHATML.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")
TEMPLATES = {
    "chatml": CHATML,
    "llama2": LLAMA2,
    "llama3": LLAMA3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "thinking": THINKING,
    "reasoning": REASONING,
}


@cache
def chat_tokenizer(template: str | None, family: str = "byte_level") -> TokenizerWrapper:
    backend = Tokenizer.from_str(tokenizer_of(family).backend_tokenizer.to_str())
    backend.add_special_tokens([AddedToken(s, normalized=False) for s in MORE.split()])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.chat_template = TEMPLATES.get(template or "", template)
    return TokenizerWrapper(tokenizer)


def chat(*contents: str, system: str | None = None) -> list[dict[str, str]]:
    messages = [] if system is None else [{"role": "system", "content": system}]
    roles = ["user", "assistant"]
    return messages + [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]


def control_counts(tokenizer, tokens) -> Counter:
    control = set(tokenizer.convert_tokens_to_ids(CONTROL))
    return Counter(tokenizer.convert_ids_to_tokens([t for t in tokens if t in control]))


HARMLESS = st.one_of(st.sampled_from(CORPUS), st.text(min_size=1, max_size=20)).filter(
    lambda t: t.strip() and not any(c in t for c in CONTROL)
)
HOSTILE = st.lists(
    st.one_of(
        st.sampled_from(
            [*CONTROL, *ADDED, "<|im", "_end|>", "<", "|>", "</", "think>", "[", "\n", " "]
        ),
        st.text(max_size=6),
        st.text(alphabet="\ue000\ue001\ue002<|im_end>", max_size=6),
    ),
    min_size=1,
    max_size=8,
).map("".join)


@pytest.mark.parametrize("family", ["byte_level", "spm_bpe"])
@pytest.mark.parametrize("template", TEMPLATES)
@UNHURRIED
@given(data=st.data())
def test_harmless_messages_have_the_tokens_of_apply_chat_template(template, family, data):
    tokenizer = chat_tokenizer(template, family)
    messages = chat(
        *data.draw(st.lists(HARMLESS, min_size=1, max_size=5).filter(lambda x: len(x) % 2))
    )
    encoded = encode_prompt(tokenizer, messages)
    assert list(encoded.tokens) == tokenizer.apply_chat_template(
        messages, add_generation_prompt=True
    )
    assert encoded.text == tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False
    )


@pytest.mark.parametrize("family", ["byte_level", "spm_bpe"])
@pytest.mark.parametrize("template", TEMPLATES)
@settings(UNHURRIED, max_examples=40)
@given(data=st.data())
def test_no_text_of_a_message_becomes_a_control_token(template, family, data):
    tokenizer = chat_tokenizer(template, family)
    contents = data.draw(st.lists(HOSTILE, min_size=1, max_size=3).filter(lambda x: len(x) % 2))
    messages = chat(*(c if c.strip() else "x" for c in contents))
    tokens = encode_prompt(tokenizer, messages).tokens
    harmless = tokenizer.apply_chat_template(
        chat(*["x" for _ in contents]), add_generation_prompt=True
    )
    assert control_counts(tokenizer, tokens) == control_counts(tokenizer, harmless)


@pytest.mark.parametrize("family", ["byte_level", "spm_bpe"])
@pytest.mark.parametrize("template", ["chatml", "llama2", "llama3", "gemma", "mistral"])
@settings(UNHURRIED, max_examples=40)
@given(data=st.data())
def test_the_text_stays_what_the_template_wrote(template, family, data):
    """Cut or not, the model reads the same characters."""
    tokenizer = chat_tokenizer(template, family)
    contents = data.draw(st.lists(HOSTILE, min_size=1, max_size=3).filter(lambda x: len(x) % 2))
    messages = chat(*(c if c.strip() else "x" for c in contents))
    encoded = encode_prompt(tokenizer, messages)
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert encoded.text == text
    if family == "byte_level":  # the other one adds spaces around control tokens itself
        assert tokenizer.decode(encoded.tokens) == text


@pytest.mark.parametrize("family", ["spm_bpe", "spm_no_strip"])
def test_sentencepiece_gets_no_spaces_where_a_text_is_cut(family):
    tokenizer = chat_tokenizer("chatml", family)
    tokens = encode_prompt(tokenizer, chat("a</s>b <think>c")).tokens
    assert "a</s>b <think>c<|im_end|>" in tokenizer.decode(tokens)


@pytest.mark.parametrize("template", ["chatml", "llama3"])
def test_system_messages_are_as_guarded(template):
    tokenizer = chat_tokenizer(template)
    tokens = encode_prompt(tokenizer, chat("hi", system="<|im_end|><|eot_id|>")).tokens
    harmless = encode_prompt(tokenizer, chat("hi", system="x")).tokens
    assert control_counts(tokenizer, tokens) == control_counts(tokenizer, harmless)


def test_the_thinking_of_an_earlier_answer_is_still_taken_out():
    tokenizer = chat_tokenizer("thinking")
    messages = chat("Hi", "<think>secret</think>\nHello", "And?")
    encoded = encode_prompt(tokenizer, messages)
    assert "secret" not in encoded.text
    assert encoded.text == tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False
    )


def test_a_template_that_loses_the_marks_is_refused():
    template = CHATML.replace("m.content", "m.content.encode('ascii', 'ignore').decode()")
    tokenizer = chat_tokenizer(template)
    assert (
        encode_prompt(tokenizer, chat("ab")).text
        == "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(PromptError, match=r"<\|im_end\|>"):
        encode_prompt(tokenizer, chat("a<|im_end|>b"))


def test_a_control_token_that_cannot_be_cut_is_refused():
    backend = Tokenizer.from_str(tokenizer_of("byte_level").backend_tokenizer.to_str())
    backend.add_special_tokens([AddedToken("☃", normalized=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    tokenizer.chat_template = CHATML
    with pytest.raises(PromptError, match="☃"):
        encode_prompt(tokenizer, chat("a ☃ b"))


def test_a_text_that_only_normalises_to_a_control_token():
    backend = Tokenizer.from_str(tokenizer_of("byte_level").backend_tokenizer.to_str())
    backend.normalizer = normalizers.Lowercase()
    backend.add_tokens([AddedToken("<stop>", normalized=True, special=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    tokenizer.chat_template = CHATML
    stop = tokenizer.convert_tokens_to_ids("<stop>")
    assert stop in tokenizer.encode("<STOP>")
    assert stop not in encode_prompt(tokenizer, chat("a <STOP> b")).tokens


def test_control_tokens_are_special_and_added_ones():
    tokenizer = chat_tokenizer("chatml")
    expected = set(tokenizer.convert_tokens_to_ids([*SPECIAL, *MORE.split(), *ADDED]))
    expected.remove(tokenizer.convert_tokens_to_ids("\ufffd"))  # a character, not a command
    assert control_token_ids(tokenizer) == expected


@pytest.mark.parametrize("template", ["gemma", "mistral"])
def test_a_system_message_joins_the_first_user_message_where_it_is_refused(template):
    tokenizer = chat_tokenizer(template)
    messages = chat("Hi", "Hello", "Bye", system="Be kind.")
    expected = chat("Be kind.\n\nHi", "Hello", "Bye")
    assert list(encode_prompt(tokenizer, messages).tokens) == tokenizer.apply_chat_template(
        expected, add_generation_prompt=True
    )


def test_a_system_message_joins_the_first_user_message_where_it_is_passed_over():
    encoded = encode_prompt(chat_tokenizer(SILENT), chat("Hi", system="Be kind."))
    assert "<|im_start|>user\nBe kind.\n\nHi<|im_end|>" in encoded.text


def test_neighbours_of_one_role_are_joined_only_where_they_are_refused():
    messages = [*chat("one"), *chat("two")]
    joined = chat_tokenizer("mistral").apply_chat_template(chat("one\n\ntwo"))
    assert list(encode_prompt(chat_tokenizer("mistral"), messages).tokens) == joined
    assert encode_prompt(chat_tokenizer("chatml"), messages).text.count("<|im_start|>user") == 2


@pytest.mark.parametrize("template", ["chatml", "llama3", "gemma"])
@pytest.mark.parametrize("answer", ["The answer is", "It </s> is"])
def test_an_answer_at_the_end_is_continued(template, answer):
    tokenizer = chat_tokenizer(template)
    encoded = encode_prompt(tokenizer, chat("Hi", answer))
    assert encoded.text.endswith(answer)
    assert encoded.text == tokenizer.apply_chat_template(
        chat("Hi", answer), continue_final_message=True, tokenize=False
    )
    assert tokenizer.convert_tokens_to_ids("</s>") not in encoded.tokens


def test_a_blank_answer_at_the_end_is_yet_to_be_given():
    tokenizer = chat_tokenizer("chatml")
    assert encode_prompt(tokenizer, chat("Hi", " ")) == encode_prompt(tokenizer, chat("Hi"))


def test_template_options_reach_the_template():
    template = "{{ messages[0].content }}{{ mood }}"
    encoded = encode_prompt(chat_tokenizer(template), chat("Hi"), template_options={"mood": "!!"})
    assert encoded.text == "Hi!!"


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (chat("Hi"), "Hi"),
        (chat("Hi", system="Be kind."), "Be kind.\n\nHi"),
        (chat("Hi", "Hello", "Bye"), "User: Hi\n\nAssistant: Hello\n\nUser: Bye\n\nAssistant:"),
        (chat("Hi", "Well"), "User: Hi\n\nAssistant: Well"),
        (
            chat("Hi", "Hello", "Bye", system="S"),
            "S\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Bye\n\nAssistant:",
        ),
    ],
)
@pytest.mark.parametrize("family", ["byte_level", "spm_bpe"])
def test_plain_text_without_a_template(messages, text, family):
    tokenizer = chat_tokenizer(None, family)
    encoded = encode_prompt(tokenizer, messages)
    assert encoded.text == text
    assert list(encoded.tokens) == tokenizer.encode(text)


@pytest.mark.parametrize("family", ["byte_level", "spm_bpe"])
def test_plain_text_is_guarded_and_begins_with_bos_where_the_tokenizer_says_so(family):
    tokenizer = chat_tokenizer(None, family)
    tokens = encode_prompt(tokenizer, chat("</s>a<|im_end|>")).tokens
    assert control_counts(tokenizer, tokens) == ({"<s>": 1} if family == "spm_bpe" else {})


@pytest.mark.parametrize("family", ["byte_level", "spm_bpe"])
def test_a_string_is_the_developers_own(family):
    tokenizer = chat_tokenizer(None, family)
    for text in ["Hello", "<|im_start|>user\nHi<|im_end|>"]:
        assert list(encode_prompt(tokenizer, text).tokens) == tokenizer.encode(text)
    assert list(encode_prompt(tokenizer, "<s>Hi").tokens) == tokenizer.encode(
        "<s>Hi", add_special_tokens=False
    )


def test_token_ids_are_taken_as_they_are():
    tokenizer = chat_tokenizer(None)
    tokens = tokenizer.encode("Hello")
    assert encode_prompt(tokenizer, tokens).tokens == tuple(tokens)
    assert encode_prompt(tokenizer, tokens).text == "Hello"


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        ("", "empty"),
        ([], "empty"),
        (chat(" \n"), "empty"),
        (chat(system="Be kind."), "empty"),
        ([{"role": "tool", "content": "x"}], "'tool'"),
        ([{"role": "user"}], "None"),
        ([{"content": "x"}], "role"),
        ([{"role": "user", "content": ["x"]}], "string"),
        (["x"], "'x'"),
        ([1, "x"], "mixture"),
        ([3, -1], "-1"),
        ([3, 10_000], "token 10000"),
        ([3, 2**31], "token 2147483648"),
        ([3, 2**70], "token 1180591620717411303424"),
        ([1.5], "mixture"),
        (b"x", "got bytes"),
        (None, "got NoneType"),
        ({"role": "user", "content": "x"}, "got dict"),
        (iter([1]), "got list_iterator"),
        ("\ud800", "surrogate"),
        (chat("a\udfff"), "surrogate"),
    ],
)
def test_errors_are_one_line(prompt, part):
    with pytest.raises(PromptError) as caught:
        encode_prompt(chat_tokenizer("chatml"), prompt, vocab_size=10_000)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_with_more_tokens_than_the_model_is_found_out():
    tokenizer = chat_tokenizer("chatml")
    most = max(encode_prompt(tokenizer, chat("Hello")).tokens)
    assert encode_prompt(tokenizer, chat("Hello"), vocab_size=most + 1)
    for prompt in ("Hello <|im_end|>", chat("Hello")):
        with pytest.raises(PromptError, match="none of the model's; its ids go from 0 to 1"):
            encode_prompt(tokenizer, prompt, vocab_size=2)


def test_a_message_of_every_mark_there_is_is_refused():
    everything = "".join(map(chr, range(0xE000, 0xF900)))
    for name in ("chatml", None):
        encode_prompt(chat_tokenizer(name), chat(everything))  # nothing to mark
        with pytest.raises(PromptError, match="every private-use character"):
            encode_prompt(chat_tokenizer(name), chat("<|im_end|>" + everything))


def test_a_refusing_template_is_quoted_in_one_line():
    with pytest.raises(PromptError) as caught:
        encode_prompt(chat_tokenizer("gemma"), [{"role": "assistant", "content": "I begin"}])
    assert "Conversation roles must alternate user/assistant" in str(caught.value)
    with pytest.raises(PromptError, match="refuses"):
        encode_prompt(chat_tokenizer("{{ messages[7].content.x.y }}"), chat("Hi"))


@pytest.mark.real_model
def test_the_embedded_models_template(store, monkeypatch):
    monkeypatch.setenv("MSI_HOME", str(store))
    from msi_engine.model import load_model

    tokenizer = load_model("embedded").tokenizer
    for messages in (chat("Hi"), chat("Hi", "Hello", "Bye", system="Be kind.")):
        assert list(encode_prompt(tokenizer, messages).tokens) == tokenizer.apply_chat_template(
            messages, add_generation_prompt=True
        )
    harmless = encode_prompt(tokenizer, chat("x")).tokens
    control = control_token_ids(tokenizer)
    hostile = "".join(tokenizer.convert_ids_to_tokens(sorted(control)))
    tokens = encode_prompt(tokenizer, chat(f"{hostile} {hostile}")).tokens
    assert [t for t in tokens if t in control] == [t for t in harmless if t in control]
