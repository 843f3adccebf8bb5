"""Tiny models whose templates know tools, and which say what a test has written for them."""

from __future__ import annotations

import json

from msi_engine import Engine
from tests.engine.test_prompt_tools import HERMES
from tests.model.conftest import WORDS, write_tokenizer, write_weights

# As LFM2 has it: the marks are special tokens, which have no text in other answers.
PYTHONIC = (
    "{% if tools %}<|im_start|>system\n<|tool_list_start|>{{ tools | tojson }}<|tool_list_end|>"
    "<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>'

_MARKS = {
    HERMES: ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
    PYTHONIC: [
        "<|tool_list_start|>",
        "<|tool_list_end|>",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
    ],
}


def write_tool_model(folder, template=HERMES):
    """Write a random model of two layers into a folder that is there; its name is returned."""
    marks, special = _MARKS[template], template == PYTHONIC
    write_tokenizer(folder, WORDS, template)
    state = json.loads((folder / "tokenizer.json").read_text())
    size = max(state["model"]["vocab"].values()) + 1
    size = max(size, *(t["id"] + 1 for t in state["added_tokens"]))
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    for number, mark in enumerate(marks):
        token = {"id": size + number, "content": mark, "special": special, **flags}
        state["added_tokens"].append(token)
    (folder / "tokenizer.json").write_text(json.dumps(state))
    write_weights(folder, size + len(marks), 5)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 8192
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def scripted(monkeypatch):
    """A function that makes each generation say the next text and end, and the last for good."""
    import mlx.core as mx

    def script(name, *texts):
        tokenizer = Engine.load(name).tokenizer
        left = [tokenizer.encode(text, add_special_tokens=False) for text in texts]

        def forced():
            tokens = [*(left.pop(0) if len(left) > 1 else left[0]), tokenizer.eos_token_id]
            beginning = []

            def process(history, logits):
                beginning.append(history.size) if not beginning else None
                token = tokens[min(history.size - beginning[0], len(tokens) - 1)]
                allowed = mx.arange(logits.shape[-1]) == token
                return mx.where(allowed[None], logits, -mx.inf)

            return process

        for name in ("stream", "astream"):
            method = getattr(Engine, name)

            def with_script(self, prompt, *arguments, method=method, **options):
                return method(self, prompt, *arguments, logits_processors=[forced()], **options)

            monkeypatch.setattr(Engine, name, with_script)

    return script


def told_prompts(monkeypatch):
    """Every prompt that a model is given from now on, as text and tokens."""
    from msi_engine import session

    seen, encode = [], session.encode_prompt

    def noted(*args, **options):
        seen.append(encode(*args, **options))
        return seen[-1]

    monkeypatch.setattr(session, "encode_prompt", noted)
    return seen
