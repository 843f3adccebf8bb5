"""Acceptance: chains in the usual style, in which only the line of the model is changed.

The first puts a question so that it stands alone, retrieves, answers with the history in the
prompt, and parses; the second is of the older kind, with a text prompt. Both are first run with
another chat model.
"""

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_msi import MSILLM, ChatMSI
from tests.langchain_msi.toys import ToyEmbeddings

# The usual style, which newer versions of LangChain would have put otherwise.
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated")

FACTS = [
    "Honey bees eat nectar and pollen.",
    "The Moon makes the tides of the sea.",
    "Bread is made of flour, water, salt and yeast.",
]


def text_of(documents):
    return "\n".join(document.page_content for document in documents)


def chat_chain(model, retriever):
    llm = model(temperature=0, max_tokens=4, timeout=60, max_retries=2, api_key="unused")
    place = MessagesPlaceholder("history")
    alone = ChatPromptTemplate.from_messages(
        [place, ("human", "Put this question so that it stands alone: {question}")]
    )
    prompt = ChatPromptTemplate.from_messages(
        [
            ("system", "Answer in one short sentence, from this context:\n\n{context}"),
            place,
            ("human", "{question}"),
        ]
    )
    return (
        RunnablePassthrough.assign(alone=alone | llm | StrOutputParser())
        | RunnablePassthrough.assign(context=lambda d: text_of(retriever.invoke(d["question"])))
        | prompt
        | llm
        | StrOutputParser()
    )


def text_chain(model, retriever):
    llm = model(temperature=0, max_tokens=4)
    prompt = PromptTemplate.from_template(
        "Context:\n{context}\n\n{history}\nQuestion: {question}\nAnswer:"
    )
    return (
        RunnablePassthrough.assign(context=lambda d: text_of(retriever.invoke(d["question"])))
        | prompt
        | llm
        | StrOutputParser()
    )


def fake(**_):
    return FakeListChatModel(responses=["Bees eat nectar."])


def with_history(chain, model):
    """A chain, its retriever and its histories, as an application puts them together."""
    histories = {}
    store = InMemoryVectorStore.from_texts(FACTS, ToyEmbeddings())
    whole = RunnableWithMessageHistory(
        chain(model, store.as_retriever(search_kwargs={"k": 1})),
        lambda session: histories.setdefault(session, InMemoryChatMessageHistory()),
        input_messages_key="question",
        history_messages_key="history",
    )
    return whole, histories


QUESTIONS = ["What do honey bees eat?", "And what makes the tides?"]


def talk(chain):
    config = {"configurable": {"session_id": "ada"}}
    first = chain.invoke({"question": QUESTIONS[0]}, config)
    second = "".join(chain.stream({"question": QUESTIONS[1]}, config))
    return [first, second]


def check(answers, histories):
    assert all(answers)
    told = [message.content for message in histories["ada"].messages]
    assert told == [QUESTIONS[0], answers[0], QUESTIONS[1], answers[1]]


@pytest.mark.parametrize("chain", [chat_chain, text_chain])
def test_the_chain_runs_with_another_model(chain):
    whole, histories = with_history(chain, fake)
    check(talk(whole), histories)


# What the chains should ask, the first time.
MESSAGES = [
    ("system", f"Answer in one short sentence, from this context:\n\n{FACTS[0]}"),
    ("human", QUESTIONS[0]),
]
TEXT = f"Context:\n{FACTS[0]}\n\n[]\nQuestion: {QUESTIONS[0]}\nAnswer:"


def text_of_answer(answer):
    return getattr(answer, "content", answer)


@pytest.mark.real_model
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("chain", "model", "prompt"),
    [(chat_chain, ChatMSI, MESSAGES), (text_chain, MSILLM, TEXT), (text_chain, ChatMSI, TEXT)],
    ids=["chat", "text", "text on a chat model"],
)
async def test_the_chain_runs_with_the_models_line_changed(chain, model, prompt):
    whole, histories = with_history(chain, model)
    answers = talk(whole)
    check(answers, histories)
    assert answers[0] == text_of_answer(model(temperature=0, max_tokens=4).invoke(prompt))
    config = {"configurable": {"session_id": "eve"}}
    assert await whole.ainvoke({"question": QUESTIONS[0]}, config) == answers[0]
    parts = [part async for part in whole.astream({"question": QUESTIONS[1]}, config)]
    assert "".join(parts) == answers[1]
