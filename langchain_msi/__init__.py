"""LangChain's surface: `ChatMSI`, `MSILLM`, and documents that reach the scorers."""

from __future__ import annotations

from langchain_msi.chat_models import ChatMSI
from langchain_msi.evidence import grounded
from langchain_msi.llms import MSILLM

__all__ = ["MSILLM", "ChatMSI", "grounded"]
