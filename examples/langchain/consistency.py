"""Ask several times, and take the answer that most agree on. Runs offline.

pip install "llm-msi[langchain]"
python examples/langchain/consistency.py "A box holds 4 pens. How many pens are in 3 boxes?"
"""

from __future__ import annotations

import sys

from langchain_core.prompts import ChatPromptTemplate

from langchain_msi import ChatMSI, MajorityVote, Samples, last_number

QUESTION = "A box holds 4 pens. How many pens are in 3 boxes?"
PROMPT = ChatPromptTemplate.from_messages(
    [("system", "Think step by step. End with the number."), ("human", "{question}")]
)


def main(question: str, n: int = 5, max_tokens: int = 96) -> None:
    """Print the votes and an answer of the majority."""
    # One path and a temperature: here the answers compete, not the sentences.
    llm = ChatMSI(k=1, temperature=0.7, max_tokens=max_tokens)
    answers = Samples(runnable=PROMPT | llm, n=n, seed=0).invoke({"question": question})
    verdict = MajorityVote(key=last_number).verdict(answers)
    for vote in verdict.votes:
        print(f"{vote.key}: {vote.count} of {n}")
    print(verdict.answer.text)
    # In one step: self_consistency(PROMPT | llm, n=5, choose=MajorityVote(key=last_number))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or QUESTION)
