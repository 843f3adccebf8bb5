"""Re-ranking with every shape of cross-encoder, against a plain sort."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_msi.rerank import Rerank
from msi_engine.errors import ConfigError


def shared_words(pair):
    query, text = pair
    return float(len(set(query.split()) & set(text.split())))


class Overlap(BaseCrossEncoder):
    """LangChain's interface."""

    def __init__(self):
        self.calls = []

    def score(self, text_pairs):
        self.calls.append(list(text_pairs))
        return [shared_words(pair) for pair in text_pairs]


class Predicts:
    """sentence-transformers' interface: an array, with one column if asked for logits."""

    def __init__(self, column=False):
        self.column = column

    def predict(self, pairs):
        scores = np.array([shared_words(pair) for pair in pairs], dtype=np.float32)
        return scores[:, None] if self.column else scores


TEXTS = st.lists(st.text("ab ", max_size=8), max_size=8)


@pytest.mark.parametrize("encoder", [Overlap(), Predicts(), Predicts(column=True)])
@given(texts=TEXTS, query=st.text("ab ", max_size=4), top_n=st.none() | st.integers(1, 9))
def test_it_is_a_stable_sort_by_score(encoder, texts, query, top_n):
    expected = sorted(texts, key=lambda t: -shared_words((query, t)))[:top_n]
    rerank = Rerank(encoder=encoder, top_n=top_n)
    assert rerank.invoke({"query": query, "candidates": texts}) == expected
    for ranked in rerank.rank(query, texts):
        assert texts[ranked.index] == ranked.candidate
        assert ranked.score == shared_words((query, ranked.candidate))


def test_the_encoder_is_called_once_with_query_and_text_of_each():
    encoder = Overlap()
    candidates = ["one", AIMessage("two"), Document("three"), {"a": 1}]
    Rerank(encoder=encoder).invoke({"query": "q", "candidates": candidates})
    assert encoder.calls == [[("q", "one"), ("q", "two"), ("q", "three"), ("q", '{"a": 1}')]]


def test_scores_are_in_the_metadata_of_copies():
    document = Document("red fox", metadata={"source": "a.md"}, id="7")
    message = AIMessage("red", response_metadata={"model_name": "m"})
    best = Rerank(encoder=Overlap()).invoke({"query": "red fox", "candidates": [message, document]})
    assert best[0] == Document(
        "red fox", metadata={"source": "a.md", "relevance_score": 2.0}, id="7"
    )
    assert best[1].response_metadata == {"model_name": "m", "relevance_score": 1.0}
    assert document.metadata == {"source": "a.md"}
    assert message.response_metadata == {"model_name": "m"}


def test_it_is_the_last_step_of_a_chain_with_keys_of_its_own():
    drafts = RunnableLambda(lambda q: {"question": q, "drafts": ["no", f"{q} yes", "maybe"]})
    chain = drafts | Rerank(
        encoder=Overlap(), top_n=1, query_key="question", candidates_key="drafts"
    )
    assert chain.invoke("why") == ["why yes"]
    assert chain.batch(["why", "how"]) == [["why yes"], ["how yes"]]


def test_the_event_loop_is_not_blocked_by_the_encoder():
    threads = []

    class Where(Overlap):
        def score(self, text_pairs):
            threads.append(threading.current_thread())
            return super().score(text_pairs)

    value = {"query": "a", "candidates": ["b", "a"]}
    assert asyncio.run(Rerank(encoder=Where()).ainvoke(value)) == ["a", "b"]
    assert threads != [threading.main_thread()]


def test_no_candidates_are_an_empty_list_and_no_call():
    encoder = Overlap()
    assert Rerank(encoder=encoder).invoke({"query": "q", "candidates": []}) == []
    assert encoder.calls == []


@pytest.mark.parametrize(
    "scores", [[1.0], [1.0, float("nan")], np.ones((2, 3)), [[1.0, 2.0], [3.0, 4.0]]]
)
def test_scores_that_cannot_rank_are_refused(scores):
    class Broken:
        def score(self, pairs):
            return scores

    with pytest.raises(ConfigError, match="one finite score for each of 2 pairs"):
        Rerank(encoder=Broken()).invoke({"query": "q", "candidates": ["a", "b"]})


def test_what_cannot_be_used_is_named():
    with pytest.raises(ValueError, match=r"score\(pairs\) or predict\(pairs\), .*got object"):
        Rerank(encoder=object())
    with pytest.raises(ConfigError, match="needs 'candidates' in its input, which has 'query', 2"):
        Rerank(encoder=Overlap()).invoke({"query": "q", 2: "two"})
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Rerank(encoder=Overlap(), top_n=0)
