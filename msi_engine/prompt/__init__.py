"""From what the caller asks to the tokens that the model is given.

Knows tokenizers and chat templates; nothing of models, paths or options. The text of messages is
kept apart from the template's: whatever a user, a document, a tool or an earlier answer says, it
never becomes a control token. See `encode` for the forms of a prompt and `control` for how that is
done.
"""

from msi_engine.prompt.control import control_token_ids
from msi_engine.prompt.encode import EncodedPrompt, Message, Prompt, encode_prompt, last_question
from msi_engine.prompt.tools import Chat, why_no_tools

__all__ = [
    "Chat",
    "EncodedPrompt",
    "Message",
    "Prompt",
    "control_token_ids",
    "encode_prompt",
    "last_question",
    "why_no_tools",
]
