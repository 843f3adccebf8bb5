"""A chat that remembers what was said. Runs offline; end it with an empty line.

pip install "llm-msi[langchain]"
python examples/langchain/chat.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, trim_messages

from langchain_msi import ChatMSI

SYSTEM = SystemMessage("You are a friendly assistant. Answer in one sentence.")


class Conversation:
    """What was said so far, and the model that goes on with it."""

    def __init__(self, llm: ChatMSI, most_tokens: int = 1500) -> None:
        self.llm = llm
        self.messages: list[BaseMessage] = [SYSTEM]
        # A prompt that is too long for the model is refused, never cut: old turns go first.
        self.shorten = trim_messages(
            max_tokens=most_tokens,
            token_counter=llm,
            include_system=True,
            start_on="human",
        )

    def ask(self, question: str) -> Iterator[str]:
        """The answer, sentence by sentence."""
        self.messages.append(HumanMessage(question))
        answer = None
        for chunk in self.llm.stream(self.shorten.invoke(self.messages)):
            yield str(chunk.text)
            answer = chunk if answer is None else answer + chunk
        if answer is not None:
            self.messages.append(answer)


def main(questions: Iterable[str] = sys.stdin) -> None:
    """Answer line by line."""
    conversation = Conversation(ChatMSI(k=4, max_tokens=64))
    for question in questions:
        if not question.strip():
            break
        for text in conversation.ask(question.strip()):
            print(text, end="", flush=True)
        print()


if __name__ == "__main__":
    main()
