"""Runs an environment's operations without letting it hang or fall on the server.

`inline` environments run on the event loop, `thread` ones in a bounded pool, `process` ones in a child that the event
loop waits for (`process_env`); all have a deadline. What may take seconds has threads of its own, so that nobody's step
waits for it. What an environment raises on purpose (`ServiceError`) passes; anything else becomes `EnvironmentFailed`.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from sojourn.protocol.env import EnvSpec
from sojourn.protocol.errors import DeadlineExceeded, EnvironmentFailed, ServiceError, TooMany
from sojourn.serving.threads import DaemonPool

T = TypeVar("T")
logger = logging.getLogger("sojourn.serving")
_SLOW_THREADS = 2
"""Few: where slow work has one thing to work on, as ScienceWorld's solutions have one JVM, each waits for those before
it, and must still be done within its deadline."""
_SLOW_START = 1 / 3
"""Share of its deadline in which slow work must have begun; what has not is refused: it would not be done in time."""


class StillRunning(DeadlineExceeded):
    """The deadline passed while a thread was at work; it cannot be stopped, only waited for."""

    def __init__(self, detail: str, work: Future[Any]) -> None:
        super().__init__(detail)
        self.work = work


class NotStarted(TooMany):
    """No thread became free in time: nothing was done."""


class Executor:
    """Where environments run, and for how long they may."""

    def __init__(self, deadline_s: float, threads: int) -> None:
        self._deadline_s = deadline_s
        self._threads = DaemonPool(threads, "sojourn-env")
        self._slow = DaemonPool(_SLOW_THREADS, "sojourn-env-slow")

    async def run(self, spec: EnvSpec, operation: Coroutine[Any, Any, T], *, slow: bool = False) -> T:
        """Run one operation of an environment; `slow` is what may take seconds and is not a step's kind.

        Raises:
            ServiceError: what the environment refused, as it is.
            DeadlineExceeded: it took too long; its world is in an unknown state.
            EnvironmentFailed: it raised anything else; likewise.
            NotStarted: no thread became free in time.
        """
        try:
            if spec.execution == "thread":
                return await self._threaded(spec, operation, self._slow if slow else self._threads)
            return await self._inline(spec, operation)
        except ServiceError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            logger.exception("environment %s raised", spec.name)
            raise EnvironmentFailed(f"{spec.name} raised {type(error).__name__}: {str(error)[:500]}") from error

    def close(self) -> None:
        self._threads.close()
        self._slow.close()

    async def _inline(self, spec: EnvSpec, operation: Coroutine[Any, Any, T]) -> T:
        # Most worlds never wait: they are done at once, and a deadline costs more than many a step.
        try:
            pending = operation.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        limit = asyncio.timeout(self._deadline_s)
        try:
            async with limit:
                return await _rest(operation, pending)
        except TimeoutError:
            if limit.expired():
                raise self._late(spec) from None
            raise

    async def _threaded(self, spec: EnvSpec, operation: Coroutine[Any, Any, T], threads: DaemonPool) -> T:
        work = threads.submit(partial(_drive, operation))
        waiter = asyncio.wrap_future(work)
        patience = self._deadline_s * (_SLOW_START if threads is self._slow else 1)
        done, _ = await asyncio.wait({waiter}, timeout=patience)
        if not done and work.cancel():
            operation.close()
            raise NotStarted(f"no thread became free within {patience:g} s", retry_after=1.0)
        if not done:
            done, _ = await asyncio.wait({waiter}, timeout=self._deadline_s - patience)
        if done:
            return waiter.result()
        waiter.cancel()
        raise StillRunning(self._late(spec).detail, work)

    def _late(self, spec: EnvSpec) -> DeadlineExceeded:
        return DeadlineExceeded(f"{spec.name} took longer than {self._deadline_s:g} s")


@types.coroutine
def _rest(operation: Coroutine[Any, Any, T], pending: Any) -> Generator[Any, Any, T]:
    """Await what is left of a coroutine that has begun and waits for `pending`."""
    while True:
        try:
            sent = yield pending
        except GeneratorExit:
            operation.close()
            raise
        except BaseException as error:
            go_on = partial(operation.throw, error)
        else:
            go_on = partial(operation.send, sent)
        try:
            pending = go_on()
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def _drive(operation: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that blocks instead of awaiting."""
    try:
        operation.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    operation.close()
    raise RuntimeError("a threaded environment must block, not await: there is no event loop in its thread")
