"""Requests that carry a key are acted on once, however often they arrive."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from sojourn.protocol.errors import BadRequest, Conflict

_KEPT = 8192
MAX_KEY = 200


@dataclass(frozen=True, slots=True)
class _Entry:
    fingerprint: str
    task: asyncio.Task[bytes]


class OnceByKey:
    """Replies by idempotency key, the latest few thousand. Refusals are not kept: they changed nothing."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    async def run(self, key: str | None, fingerprint: str, act: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """The reply of `act`, from an earlier call with the same key if there was one.

        The work goes on when its caller goes away, so that a lost reply can be asked for again.

        Raises:
            Conflict: the key was used for another request.
        """
        if key is None:
            return await detach(act())
        if not key or len(key) > MAX_KEY:
            raise BadRequest(f"Idempotency-Key: between 1 and {MAX_KEY} characters")
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(fingerprint, spawn(act()))
            entry.task.add_done_callback(lambda task: self._forget_failure(key, task))
            while len(self._entries) > self._kept:
                self._entries.popitem(last=False)
        elif entry.fingerprint != fingerprint:
            raise Conflict("this idempotency key was used for another request")
        return await asyncio.shield(entry.task)

    def _forget_failure(self, key: str, task: asyncio.Task[bytes]) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.task is task and (task.cancelled() or task.exception()):
            del self._entries[key]


_running: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start work that outlives whoever asked for it."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_finished)
    return task


async def detach(work: Coroutine[Any, Any, bytes]) -> bytes:
    """Await work that is not cancelled when the caller is."""
    result: bytes = await asyncio.shield(spawn(work))
    return result


def _finished(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        # Marks the exception as seen: the caller may be gone, and the operation has logged what matters.
        task.exception()
