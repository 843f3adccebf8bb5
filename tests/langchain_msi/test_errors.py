"""Errors: LangChain's kinds, one line, without the engine's frames; nothing is cut in silence."""

import asyncio
import traceback

import pytest
from langchain_core import exceptions as lc
from langchain_core.messages import HumanMessage

from langchain_msi import MSILLM, ChatMSI
from msi_engine import errors as msi

BOTH = pytest.mark.parametrize("kind", [ChatMSI, MSILLM])


async def asked_in_every_way(llm, prompt, **options):
    """The errors of a call, by each way of calling."""

    async def stream():
        return [part async for part in llm.astream(prompt, **options)]

    async def now(call):
        return call(prompt, **options)

    asked = await asyncio.gather(
        now(llm.invoke),
        now(lambda *given, **also: list(llm.stream(*given, **also))),
        llm.ainvoke(prompt, **options),
        stream(),
        return_exceptions=True,
    )
    assert all(isinstance(error, Exception) for error in asked)
    return asked


@BOTH
@pytest.mark.parametrize(
    ("options", "kinds", "said"),
    [
        ({"k": 0}, (ValueError, msi.ConfigError, lc.ModelInvalidRequestError), "`k`: input"),
        ({"kk": 2}, (ValueError, lc.ModelInvalidRequestError), "unknown option 'kk'"),
        ({"scorers": {"nosuch": 1}}, (ValueError, msi.ConfigError), "nosuch"),
        ({"scorers": {"rag": 1}}, (ValueError, lc.ModelInvalidRequestError), "needs"),
        ({"boundary": ["nosuch"]}, (ValueError, msi.ConfigError), "nosuch"),
        ({"model": "no such model"}, (lc.ModelNotFoundError, msi.ModelNotFoundError), "no such"),
        ({"model": "/nowhere"}, (lc.ModelNotFoundError, msi.ModelError), "/nowhere"),
    ],
)
async def test_what_cannot_work_is_an_error_of_one_line(kind, options, kinds, said, tiny):
    llm = kind(model=tiny, k=2, max_tokens=3)
    for error in await asked_in_every_way(llm, "new", **options):
        assert isinstance(error, kinds[0])
        assert all(isinstance(error, kind) for kind in kinds)
        assert said in str(error)
        assert len(str(error).splitlines()) == 1
        assert "msi_engine" not in trace_of(error)


def trace_of(error):
    """What Python prints, without the last line."""
    return "".join(traceback.format_exception(error)[:-1])


@BOTH
async def test_a_prompt_that_is_too_long_is_refused_and_not_cut(kind, tiny):
    llm = kind(model=tiny, k=2, max_tokens=3)
    for error in await asked_in_every_way(llm, "low " * 300):
        assert isinstance(error, lc.ContextOverflowError)
        assert isinstance(error, (ValueError, msi.PromptTooLongError))
        assert "tokens, and" in str(error)
        assert "reads at most 256" in str(error)


async def test_an_empty_prompt_is_refused(tiny):
    for error in await asked_in_every_way(ChatMSI(model=tiny), [HumanMessage("")]):
        assert isinstance(error, (ValueError, lc.ModelInvalidRequestError))
        assert "the prompt is empty" in str(error)


@BOTH
async def test_a_scorers_error_names_it_and_keeps_its_cause(kind, tiny):
    class Broken:
        def score(self, paths):
            raise KeyError("gone")

    llm = kind(model=tiny, k=2, scorers={"broken": 1}, custom_scorers={"broken": Broken()})
    for error in await asked_in_every_way(llm, "new"):
        assert isinstance(error, msi.ScorerError)
        assert error.scorer_name == "broken"
        assert isinstance(error.__cause__, KeyError)


@BOTH
async def test_an_answer_that_takes_too_long_is_given_up(kind, tiny):
    llm = kind(model=tiny, k=2, max_tokens=200, timeout=1e-6)
    for error in await asked_in_every_way(llm, "new"):
        assert isinstance(error, lc.ModelTimeoutError)
        assert str(error) == "the answer was not finished within timeout = 1e-06 s"
    assert kind(model=tiny, max_tokens=3, timeout=3600).invoke("new")


def test_an_answer_that_was_cut_off_says_so(tiny):
    cut = ChatMSI(model=tiny, k=1, max_tokens=4).invoke("new")
    assert cut.response_metadata["finish_reason"] == "length"
    assert cut.usage_metadata["output_tokens"] == 4
    last = list(ChatMSI(model=tiny, k=1, max_tokens=4).stream("new"))[-1]
    assert last.response_metadata["finish_reason"] == "length"
    stop = cut.content[1:2]
    stopped = ChatMSI(model=tiny, k=1, max_tokens=4, stop=[stop]).invoke("new")
    assert stopped.response_metadata["finish_reason"] == "stop"
    assert stopped.response_metadata["ended_by"] == "stop"


def test_fallbacks_catch_langchains_kinds(tiny):
    chain = ChatMSI(model="no such model").with_fallbacks(
        [ChatMSI(model=tiny, max_tokens=3)], exceptions_to_handle=(lc.ModelError,)
    )
    assert chain.invoke("new").response_metadata["model_name"] == tiny
