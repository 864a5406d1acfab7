"""The dialects at a single address of several workers: each request goes to the worker whose session it is about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sojourn.protocol.errors import NotFound
from sojourn.serving.config import ServingConfig
from sojourn.serving.dialects.agentgym_worlds import KINDS
from sojourn.serving.dialects.openenv_socket import IN_ORDER
from sojourn.serving.http import read_body

_GOING_AWAY = 1001
_AGENTGYM = ("", "create", "step", "reset", "close", *sorted({verb for kind in KINDS for verb in kind.verbs()}))
_OPENENV = ("reset", "step", "state", "mcp", "schema", "metadata", "openapi.json", "health")


class Worker(Protocol):
    """What has to be known of a worker."""

    url: str
    sessions: int


class Front(Protocol):
    """The front, as far as the dialects need it."""

    @property
    def workers(self) -> Sequence[Worker]:
        """All of them by number, the dead included."""

    def live(self) -> Sequence[Worker]:
        """Those that answer, the emptiest first."""

    def owner(self, session_id: str) -> Worker:
        """The worker of a session; raises `NotFound`."""

    async def forward(self, request: Request, worker: Any, body: bytes | None = None) -> Response:
        """The worker's answer."""


def forwarding_routes(front: Front, config: ServingConfig) -> list[BaseRoute]:
    """The front's routes for the dialects, those at the root path first. Access is checked by the workers."""
    forwarding = _Forwarding(front, config)
    found: list[BaseRoute] = []
    if config.dialects.root == "agentgym":
        found += [forwarding.route(f"/{verb}", forwarding.agentgym) for verb in _AGENTGYM]
    elif config.dialects.root == "openenv":
        found += [forwarding.route(f"/{verb}", forwarding.openenv) for verb in _OPENENV]
        found.append(WebSocketRoute("/ws", forwarding.socket))
    return [
        *found,
        forwarding.route("/agentgym/{rest:path}", forwarding.agentgym),
        WebSocketRoute("/openenv/{env}/ws", forwarding.socket),
        forwarding.route("/openenv/{rest:path}", forwarding.openenv),
    ]


class _Forwarding:
    def __init__(self, front: Front, config: ServingConfig) -> None:
        self._front = front
        self._config = config

    def route(self, path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
        return Route(path, handler, methods=["GET", "POST"])

    async def agentgym(self, request: Request) -> Response:
        """By the integer id, which leaves its worker's number when divided by their count.

        SearchQA calls it `env_idx`, and `id` what its `create` and `reset` are to ask.
        """
        body = await read_body(request, self._config.max_body_bytes)
        creates = request.url.path.endswith("/create")
        number = _named(request, body, "env_idx")
        if number is None and not creates:
            number = _named(request, body, "id")
        if number is None:
            return await self._anywhere(request, body, counts=creates)
        workers = self._front.workers
        try:
            owner = workers[int(number) % len(workers)]
        except (ValueError, TypeError, OverflowError):
            owner = workers[0]
        return await self._front.forward(request, owner, body)

    async def openenv(self, request: Request) -> Response:
        """By the session that `episode_id` names."""
        body = await read_body(request, self._config.max_body_bytes)
        session = _named(request, body, "episode_id")
        try:
            owner = None if session is None else self._front.owner(str(session))
        except NotFound:
            owner = None
        if owner is None:
            return await self._anywhere(request, body, counts=request.url.path.endswith("/reset"))
        return await self._front.forward(request, owner, body)

    async def socket(self, websocket: WebSocket) -> None:
        """Both ways between a client and the worker of its session, or the emptiest one."""
        session = websocket.query_params.get("session_id")
        try:
            owner = self._front.live()[0] if session is None else self._front.owner(session)
        except NotFound:
            owner = self._front.live()[0]
        if session is None:
            # Where there will be one: counted as `_anywhere` does, so that a burst of sockets is spread.
            owner.sessions += 1
        query = f"?{websocket.url.query}" if websocket.url.query else ""
        url = f"ws{owner.url.removeprefix('http')}{websocket.url.path}{query}"
        authorization = websocket.headers.get("authorization")
        headers = {"authorization": authorization} if authorization else {}
        try:
            async with connect(url, additional_headers=headers, proxy=None, max_size=None) as upstream:
                await websocket.accept()
                await _relay(websocket, upstream)
        except InvalidStatus as refused:
            reply = refused.response
            kind = reply.headers.get("content-type")
            await websocket.send_denial_response(Response(reply.body, reply.status_code, media_type=kind))
        except OSError:
            if websocket.application_state is WebSocketState.CONNECTING:
                await websocket.send_denial_response(Response("the worker did not answer", 502))

    async def _anywhere(self, request: Request, body: bytes, *, counts: bool) -> Response:
        """To the emptiest worker; where a session is opened, to the next while one is full."""
        response = Response(status_code=503)
        for worker in self._front.live():
            if counts:
                worker.sessions += 1
            response = await self._front.forward(request, worker, body)
            if not (counts and response.status_code == 429):
                break
        return response


async def _relay(websocket: WebSocket, upstream: ClientConnection) -> None:
    async def up() -> None:
        try:
            while True:
                await upstream.send(await websocket.receive_text())
        except WebSocketDisconnect as left:
            # A connection that broke has a code that may not be sent; what is told must not be a close in order.
            await upstream.close(IN_ORDER if left.code == IN_ORDER else _GOING_AWAY)
        except (KeyError, ConnectionClosed):
            return

    async def down() -> None:
        with suppress(ConnectionClosed, WebSocketDisconnect, RuntimeError):
            async for message in upstream:
                await websocket.send_text(message if isinstance(message, str) else message.decode())

    sender = asyncio.create_task(up())
    try:
        await down()
        if websocket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect, RuntimeError):
                await websocket.close(upstream.close_code or _GOING_AWAY)
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)


def _named(request: Request, body: bytes, field: str) -> Any:
    """A field of the query or of the body; None where neither has it."""
    if request.method == "GET":
        return request.query_params.get(field)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document.get(field) if isinstance(document, dict) else None
