"""LangChain's surface: `ChatMSI`, `MSILLM`, and documents that reach the scorers."""

from __future__ import annotations

from langchain_msi.chat_models import ChatMSI
from langchain_msi.consistency import (
    MajorityVote,
    MinimumBayesRisk,
    last_number,
    normalized_text,
    self_consistency,
)
from langchain_msi.embeddings import MSIEmbeddings
from langchain_msi.evidence import grounded
from langchain_msi.llms import MSILLM
from langchain_msi.rerank import Rerank
from langchain_msi.samples import Samples

__all__ = [
    "MSILLM",
    "ChatMSI",
    "MSIEmbeddings",
    "MajorityVote",
    "MinimumBayesRisk",
    "Rerank",
    "Samples",
    "grounded",
    "last_number",
    "normalized_text",
    "self_consistency",
]
