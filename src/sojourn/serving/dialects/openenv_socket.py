"""OpenEnv's socket: one episode at a time, its own messages and ours.

The session behind a socket lives by its lease. A socket that stands open does not keep it, so that a half-open one
leaks nothing; a socket that broke off does not end it: `/ws?session_id=ID` takes it up again. A `close` message ends
it, as does a socket that opened it and closes in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from sojourn.protocol.errors import BadRequest, Conflict, Gone, NotFound, ServiceError, TooMany, UnknownTask
from sojourn.protocol.validation import first_problem
from sojourn.serving.auth import Access, Guard
from sojourn.serving.dialects import openenv_words as words
from sojourn.serving.dialects.endpoint import bearer
from sojourn.serving.dialects.openenv_episodes import Episodes
from sojourn.serving.http import problem_response, unexpected
from sojourn.serving.idempotency import detach
from sojourn.serving.requests import ForkBody, InjectBody, Model, RenewBody, RestoreBody, parse_body

IN_ORDER = 1000
"""The code of a close that the client meant. (1005, no code, is also what uvicorn reports of a lost connection.)"""


class _Verb(NamedTuple):
    access: Access
    act: Callable[[dict[str, Any]], Awaitable[words.Reply]]
    reply: str
    """Type of the message that answers."""


class Socket:
    """One connection."""

    def __init__(self, episodes: Episodes, guard: Guard, websocket: WebSocket) -> None:
        self._episodes = episodes
        self._do = episodes.do
        self._guard = guard
        self._ws = websocket
        self._authorization = bearer(websocket.headers.get("authorization"))
        self._session: str | None = None
        self._owns = False
        self._label: str | None = None
        self._steps = 0
        step, control = Access.STEP, Access.CONTROL
        self._verbs = {
            "reset": _Verb(control, self._reset, "observation"),
            "step": _Verb(step, self._step, "observation"),
            "state": _Verb(step, self._state, "state"),
            "snapshot": _Verb(control, self._snapshot, "snapshot"),
            "restore": _Verb(control, self._restore, "observation"),
            "fork": _Verb(control, self._fork, "fork"),
            "inject": _Verb(control, self._inject, "observation"),
            "lease": _Verb(control, self._lease, "lease"),
        }

    async def serve(self) -> None:
        """Answer messages until the client leaves or its session is gone."""
        try:
            self._guard.check(Access.STEP, self._authorization)
        except ServiceError as error:
            await self._ws.send_denial_response(problem_response(error))
            return
        await self._ws.accept()
        try:
            if await self._attach():
                await self._answer()
            await self._ws.close()
        except WebSocketDisconnect as left:
            if left.code == IN_ORDER and self._owns:
                await self._end()
        except RuntimeError:
            # Starlette's word for a send on a socket that has gone; the lease takes care of the session.
            return

    async def _attach(self) -> bool:
        """Take up the session that the address names, if any; false when it cannot be."""
        asked = self._ws.query_params.get("session_id")
        try:
            if asked is not None:
                self._episodes.check(asked)
        except ServiceError as error:
            await self._refuse(error)
            return False
        self._session = asked
        return True

    async def _answer(self) -> None:
        while True:
            text = await self._receive()
            if text is None:
                await self._refuse(Gone("the session's lease expired"))
                return
            try:
                message = self._read(text)
                if message.type == "close":
                    await self._end()
                    return
                verb = self._verbs[message.type]
                self._guard.check(verb.access, self._authorization)
                data = await detach(self._encoded(verb, message.data))
            except ServiceError as error:
                await self._refuse(error)
            except _Refusal as refusal:
                await self._send("error", refusal.data)
            except Exception as error:
                await self._refuse(unexpected(error))
            else:
                await self._ws.send_text(data.decode())

    async def _receive(self) -> str | None:
        """The next message; None when the lease ran out before it came, or nothing came where no session is."""
        while True:
            patience = self._do.config.lease_s
            if self._session is not None:
                # Whoever holds the session elsewhere may have extended it meanwhile.
                left = self._do.sessions.remaining(self._session)
                if not left:
                    return None
                patience = left
            try:
                async with asyncio.timeout(patience):
                    return await self._ws.receive_text()
            except KeyError:
                return ""  # a binary frame, which is no JSON either
            except TimeoutError:
                if self._session is None:
                    return None

    def _read(self, text: str) -> words.Message:
        if len(text) > self._do.config.max_body_bytes:
            raise BadRequest(f"the message is over the bound of {self._do.config.max_body_bytes} bytes")
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise _Refusal("INVALID_JSON", f"Invalid JSON: {error}") from error
        kind = document.get("type") if isinstance(document, dict) else None
        if kind != "close" and kind not in self._verbs:
            raise _Refusal("UNKNOWN_TYPE", f"Unknown message type: {str(kind)[:80]}")
        try:
            return words.Message.model_validate(document)
        except ValidationError as error:
            raise BadRequest(first_problem(error)) from error

    async def _encoded(self, verb: _Verb, data: dict[str, Any]) -> bytes:
        return orjson.dumps({"type": verb.reply, "data": await verb.act(data)})

    async def _refuse(self, error: ServiceError) -> None:
        data: dict[str, Any] = {"message": error.detail or error.slug, "code": _code(error), "status": error.status}
        if isinstance(error, TooMany):
            data["active_sessions"] = len(self._do.sessions)
            data["max_sessions"] = self._do.config.max_sessions
        await self._send("error", data)

    async def _send(self, kind: str, data: words.Reply) -> None:
        await self._ws.send_text(orjson.dumps({"type": kind, "data": data}).decode())

    async def _end(self) -> None:
        if self._session is not None:
            try:
                await self._do.delete(self._session)
            except (Gone, NotFound):
                return

    # -- messages --------------------------------------------------------------------------------------------------

    async def _reset(self, data: dict[str, Any]) -> words.Reply:
        wish = _parse(words.Wish, data)
        if self._session is None:
            reply = await self._episodes.open(wish)
            self._session, self._owns = reply["id"], True
        else:
            reply = await self._episodes.reset(self._session, wish)
        self._label, self._steps = wish.episode_id, 0
        assert self._session is not None
        return words.seen(reply, self._session)

    async def _step(self, data: dict[str, Any]) -> words.Reply:
        action = _parse(words.TextAction, data)
        session = self._sessioned()
        reply = await self._episodes.step(session, action)
        self._steps += 1
        return words.stepped(reply, session)

    async def _state(self, _: dict[str, Any]) -> words.Reply:
        if self._session is None:
            return words.EpisodeState().model_dump()
        return words.state(orjson.loads(self._do.describe(self._session)), self._steps, self._label)

    async def _snapshot(self, _: dict[str, Any]) -> words.Reply:
        stored: words.Reply = orjson.loads(await self._do.snapshot(self._sessioned()))
        return stored

    async def _restore(self, data: dict[str, Any]) -> words.Reply:
        session, wish = self._sessioned(), _parse(words.RestoreWish, data)
        body = RestoreBody(revision=self._revision(session), snapshot=wish.snapshot)
        return words.seen(orjson.loads(await self._do.restore(session, body)), session)

    async def _fork(self, data: dict[str, Any]) -> words.Reply:
        wish = _parse(words.ForkWish, data)
        children = orjson.loads(await self._do.fork(self._sessioned(), ForkBody(count=wish.count)))["sessions"]
        return {"sessions": [{"session_id": child["id"], **words.seen(child, child["id"])} for child in children]}

    async def _inject(self, data: dict[str, Any]) -> words.Reply:
        session, wish = self._sessioned(), _parse(words.InjectWish, data)
        body = InjectBody(revision=self._revision(session), change=wish.change)
        return words.seen(orjson.loads(await self._do.inject(session, body)), session)

    async def _lease(self, data: dict[str, Any]) -> words.Reply:
        session, wish = self._sessioned(), _parse(words.LeaseWish, data)
        reply = orjson.loads(self._do.renew(session, RenewBody(lease_s=wish.lease_s)))
        return {"session_id": reply["id"], "lease_s": reply["lease_s"]}

    def _sessioned(self) -> str:
        if self._session is None:
            raise Conflict("no episode yet: send reset first")
        return self._session

    def _revision(self, session: str) -> int:
        return self._do.sessions.find(session).revision


class _Refusal(Exception):
    """A message that never reaches an operation."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.data = {"message": message, "code": code, "status": 400}


def _parse(model: type[Model], data: dict[str, Any]) -> Model:
    return parse_body(model, orjson.dumps(data))


def _code(error: ServiceError) -> str:
    """OpenEnv's word for an error of ours."""
    if isinstance(error, TooMany):
        return "CAPACITY_REACHED"
    if isinstance(error, BadRequest | UnknownTask):
        return "VALIDATION_ERROR"
    return "SESSION_ERROR" if isinstance(error, Gone | NotFound) else "EXECUTION_ERROR"
