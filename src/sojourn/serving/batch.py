"""Many sessions' steps in one request, each answered as soon as it is ready.

One task works through the items in order. Where a step has to wait (a thread, I/O), another task takes the next item,
so that microsecond worlds cost one task for a whole batch and a slow world holds up nobody else.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sojourn.protocol.errors import ServiceError
from sojourn.serving.http import unexpected
from sojourn.serving.idempotency import spawn
from sojourn.serving.operations import Operations
from sojourn.serving.requests import StepItem

_SLICE_S = 0.005
"""How long inline steps may keep the event loop before what is ready is sent and others get their turn."""


class StepBatch:
    """The items of one request on their way."""

    def __init__(self, operations: Operations, items: list[StepItem]) -> None:
        self._operations = operations
        self._queue = deque(enumerate(items))
        self._left = len(items)
        self._lines: list[bytes] = []
        self._ready = asyncio.Event()

    async def lines(self) -> AsyncIterator[bytes]:
        """NDJSON, some lines at a time, in the order of their completion."""
        while self._queue:
            spawn(self._work())
            await asyncio.sleep(0)
            if self._lines:
                yield self._take()
        while self._left:
            await self._ready.wait()
            self._ready.clear()
            if self._lines:
                yield self._take()

    async def _work(self) -> None:
        until = time.perf_counter() + _SLICE_S
        while self._queue:
            index, item = self._queue.popleft()
            line = await self._answer(index, item)
            self._lines.append(line)
            self._ready.set()
            if time.perf_counter() > until:
                return

    async def _answer(self, index: int, item: StepItem) -> bytes:
        head = b'{"index":%d,"id":%b,' % (index, orjson.dumps(item.id))
        try:
            result = await self._operations.step(item.id, item.revision, item.action)
        except ServiceError as error:
            return head + b'"status":%d,"problem":%b}\n' % (error.status, orjson.dumps(error.problem()))
        except Exception as error:
            problem = unexpected(error)
            return head + b'"status":500,"problem":%b}\n' % orjson.dumps(problem.problem())
        return head + b'"status":200,"result":%b}\n' % result

    def _take(self) -> bytes:
        taken, self._lines = self._lines, []
        self._left -= len(taken)
        return b"".join(taken)

    @property
    def finished(self) -> bool:
        return self._left == 0


class BatchResponse(Response):
    """A plain reply when everything is ready at once, else a stream."""

    media_type = "application/x-ndjson"

    def __init__(self, batch: StepBatch) -> None:
        super().__init__()
        self._batch = batch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lines = self._batch.lines()
        first = await anext(lines)
        headers = [(b"content-type", b"application/x-ndjson")]
        if self._batch.finished:
            headers.append((b"content-length", b"%d" % len(first)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": first, "more_body": not self._batch.finished})
        if self._batch.finished:
            await lines.aclose()  # type: ignore[attr-defined]
            return
        async for chunk in lines:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
