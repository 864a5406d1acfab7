"""What an episode does about infrastructure: deadlines, kept leases, what is tried again and how it is told."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from sojourn.protocol.errors import (
    BadRequest,
    DeadlineExceeded,
    EngineError,
    Forbidden,
    NotSupported,
    ServiceError,
    SojournError,
    TransportError,
    Unauthorized,
    UnknownTask,
)
from sojourn.protocol.trajectory import StopReason
from sojourn.rollout.player import Limits

if TYPE_CHECKING:
    from sojourn.client.interface import Session

T = TypeVar("T")

INFRASTRUCTURE = (TransportError, ServiceError, EngineError, TimeoutError)
"""What ends an attempt without being the policy's doing, unless it is `MENDABLE`."""
MENDABLE = (BadRequest, Unauthorized, Forbidden, UnknownTask, NotSupported)
"""Answers of a service that another attempt would get again: they are the user's to mend."""
_CLOSE_S = 10.0


def stop_reason(error: Exception) -> StopReason:
    """How an episode is said to have ended that infrastructure ended."""
    if isinstance(error, (TimeoutError, DeadlineExceeded)):
        return StopReason.TIMEOUT
    return StopReason.ENGINE_ERROR if isinstance(error, EngineError) else StopReason.ENV_ERROR


async def within(seconds: float | None, what: str, call: Awaitable[T]) -> T:
    """Await `call`, or raise a `TimeoutError` that says what took too long."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        raise TimeoutError(f"{what} took longer than {seconds} s") from error


async def pause(limits: Limits, attempt: int, failure: Exception, deadline: float | None) -> bool:
    """Wait before the next attempt; True when the deadline (of the loop's clock) would pass meanwhile."""
    asked = failure.extra.get("retry_after", 0.0) if isinstance(failure, ServiceError) else 0.0
    seconds = max(float(asked), limits.retry_base_s * 2**attempt * random.uniform(0.5, 1.5))
    if deadline is not None and asyncio.get_running_loop().time() + seconds >= deadline:
        return True
    await asyncio.sleep(seconds)
    return False


async def persistently(limits: Limits, call: Callable[[], Awaitable[T]]) -> T:
    """What `call` returns; called anew when infrastructure fails, as long as there are attempts.

    Raises:
        SojournError: what ended the last attempt; at once, what the user must mend.
    """
    failed = 0
    while True:
        try:
            return await call()
        except INFRASTRUCTURE as failure:
            failed += 1
            if isinstance(failure, MENDABLE) or failed >= limits.attempts:
                raise
            await pause(limits, failed - 1, failure, deadline=None)


@contextlib.asynccontextmanager
async def kept_alive(session: Session) -> AsyncIterator[None]:
    """Renew the lease in the background: a slow completion, or a wait for others, must not cost the world."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(session.lease_s / 3)
            with contextlib.suppress(SojournError):  # the next step says what is wrong
                await session.renew()

    heartbeat = asyncio.create_task(renew())
    try:
        yield
    finally:
        heartbeat.cancel()
        await asyncio.wait([heartbeat])


async def close(session: Session) -> None:
    """Give a session back; when its server is gone, the lease does."""
    with contextlib.suppress(SojournError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await session.close()
