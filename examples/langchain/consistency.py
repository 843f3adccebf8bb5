"""Ask several times, and take the answer that most agree on. Runs offline.

pip install "llm-msi[langchain]"
python examples/langchain/consistency.py "What is the capital of Japan?"
"""

from __future__ import annotations

import sys

from langchain_core.prompts import ChatPromptTemplate

from langchain_msi import ChatMSI, MajorityVote, Samples

QUESTION = "What is the capital of Japan?"
PROMPT = ChatPromptTemplate.from_messages([("human", "{question} Answer with one word.")])


def main(question: str, n: int = 5, max_tokens: int = 24) -> None:
    """Print the votes and an answer of the majority."""
    # One path and a temperature: here the answers compete, not the sentences.
    llm = ChatMSI(k=1, temperature=0.7, max_tokens=max_tokens)
    answers = Samples(runnable=PROMPT | llm, n=n, seed=0).invoke({"question": question})
    verdict = MajorityVote().verdict(answers)  # for sums: key=langchain_msi.last_number
    for vote in verdict.votes:
        print(f"{vote.key}: {vote.count} of {n}")
    print(verdict.answer.text)
    # In one step: self_consistency(PROMPT | llm, n=5)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or QUESTION)
