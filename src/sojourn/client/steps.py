"""Steps that become ready in the same tick of the event loop travel together in one request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson

from sojourn.client.http import Connection, retrying
from sojourn.protocol.errors import ServiceError, SojournError, TransportError, from_problem

MAX_ITEMS = 64
"""Steps of one request; more are spread over several."""

Result = dict[str, Any]


@dataclass(slots=True, eq=False)
class _Pending:
    item: dict[str, Any]
    future: asyncio.Future[Result]


class StepBatcher:
    """Collects the steps of one tick by server and hands each result out as its line arrives."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: dict[str, list[_Pending]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def step(self, base: str, session: str, revision: int, action: str) -> Result:
        """The result of one step; raises what its item was answered with, or `TransportError`."""
        loop = asyncio.get_running_loop()
        pending = _Pending({"id": session, "revision": revision, "action": action}, loop.create_future())
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.setdefault(base, []).append(pending)
        return await pending.future

    async def aclose(self) -> None:
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for base, steps in waiting.items():
            for start in range(0, len(steps), MAX_ITEMS):
                task = asyncio.get_running_loop().create_task(self._send(base, steps[start : start + MAX_ITEMS]))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    async def _send(self, base: str, steps: list[_Pending]) -> None:
        failure: SojournError = TransportError(f"{base}: the client was closed")
        try:
            async for attempt in retrying():
                with attempt:
                    # The revision makes a step act once, so that what got no reply may be asked again.
                    left = [step for step in steps if not step.future.done()]
                    if left:
                        await self._once(f"{base}/v1/steps", left)
        except SojournError as error:
            failure = error
        finally:
            for step in steps:
                if not step.future.done():
                    step.future.set_exception(_copy(failure))

    async def _once(self, url: str, steps: list[_Pending]) -> None:
        body = orjson.dumps({"items": [step.item for step in steps]})
        rest = b""
        answered = 0
        async with self._connection.stream(url, body) as response:
            async for chunk in response.aiter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    _deliver(steps, line, url)
                answered += len(lines)
        if answered < len(steps):
            raise TransportError(f"{url} broke off after {answered} of {len(steps)} steps")


def _deliver(steps: list[_Pending], line: bytes, url: str) -> None:
    try:
        answer = orjson.loads(line)
        future = steps[answer["index"]].future
        if future.done():
            return
        if answer["status"] == 200:
            future.set_result(answer["result"])
        else:
            future.set_exception(from_problem(answer["problem"], answer["status"]))
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError) as error:
        raise TransportError(f"{url} sent a line that is not a step's answer") from error


def _copy(error: SojournError) -> SojournError:
    """An instance for each waiter: a shared one would gather everybody's traceback."""
    if isinstance(error, ServiceError):
        return type(error)(error.detail, **error.extra)
    return type(error)(*error.args)
