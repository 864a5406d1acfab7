"""Oracle episodes of training tasks as token rows, and the files they are kept in."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
from numpy.typing import NDArray

from sojourn.cli.embedded.vocabulary import pieces
from sojourn.client.session import EnvClient
from sojourn.engines.tiny import build_tokenizer
from sojourn.envs import registry
from sojourn.envs.base import digest
from sojourn.protocol.errors import UsageError
from sojourn.rollout.agent import ReAct
from sojourn.rollout.demonstration import demonstrate
from sojourn.rollout.renderer import Renderer
from sojourn.serving.app import create_app
from sojourn.serving.config import ServingConfig
from sojourn.trainer.sft import SFTRow, rows_of

LEVELS = {
    "FindObjS7": 3.0,
    "GoToObjMazeS7": 3.0,
    "UnlockLocal": 2.0,
    "KeyCorridorS3R1": 2.0,
    "KeyCorridorS3R2": 3.0,
    "GoToLocalS8N7": 0.7,
    "PickupLoc": 0.7,
    "Unlock": 0.6,
}
"""BabyAI levels of the warm start and how often each is shown: the demo's five, and a few for breadth."""

DEPTHS = {"depth1": 1.0, "depth2": 2.4, "depth3": 1.6, "depth4": 0.3}
"""TextCraft's families and how often each is shown; the long ones a little more often than they occur."""

FAMILIES = {"textcraft": DEPTHS, "babyai": LEVELS}
HORIZONS = {"textcraft": 30, "babyai": 20}
LONGEST = 1200
"""Rows of more tokens are left out."""
SEEDS_A_LEVEL = 20000
"""BabyAI has endless training tasks: so many of each level are drawn from."""


class Rows(NamedTuple):
    """Rows end to end: row i is `ids[starts[i]:starts[i + 1]]`."""

    ids: NDArray[np.int32]
    mask: NDArray[np.uint8]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def draw(self, rng: random.Random) -> SFTRow:
        """One row at random."""
        i = rng.randrange(len(self))
        span = slice(int(self.starts[i]), int(self.starts[i + 1]))
        return SFTRow(self.ids[span], self.mask[span])

    @classmethod
    def load(cls, paths: Sequence[Path]) -> Rows:
        """All rows of some files, in order; raises `UsageError` when they were written with another vocabulary."""
        parts = [np.load(path) for path in paths]
        for path, part in zip(paths, parts, strict=True):
            if str(part["vocabulary"]) != digest(pieces()):
                raise UsageError(f"{path} was written with another vocabulary: make the demonstrations again")
        offsets = np.cumsum([0, *(len(part["ids"]) for part in parts)])
        starts = [part["starts"][:-1] + offset for part, offset in zip(parts, offsets, strict=False)]
        return cls(
            np.concatenate([part["ids"] for part in parts]),
            np.concatenate([part["mask"] for part in parts]),
            np.concatenate([*starts, offsets[-1:]]),
        )


class Job(NamedTuple):
    """What one process plays."""

    env: str
    episodes: int
    part: int
    noise: float
    path: Path


def play(job: Job) -> str:
    """Play a job's episodes, write its rows, and say so in one line."""
    began = time.time()
    rows = asyncio.run(_rows(job))
    np.savez(
        job.path,
        vocabulary=digest(pieces()),
        ids=np.concatenate([row.ids for row in rows]),
        mask=np.concatenate([row.mask for row in rows]),
        starts=np.cumsum([0, *(len(row.ids) for row in rows)]),
    )
    tokens = sum(len(row.ids) for row in rows)
    took = time.time() - began
    return f"{job.env} part {job.part}: {len(rows)} of {job.episodes} episodes, {tokens} tokens, {took:.0f} s"


async def _rows(job: Job) -> list[SFTRow]:
    rng = random.Random(f"{job.env}/{job.part}")
    renderer = Renderer(build_tokenizer(pieces()))
    families = FAMILIES[job.env]
    server = create_app([registry.load(job.env)()], ServingConfig())
    rows: list[SFTRow] = []
    async with (
        server.router.lifespan_context(server),
        EnvClient("http://local", transport=httpx.ASGITransport(server)) as client,
    ):
        pages = {f: await client.tasks(job.env, "train", families=[f], limit=SEEDS_A_LEVEL) for f in families}
        for _ in range(job.episodes):
            [family] = rng.choices(list(families), list(families.values()))
            trajectory = await demonstrate(
                client,
                renderer,
                ReAct(),
                job.env,
                rng.choice(pages[family].tasks).task,
                view="compact",
                horizon=HORIZONS[job.env],
                rng=rng,
                thoughts=job.env == "textcraft",
                noise=job.noise if rng.random() < 0.5 else 0.0,
                env_seed=rng.getrandbits(31),
            )
            if trajectory is not None:
                rows += [row for row in rows_of([trajectory]) if len(row.ids) <= LONGEST]
    return rows
