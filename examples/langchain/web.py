"""A web server that streams answers, sentence by sentence. Runs offline.

pip install "llm-msi[langchain]" starlette uvicorn
uvicorn --app-dir examples/langchain web:app
curl -N "http://127.0.0.1:8000/answer?question=Why+is+the+sky+blue?"

When a client goes away its answer is given up, and the engine is free for the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from langchain_msi import ChatMSI

PROMPT = ChatPromptTemplate.from_messages(
    [("system", "Answer in one or two sentences."), ("human", "{question}")]
)
CHAIN = PROMPT | ChatMSI(k=4, max_tokens=96) | StrOutputParser()


async def answer(request: Request) -> Response:
    """GET /answer?question=..."""
    question = request.query_params.get("question", "").strip()
    if not question:
        return PlainTextResponse("ask something: /answer?question=...\n", status_code=400)

    async def texts() -> AsyncIterator[str]:
        async for text in CHAIN.astream({"question": question}):
            yield text

    return StreamingResponse(texts(), media_type="text/plain; charset=utf-8")


app = Starlette(routes=[Route("/answer", answer)])
