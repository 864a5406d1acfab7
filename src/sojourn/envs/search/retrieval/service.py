"""Any retriever behind Search-R1's `POST /retrieve`, for trainers that know only that (Search-R1, verl, SkyRL).

    {"queries": [str, ...], "topk": int | null, "return_scores": bool}
    -> {"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}    with return_scores
    -> {"result": [[{"id", "contents"}, ...], ...]}                           without

`GET /health` tells the retriever's fingerprint. Errors are RFC 9457 problem documents.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sojourn.envs.search.retrieval.base import Hit, Retriever, RetrieverError
from sojourn.envs.search.retrieval.corpus import join_contents
from sojourn.protocol.errors import BadRequest, BodyTooLarge, ServiceError
from sojourn.protocol.validation import first_problem

logger = logging.getLogger("sojourn.search")

MAX_BODY = 8 << 20
MAX_QUERIES = 1024
MAX_K = 100


class Question(BaseModel):
    """A request; members that other trainers add are left alone."""

    model_config = ConfigDict(extra="ignore", strict=True)

    queries: Annotated[list[str], Field(max_length=MAX_QUERIES)]
    topk: Annotated[int, Field(ge=0, le=MAX_K)] | None = None
    """Null or 0: the server's own."""
    return_scores: bool = False


class _Unreachable(ServiceError):
    status, slug = 502, "retriever-failed"


class _Invalid(BadRequest):
    status, slug = 422, "invalid-request"


def create_app(
    retriever: Retriever, *, topk: int = 3, check: Callable[[str | None], None] = lambda authorization: None
) -> Starlette:
    """The application; it closes the retriever when it ends.

    Args:
        retriever: what answers.
        topk: passages a query, where the request does not say.
        check: looks at the `Authorization` header and raises the `ServiceError` that refuses it.
    """

    async def retrieve(request: Request) -> Response:
        check(request.headers.get("authorization"))
        question = _parse(await _body(request))
        try:
            found = await retriever.search(question.queries, question.topk or topk)
        except RetrieverError as error:
            raise _Unreachable(str(error)) from error
        scored = question.return_scores
        result = [[_document(hit, scored=scored) for hit in hits] for hits in found]
        return Response(orjson.dumps({"result": result}), media_type="application/json")

    async def health(_: Request) -> Response:
        document = {"status": "ok", "fingerprint": retriever.fingerprint()}
        return Response(orjson.dumps(document), media_type="application/json")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await retriever.close()

    return Starlette(
        routes=[Route("/retrieve", retrieve, methods=["POST"]), Route("/health", health)],
        exception_handlers={ServiceError: _problem, HTTPException: _no_route, Exception: _fault},
        lifespan=lifespan,
    )


def _document(hit: Hit, *, scored: bool) -> dict[str, Any]:
    document = {"id": hit.id, "contents": join_contents(hit.title, hit.text)}
    return {"document": document, "score": hit.score} if scored else document


def _parse(body: bytes) -> Question:
    try:
        return Question.model_validate_json(body)
    except ValidationError as error:
        raise _Invalid(first_problem(error)) from error


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise BodyTooLarge(f"the body is over {MAX_BODY} bytes")
    return bytes(body)


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    headers = {"www-authenticate": "Bearer"} if error.status == 401 else None
    return Response(orjson.dumps(error.problem()), error.status, headers, "application/problem+json")


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    failed = ServiceError(f"{request.method} {request.url.path}: {error.detail}; this server knows POST /retrieve")
    document = failed.problem() | {"status": error.status_code, "title": str(error.detail).lower()}
    return Response(orjson.dumps(document), error.status_code, error.headers, "application/problem+json")


async def _fault(_: Request, error: Exception) -> Response:
    logger.error("unexpected error in the retrieval service", exc_info=error)
    document = ServiceError("an unexpected error in the service; its log has more").problem()
    return Response(orjson.dumps(document), 500, None, "application/problem+json")
