"""Facts out of a text, as an object that is always valid. Runs offline.

pip install "llm-msi[langchain]"
python examples/langchain/structured.py "We meet on Tuesday at 15:00 to plan the summer party."
"""

from __future__ import annotations

import sys
from typing import Literal

from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable
from pydantic import BaseModel, Field

from langchain_msi import ChatMSI

TEXT = "We meet on Tuesday at 15:00 to plan the summer party."
Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


class Meeting(BaseModel):
    """A date in the calendar. Bounds keep a string from going on for ever."""

    subject: str = Field(max_length=40)
    day: Day
    hour: int = Field(ge=0, le=23)


# The answer is held to the schema, but the model is not shown it: say or show what you want.
PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Write the subject, day and hour of the meeting as JSON."),
        ("human", "We meet on Friday at 12:30 to choose a new logo."),
        ("ai", '{{"subject": "choose a new logo", "day": "Friday", "hour": 12}}'),
        ("human", "On Monday at 9:00 we will test the brakes."),
        ("ai", '{{"subject": "test the brakes", "day": "Monday", "hour": 9}}'),
        ("human", "{text}"),
    ]
)


def make_chain() -> Runnable[dict[str, str], Meeting]:
    """From a text to a meeting. All paths stay within the schema and compete there."""
    return PROMPT | ChatMSI(k=4, max_tokens=96).with_structured_output(Meeting)


def main(text: str) -> None:
    """Print the meeting."""
    meeting = make_chain().invoke({"text": text})
    print(repr(meeting))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or TEXT)
