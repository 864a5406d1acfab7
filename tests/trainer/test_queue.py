from __future__ import annotations

import asyncio

import pytest

from sojourn.trainer.queue import CollectionQueue


class _Weights:
    version = 0


async def _run(max_staleness: int, total: int = 5) -> tuple[list[str], list[int]]:
    """Train `total` steps; what happened in order, and the staleness of each step."""
    weights, events, staleness = _Weights(), list[str](), list[int]()
    queue = CollectionQueue[int](lambda: weights.version, max_staleness)

    async def collect(step: int) -> int:
        events.append(f"collect {step} with {weights.version}")
        await asyncio.sleep(0)
        return step

    for step in range(total):
        for ahead in queue.admitted(step, total):
            queue.begin(ahead, collect(ahead))
        collected, stale = await queue.take(step)
        assert collected == step
        staleness.append(stale)
        weights.version += 1
        await asyncio.sleep(0)
    assert queue.admitted(total, total) == []
    return events, staleness


async def test_a_bound_of_zero_is_synchronous():
    events, staleness = await _run(0)
    assert events == [f"collect {step} with {step}" for step in range(5)]
    assert staleness == [0] * 5


@pytest.mark.parametrize("bound", [1, 2, 7])
async def test_no_collection_is_older_than_the_bound(bound):
    events, staleness = await _run(bound)
    assert len(events) == 5
    assert staleness == [min(step, bound) for step in range(5)]


async def test_a_failed_collection_fails_its_step_and_the_rest_is_cancelled():
    queue = CollectionQueue[int](lambda: 0, 1)
    cancelled = asyncio.Event()

    async def fail() -> int:
        raise OSError("lost")

    async def wait() -> int:
        try:
            return await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    queue.begin(0, fail())
    queue.begin(1, wait())
    with pytest.raises(OSError, match="lost"):
        await queue.take(0)
    await queue.close()
    assert cancelled.is_set()
