"""Which episodes an evaluation plays, and the keyed permutation by which tasks are ordered without storing an order."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from sojourn.client.interface import Envs
from sojourn.protocol.errors import NotFound, UsageError

_QUESTIONS = 16
"""Requests for the names of tasks in flight."""


class EvalTask(BaseModel):
    """One episode to play."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: str
    task: str
    family: str
    view: str
    sample: int = 0
    """Number of the episode among those of one task."""
    init: dict[str, Any] | None = None
    """What its world begins with."""

    @property
    def key(self) -> str:
        """Which episode it is: one that begins otherwise is another."""
        plain = f"{self.env}/{self.view}/{self.task}/{self.sample}"
        return f"{plain}/{json.dumps(self.init, sort_keys=True, default=str)}" if self.init else plain


async def eval_tasks(
    envs: Envs,
    env: str,
    *,
    split: str,
    episodes: int,
    view: str | None = None,
    families: Sequence[str] | None = None,
    init: dict[str, Any] | None = None,
    seed: int = 0,
) -> list[EvalTask]:
    """Draw episodes from a split: each task once before any comes twice, in an order that depends on `seed` alone.

    Raises:
        UsageError: there is no such view or split, or the split holds no such task.
    """
    views = (await envs.spec(env)).views
    if view is not None and view not in views:
        raise UsageError(f"{env} has no view {view!r} (it has: {', '.join(views)})")
    view = view or views[0]
    try:
        total = (await envs.tasks(env, split, families=families, limit=1)).total
    except NotFound as error:
        raise UsageError(f"{env}: {error}") from error
    if not total:
        raise UsageError(f"{env} has no tasks in split {split!r}" + (f" of {', '.join(families)}" if families else ""))

    async def task(number: int) -> EvalTask:
        sample, position = divmod(number, total)
        offset = permuted(position, total, key=f"eval/{seed}/{env}")
        async with asking:
            info = (await envs.tasks(env, split, families=families, offset=offset, limit=1)).tasks[0]
        return EvalTask(env=env, task=info.task, family=info.family, view=view, sample=sample, init=init)

    asking = asyncio.Semaphore(_QUESTIONS)
    return list(await asyncio.gather(*map(task, range(episodes))))


def permuted(position: int, total: int, *, key: str) -> int:
    """Element `position` of a pseudo-random permutation of range(total), chosen by `key`.

    A four-round Feistel network on the next even number of bits; values outside the range are sent through again.
    """
    if not 0 <= position < total:
        raise ValueError(f"position {position} is outside a permutation of {total}")
    half = max(1, ((total - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    value = position
    while True:
        left, right = value >> half, value & low
        for round_ in range(4):
            word = hashlib.blake2b(f"{key}/{round_}/{right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(word, "big") & low)
        value = left << half | right
        if value < total:
            return value
