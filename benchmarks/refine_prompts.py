"""Fifty prompts of many kinds: prose, code, lists, questions, dialogue, four languages."""

from __future__ import annotations

from tests.reference.real import PROMPTS as VARIED

_OPENINGS = (
    "The history of the bicycle begins in",
    "To bake a simple loaf of bread, first",
    "Photosynthesis is the process by which",
    "The three laws of motion state that",
    "When the train finally arrived, the old man",
    "import json\n\n\ndef read_config(path):\n    ",
    "class Stack:\n    def __init__(self):\n        ",
    "A list of the planets in order from the sun:\n1.",
    "The letter was dated 4 June 1851 and began:",
    "In the second quarter, the company's revenue",
    "Roses are red,\nviolets are",
    "The mountain path was narrow, and",
    "Question: What is the largest ocean?\nAnswer:",
    "Economists use the word inflation for",
    "She opened the box and found",
)
_QUESTIONS = (
    "Explain in two sentences how a vaccine works.",
    "What are the main causes of the First World War?",
    "Give me three tips for learning a language.",
    "Write a short poem about the sea.",
    "What is 17 times 6? Show your steps.",
    "Summarise the plot of Romeo and Juliet.",
    "How do I reverse a list in Python?",
    "Why do leaves change their colour in autumn?",
    "Write a polite e-mail that declines an invitation.",
    "What should I see in Rome in two days?",
    "Explain the difference between weather and climate.",
    "Who was Marie Curie?",
    "Name five animals that live in the desert.",
    "Translate into French: The cat sleeps on the chair.",
    "Tell me a story about a robot who learns to paint.",
)


def _asked(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def _alternating() -> tuple[str, ...]:
    new = [p for pair in zip(_OPENINGS, map(_asked, _QUESTIONS), strict=True) for p in pair]
    mixed = [p for pair in zip(VARIED, new, strict=False) for p in pair]
    return (*mixed, *new[len(VARIED) :])


PROMPTS = _alternating()
"""In an order in which the first few are of every kind, for runs that are cut short."""
