"""From llm's messages to the engine's."""

import llm
import pytest
from llm.parts import AttachmentPart, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

from llm_msi.messages import ATTACHMENT_TYPES, chat_messages


def attached(**fields):
    return Message(
        role="user",
        parts=[TextPart(text="Sum it up."), AttachmentPart(attachment=llm.Attachment(**fields))],
    )


def test_roles_and_order_are_kept():
    history = [
        llm.system("Be brief."),
        llm.user("My name is Ada."),
        llm.assistant("Hello Ada."),
        llm.user("Who am I?"),
    ]
    assert chat_messages(history) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Hello Ada."},
        {"role": "user", "content": "Who am I?"},
    ]


def test_reasoning_and_tool_calls_stay_out_and_tool_results_are_told():
    history = [
        llm.user("What time is it?"),
        Message(
            role="assistant",
            parts=[
                ReasoningPart(text="[0] 4 paths"),
                ToolCallPart(name="clock", arguments={}, tool_call_id="1"),
            ],
        ),
        Message(role="tool", parts=[ToolResultPart(name="clock", output="noon", tool_call_id="1")]),
    ]
    assert chat_messages(history) == [
        {"role": "user", "content": "What time is it?"},
        {"role": "user", "content": "clock returned: noon\n"},
    ]


def test_an_attachment_is_delimited_named_and_comes_first(tmp_path):
    path = tmp_path / "notes.md"
    path.write_bytes("\ufeffTea is hot.\n".encode())
    (turn,) = chat_messages([attached(type="text/markdown", path=str(path))])
    assert turn["content"] == ('<document name="notes.md">\nTea is hot.\n</document>\n\nSum it up.')


def test_an_attachment_without_a_name_gets_a_number():
    (turn,) = chat_messages([attached(type="text/plain", content=b"Tea.")])
    assert '<document name="document 1">' in turn["content"]


def test_a_name_cannot_break_out_of_its_tag(tmp_path):
    path = tmp_path / 'a".txt'
    path.write_text("Tea.")
    (turn,) = chat_messages([attached(type="text/plain", path=str(path))])
    assert '<document name="a&quot;.txt">' in turn["content"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"type": "image/png", "content": b"\x89PNG"}, "'document 1' is image/png"),
        ({"type": "text/plain", "content": b"\xff\xfe\x00"}, "'document 1' is not UTF-8 text"),
        ({"type": "text/plain", "path": "/nowhere/x.txt"}, "'x.txt' cannot be read"),
    ],
)
def test_what_is_no_text_is_refused_by_name(fields, said):
    with pytest.raises(llm.ModelError) as caught:
        chat_messages([attached(**fields)])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_messages_that_say_nothing_are_left_out():
    assert chat_messages([llm.system(""), llm.user("")]) == []


def test_the_types_that_llm_finds_for_text_are_taken(tmp_path):
    for name, text in [("a.md", "# Tea\n"), ("a.txt", "Tea"), ("a.json", "{}"), ("a.py", "1")]:
        (tmp_path / name).write_text(text)
        assert llm.Attachment(path=str(tmp_path / name)).resolve_type() in ATTACHMENT_TYPES
