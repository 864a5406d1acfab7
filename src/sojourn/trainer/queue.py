"""The queue between rollout and learner: collections by step, each with the policy version it began at.

Admission bounds staleness: a collection may begin once its step is at most `max_staleness` ahead of the one that is to
be trained. With a bound of 0 a collection begins when its own step does: synchronous training, by the same code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CollectionQueue(Generic[T]):
    """Runs collections in the background and hands them out in order.

    Args:
        version: the engine's present policy version.
        max_staleness: how many updates old a collection may be when it is trained.
    """

    def __init__(self, version: Callable[[], int], max_staleness: int = 0) -> None:
        self.max_staleness = max_staleness
        self._version = version
        self._running: dict[int, tuple[int, asyncio.Task[T]]] = {}

    def admitted(self, step: int, total: int) -> list[int]:
        """Steps whose collection may begin before `step` is trained, and has not; none past the run's `total`."""
        return [s for s in range(step, min(step + self.max_staleness + 1, total)) if s not in self._running]

    def begin(self, step: int, collection: Coroutine[Any, Any, T]) -> None:
        """Start the collection of `step` under the present weights."""
        self._running[step] = (self._version(), asyncio.create_task(collection, name=f"collect-{step}"))

    async def take(self, step: int) -> tuple[T, int]:
        """The collection of `step` and its staleness in updates; raises what collecting raised."""
        version, task = self._running[step]
        try:
            collected = await task
        finally:
            del self._running[step]
        staleness = self._version() - version
        assert staleness <= self.max_staleness, f"the collection of step {step} is {staleness} updates old"
        return collected, staleness

    async def close(self) -> None:
        """Cancel what has begun and was not taken."""
        running, self._running = self._running, {}
        for _, task in running.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in running.values()), return_exceptions=True)
