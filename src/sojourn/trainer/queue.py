"""The queue between rollout and learner: collections by step, each with the policy version it began at.

Admission bounds staleness: the collection of a step begins once its step is at most `max_staleness` ahead of the one
that is trained. With a bound of 0 a collection begins when its own step does: synchronous training, by the same code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """What was collected, and the version of the weights when collecting began."""

    value: T
    version: int


@dataclass(slots=True)
class CollectionQueue(Generic[T]):
    """Starts collections as admission allows and hands them out in order.

    Args:
        collect: begins one collection; called in the order of steps.
        version: the engine's present policy version.
        steps: number of steps of the run; none beyond is collected.
        max_staleness: how many updates a collection may be old when it is trained.
    """

    collect: Callable[[int], Awaitable[T]]
    version: Callable[[], int]
    steps: int
    max_staleness: int = 0
    _running: dict[int, asyncio.Task[Versioned[T]]] = field(default_factory=dict)

    async def take(self, step: int) -> Versioned[T]:
        """The collection of `step`, begun now unless it was ahead; raises what collecting raised."""
        for ahead in range(step, min(step + self.max_staleness + 1, self.steps)):
            if ahead not in self._running:
                self._running[ahead] = asyncio.create_task(self._begin(ahead), name=f"collect-{ahead}")
        taken = await self._running[step]
        del self._running[step]
        stale = self.version() - taken.version
        assert stale <= self.max_staleness, f"collection of step {step} is {stale} updates old"
        return taken

    async def close(self) -> None:
        """Cancel what was begun ahead."""
        running, self._running = list(self._running.values()), {}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _begin(self, step: int) -> Versioned[T]:
        version = self.version()
        return Versioned(await self.collect(step), version)
