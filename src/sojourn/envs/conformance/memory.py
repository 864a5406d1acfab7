"""What is asked of a server that runs for weeks: an episode leaves nothing behind."""

from __future__ import annotations

import gc
import tracemalloc

from sojourn.envs.conformance.subject import Subject, play, require

BYTES_PER_EPISODE = 512
"""Growth above this, episode after episode, is a leak."""


async def memory_is_flat(subject: Subject) -> None:
    """Episodes leave nothing behind: memory after twice as many is the same."""
    tasks = [subject.tasks[i % len(subject.tasks)] for i in range(subject.memory_episodes)]

    async def play_all() -> int:
        for i, task in enumerate(tasks):
            env = await subject.start(task)
            await play(env, (await subject.script(task))[:10])
            frozen = await env.snapshot()
            if i % 4 == 0:  # not each: where it replays, a restore costs an episode
                again = subject.service.create()
                await again.restore(frozen)
                await again.close()
            await env.close()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        await play_all()
        first, second = await play_all(), await play_all()
    finally:
        if not tracing:
            tracemalloc.stop()
    growth = (second - first) / len(tasks)
    require(growth < BYTES_PER_EPISODE, f"memory grows by {growth:.0f} bytes an episode")


CHECKS = (memory_is_flat,)
