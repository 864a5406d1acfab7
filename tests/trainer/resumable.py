"""A deterministic run in a process of its own, to be killed: `python -m tests.trainer.resumable MODEL RUN_DIR`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import torch

from sojourn.trainer.config import TrainConfig
from sojourn.trainer.loop import RunSummary, Trainer
from tests.trainer.runs import Notes, config, serving


def resumable(model: Path) -> TrainConfig:
    """Six steps, a checkpoint every third."""
    return config(model, trainer={"num_steps": 6, "save_every": 3, "eval_every": 2}, logging={"tensorboard": True})


class _Loud(Notes):
    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        print(f"step {step}", flush=True)


async def play(settings: TrainConfig, run_dir: Path, *, resume: bool = False, loud: bool = False) -> RunSummary:
    torch.set_num_threads(1)
    async with serving() as envs:
        observer = _Loud() if loud else Notes()
        return await Trainer(settings, envs, run_dir=run_dir, resume=resume, observer=observer).run()


if __name__ == "__main__":
    asyncio.run(play(resumable(Path(sys.argv[1])), Path(sys.argv[2]), loud=True))
