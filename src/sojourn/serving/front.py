"""One address for several workers. Clients that ask `/v1/workers` go straight to them; everybody else is forwarded."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from sojourn.protocol.errors import BadGateway, BadRequest, NotFound, ServiceError, TooMany
from sojourn.serving.auth import Access, Guard
from sojourn.serving.config import ServingConfig
from sojourn.serving.dialects import no_route
from sojourn.serving.dialects.forwarding import forwarding_routes
from sojourn.serving.http import Handler, answered, json_response, problem_response, read_body
from sojourn.serving.metrics import CONTENT_TYPE, merge
from sojourn.serving.openapi import document
from sojourn.serving.requests import StepItem, StepsBody, parse_body

_PASSED_ON = {b"authorization", b"content-type", b"idempotency-key", b"accept"}
_PASSED_BACK = {"content-type", "retry-after", "www-authenticate", "sojourn-env", "allow"}
_KEYS = 8192


@dataclass(slots=True, eq=False)
class WorkerView:
    """What the front knows of a worker."""

    name: str
    url: str
    """Its address on this machine."""
    port: int
    capacity: int
    id: str = ""
    """Name and generation: the prefix of its session ids."""
    pid: int = 0
    alive: bool = False
    sessions: int = 0
    seen: float = field(default_factory=time.monotonic)

    def started(self, worker_id: str, pid: int) -> None:
        self.id, self.pid, self.alive, self.sessions, self.seen = worker_id, pid, True, 0, time.monotonic()

    def answered(self, sessions: int) -> None:
        self.sessions, self.seen = sessions, time.monotonic()


class _Share(NamedTuple):
    """One worker's part of a batch."""

    worker: WorkerView
    places: list[int]
    """Where its items stand in the whole request."""
    items: list[dict[str, Any]]


class Front:
    """The supervisor's HTTP side."""

    def __init__(self, workers: list[WorkerView], config: ServingConfig, http: httpx.AsyncClient) -> None:
        self.workers = workers
        self._config = config
        self._http = http
        self._guard = Guard(config)
        self._placed: OrderedDict[str, WorkerView] = OrderedDict()
        """Where a create with an idempotency key went, so that its retry goes there too."""

    def app(self) -> Starlette:
        """The front as an ASGI application."""
        return Starlette(
            routes=[
                *forwarding_routes(self, self._config),
                Route("/health", self._open(self._health), methods=["GET"]),
                Route("/ready", self._open(self._ready), methods=["GET"]),
                Route("/openapi.json", self._open(self._openapi), methods=["GET"]),
                Route("/metrics", self._guarded(self._metrics), methods=["GET"]),
                Route("/v1/workers", self._guarded(self._list), methods=["GET"]),
                Route("/v1/sessions", self._guarded(self._create), methods=["POST"]),
                Route("/v1/steps", self._guarded(self._steps, Access.STEP), methods=["POST"]),
                Route("/v1/snapshots/{digest}", self._guarded(self._download), methods=["GET"]),
                Route("/v1/snapshots/{digest}", self._guarded(self._upload), methods=["PUT"]),
                Route("/v1/sessions/{id}{rest:path}", self._open(self._session), methods=["GET", "POST", "DELETE"]),
                Route("/v1/{rest:path}", self._open(self._any_worker), methods=["GET"]),
            ],
            exception_handlers={HTTPException: no_route(self._config.dialects), ServiceError: _service_problem},
        )

    def _guarded(self, handler: Handler, access: Access = Access.CONTROL) -> Handler:
        async def guarded(request: Request) -> Response:
            self._guard.check(access, request.headers.get("authorization"))
            return await handler(request)

        return self._open(guarded)

    def _open(self, handler: Handler) -> Handler:
        """For everybody, or for whom the worker lets in."""

        async def endpoint(request: Request) -> Response:
            return await answered(handler, request)

        return endpoint

    async def _health(self, _: Request) -> Response:
        return json_response(b'{"status":"ok"}')

    async def _ready(self, _: Request) -> Response:
        if all(worker.alive for worker in self.workers):
            return json_response(b'{"status":"ready"}')
        return json_response(b'{"status":"not ready"}', 503)

    async def _openapi(self, _: Request) -> Response:
        return json_response(orjson.dumps(document()))

    async def _list(self, request: Request) -> Response:
        # The host by which the client reached us, for it may not know us by the one we listen on.
        host = request.url.hostname or "127.0.0.1"
        host = f"[{host}]" if ":" in host else host
        workers = [
            {
                "id": worker.id,
                "url": f"http://{host}:{worker.port}",
                "alive": worker.alive,
                "sessions": worker.sessions,
                "max_sessions": worker.capacity,
                "pid": worker.pid,
            }
            for worker in self.workers
        ]
        return json_response(orjson.dumps({"workers": workers}))

    async def _metrics(self, request: Request) -> Response:
        async def ask(worker: WorkerView) -> str:
            reply = await self._http.get(f"{worker.url}/metrics", headers=_headers(request))
            return reply.text

        texts = await asyncio.gather(*(ask(worker) for worker in self.live()), return_exceptions=True)
        return Response(merge([text for text in texts if isinstance(text, str)]), media_type=CONTENT_TYPE)

    # -- placing ---------------------------------------------------------------------------------------------------

    async def _create(self, request: Request) -> Response:
        """To the worker with the most room, or the one that holds the snapshot; the next when one is full."""
        body = await read_body(request, self._config.max_body_bytes)
        key = request.headers.get("idempotency-key")
        known = self._placed.get(key) if key else None
        candidates = [known] if known is not None else await self._candidates(request, body)
        response = problem_response(TooMany("no worker can open a session now", retry_after=self._config.retry_after_s))
        for worker in candidates:
            if key:
                self._place(key, worker)
            # Counted before the reply, so that a burst of creates is spread; the next probe sets it right.
            worker.sessions += 1
            response = await self.forward(request, worker, body)
            if response.status_code != 429:
                return response
        if key:
            # It is nowhere: a retry may find room elsewhere.
            self._placed.pop(key, None)
        return response

    async def _candidates(self, request: Request, body: bytes) -> list[WorkerView]:
        by_load = self.live()
        digest = _snapshot_of(body)
        if digest is None:
            return by_load
        holder = await self._holder(request, digest)
        return [holder] if holder is not None else by_load[:1]

    def _place(self, key: str, worker: WorkerView) -> None:
        self._placed[key] = worker
        while len(self._placed) > _KEYS:
            self._placed.popitem(last=False)

    # -- snapshots -------------------------------------------------------------------------------------------------

    async def _download(self, request: Request) -> Response:
        digest = request.path_params["digest"]
        holder = await self._holder(request, digest) if _is_digest(digest) else None
        return await self.forward(request, holder or self.live()[0])

    async def _upload(self, request: Request) -> Response:
        body = await read_body(request, self._config.max_snapshot_bytes)
        workers = [worker for worker in self.workers if worker.alive] or self.workers
        return await self.forward(request, workers[hash(request.path_params["digest"]) % len(workers)], body)

    async def _holder(self, request: Request, digest: str) -> WorkerView | None:
        """Who has a snapshot, or else who had it and knows that it was evicted; None when nobody has met it."""

        async def status(worker: WorkerView) -> int:
            url = f"{worker.url}/v1/snapshots/{digest}"
            try:
                async with self._http.stream("GET", url, headers=_headers(request)) as reply:
                    return reply.status_code
            except httpx.TransportError:
                return 0

        workers = self.live()
        found = dict(zip(await asyncio.gather(*map(status, workers)), workers, strict=True))
        return found.get(200) or found.get(410)

    # -- forwarding ------------------------------------------------------------------------------------------------

    async def _session(self, request: Request) -> Response:
        limit = self._config.max_body_bytes
        return await self.forward(request, self.owner(request.path_params["id"]), await read_body(request, limit))

    async def _any_worker(self, request: Request) -> Response:
        return await self.forward(request, self.live()[0])

    async def _steps(self, request: Request) -> Response:
        """Each item to its session's worker, the answers merged as they come."""
        items = parse_body(StepsBody, await read_body(request, self._config.max_body_bytes)).items
        if len(items) > self._config.max_batch:
            raise BadRequest(f"items: at most {self._config.max_batch} steps in one request")
        lines = _merge_lines([self._answers(request, share) for share in self._share(items)])
        return StreamingResponse(lines, media_type="application/x-ndjson")

    def _share(self, items: list[StepItem]) -> list[_Share]:
        """Items by worker, with their places in the request. Whose session is nobody's, any worker may refuse."""
        shares: dict[int, _Share] = {}
        stranger = self.live()[0]
        for place, item in enumerate(items):
            owner = self._named(item.id) or stranger
            share = shares.setdefault(id(owner), _Share(owner, [], []))
            share.places.append(place)
            share.items.append(item.model_dump())
        return list(shares.values())

    async def _answers(self, request: Request, share: _Share) -> AsyncIterator[bytes]:
        rest = b""
        url, content = f"{share.worker.url}/v1/steps", orjson.dumps({"items": share.items})
        async with self._http.stream("POST", url, content=content, headers=_headers(request)) as reply:
            if reply.status_code != 200:
                return
            async for chunk in reply.aiter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    answer = orjson.loads(line)
                    answer["index"] = share.places[answer["index"]]
                    yield orjson.dumps(answer) + b"\n"

    async def forward(self, request: Request, worker: WorkerView, body: bytes | None = None) -> Response:
        """The worker's answer to a request, as it is."""
        url = httpx.URL(worker.url).copy_with(raw_path=_raw_path(request))
        sent = self._http.build_request(request.method, url, headers=_headers(request), content=body)
        try:
            reply = await self._http.send(sent)
        except httpx.TransportError as error:
            raise BadGateway(f"worker {worker.id} did not answer: {type(error).__name__}") from error
        headers = {name: value for name, value in reply.headers.items() if name in _PASSED_BACK}
        return Response(reply.content, reply.status_code, headers)

    def owner(self, session_id: str) -> WorkerView:
        """The worker that a session's id names; raises `NotFound`."""
        found = self._named(session_id)
        if found is None:
            raise NotFound("no such session")
        return found

    def _named(self, session_id: str) -> WorkerView | None:
        name = session_id.partition(".")[0].rpartition("-")[0]
        return next((worker for worker in self.workers if worker.name == name), None)

    def live(self) -> list[WorkerView]:
        """The workers that run, the emptiest first; all of them while none does."""
        return sorted([worker for worker in self.workers if worker.alive] or self.workers, key=lambda w: w.sessions)


async def _merge_lines(sources: list[AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def pump(source: AsyncIterator[bytes]) -> None:
        try:
            async for line in source:
                await queue.put(line)
        except httpx.TransportError:
            # The worker's items stay without an answer, which their client sees and asks again.
            return
        finally:
            await queue.put(None)

    pumps = [asyncio.create_task(pump(source)) for source in sources]
    try:
        left = len(pumps)
        while left:
            line = await queue.get()
            if line is None:
                left -= 1
            else:
                yield line
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _service_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return problem_response(error)


def _snapshot_of(body: bytes) -> str | None:
    try:
        digest = orjson.loads(body).get("snapshot")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return digest if isinstance(digest, str) and _is_digest(digest) else None


def _is_digest(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    """As bytes, which the worker may judge: not every header is text."""
    return [(name, value) for name, value in request.headers.raw if name in _PASSED_ON]


def _raw_path(request: Request) -> bytes:
    path: bytes = request.scope.get("raw_path") or request.url.path.encode()
    query: bytes = request.scope.get("query_string", b"")
    return path + b"?" + query if query else path
