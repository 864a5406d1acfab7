"""Carries out one cell: the trainer's own verbs under a budget of tokens, evaluated on the way, with its CPU time.

The clock counts the cell's process and the environment server that it starts, in training steps alone.
"""

from __future__ import annotations

import hashlib
import math
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from benchmarks.experiments.cell import Cell, Evaluated, Result, code_version
from benchmarks.experiments.plan import START, Plan
from benchmarks.loadgen.machine import describe
from benchmarks.loadgen.process import ProcessTree

from sojourn.client.session import EnvClient
from sojourn.engines.models import resolve
from sojourn.evaluation.evaluate import evaluate
from sojourn.evaluation.tasks import EvalTask, eval_tasks
from sojourn.protocol.errors import SojournError
from sojourn.serving.local import LocalServer
from sojourn.trainer.collecting import Collection
from sojourn.trainer.loop import Trainer

METRICS = {
    "success_rate": 4,
    "horizon/max_turns": 0,
    "rollout/turns": 2,
    "rollout/groups_with_signal": 3,
    "rollout/entropy": 4,
    "policy/entropy": 4,
    "policy/kl": 5,
    "rollout/invalid": 4,
    "rollout/repeated": 4,
    "rollout/truncated": 4,
    "failures/turns": 2,
    "failures/long": 3,
    "failures/token_share": 3,
    "train/grad_norm": 4,
    "train/skipped_steps": 0,
    "rollout/dropped": 0,
    "rollout/episodes": 0,
    "rollout/engine_tokens": 0,
    "rollout/reused_tokens": 0,
    "rollout/branches": 0,
}
"""What is kept of each training step, and its decimals; success by family besides."""


class CellFailed(SojournError):
    """A cell could not be brought to its end, or lost episodes on the way."""


class Clock:
    """CPU seconds of this process and its children, while it runs."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._tree = ProcessTree(os.getpid())

    @contextmanager
    def running(self) -> Iterator[None]:
        before = self._tree.cpu_s()
        yield
        self.cpu_s += self._tree.cpu_s() - before


class Log:
    """Hears what a trainer says."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: dict[str, list[float | None]] = {}
        self.count = 0

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        kept = METRICS | {name: 3 for name in metrics if name.startswith("success_rate/")}
        for name, decimals in kept.items():
            column = self.steps.setdefault(name, [None] * self.count)
            value = metrics.get(name, math.nan)
            column.append(round(value, decimals) if math.isfinite(value) else None)
        self.count += 1
        for column in self.steps.values():
            column += [None] * (self.count - len(column))

    def on_eval(self, step: int, metrics: dict[str, float]) -> None:
        """Evaluations are the cell's own."""

    def on_note(self, text: str) -> None:
        self.notes.append(text)


async def run_cell(plan: Plan, cell: Cell, model: str) -> Result:
    """Train and evaluate one cell, from `model`: a directory, or what the configuration knows as a name.

    Raises:
        CellFailed: an evaluation lost episodes: it would not be paired with its siblings'.
        UsageError: the plan is wrong.
    """
    torch.set_num_threads(1)
    began = time.monotonic()
    config = plan.config(cell.arm, cell.seed, model)
    log, clock = Log(), Clock()
    with tempfile.TemporaryDirectory() as folder:
        async with LocalServer([plan.server]) as url, EnvClient(url) as client:
            trainer = Trainer(config, client, run_dir=Path(folder) / "run", resume=False, observer=log)
            tasks = [
                task
                for entry in config.envs
                for task in await eval_tasks(
                    client,
                    entry.name,
                    split=plan.split,
                    episodes=plan.episodes,
                    view=entry.view,
                    families=entry.families,
                    init=entry.init,
                    seed=cell.seed,
                )
            ]
            run = _Run(plan, cell, trainer, tasks, clock)
            try:
                await trainer.start()
                await (run.evaluate() if cell.arm == START else run.train(log))
            finally:
                await trainer.close()
    return Result(
        env=cell.env,
        arm=cell.arm,
        seed=cell.seed,
        key=plan.key(cell.arm),
        start=weights_digest(model),
        version=code_version(),
        machine=describe(),
        evaluations=run.evaluations,
        steps=log.steps,
        notes=log.notes,
        wall_s=round(time.monotonic() - began, 1),
        peak_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    )


class _Run:
    """What is counted on the way."""

    def __init__(self, plan: Plan, cell: Cell, trainer: Trainer, tasks: list[EvalTask], clock: Clock) -> None:
        self.plan, self.cell, self.trainer, self.tasks, self.clock = plan, cell, trainer, tasks, clock
        self.tokens = 0
        self.evaluations: list[Evaluated] = []

    async def train(self, log: Log) -> None:
        """Steps until the tokens are spent."""
        plan, columns = self.plan, log.steps
        spent: dict[str, list[float | None]] = {"tokens": [], "cpu_s": [], "rollout_s": [], "update_s": []}
        while self.tokens < plan.tokens:
            with self.clock.running():
                collection = await self._step()
            self.tokens += collection.engine_tokens if plan.counted == "engine" else episode_tokens(collection)
            spent["tokens"].append(self.tokens)
            spent["cpu_s"].append(round(self.clock.cpu_s, 2))
            spent["rollout_s"].append(round(self.trainer.metrics["time/rollout"], 2))
            spent["update_s"].append(round(self.trainer.metrics["time/update"], 2))
            if self.tokens * plan.evaluations >= plan.tokens * (len(self.evaluations) + 1):
                await self.evaluate()
        columns |= spent

    async def _step(self) -> Collection:
        trainer = self.trainer
        plan = await trainer.plan(trainer.progress.step)
        collection = await trainer.collector.collect(plan)
        await trainer.update(collection, 0)
        await trainer.sync_weights()
        await trainer.evaluate()  # of its own it has none to make: this tells the step
        return collection

    async def evaluate(self) -> None:
        """Play the held-out episodes at the full horizon."""
        found = await evaluate(
            self.trainer.parts.player,
            self.tasks,
            horizon=self.plan.horizon,
            concurrency=self.trainer.config.rollout.concurrency,
            seed=self.cell.seed,
        )
        overall = found.overall
        if overall.errors:
            raise CellFailed(f"{self.cell}: an evaluation lost {overall.errors} episodes to infrastructure")
        self.evaluations.append(
            Evaluated(
                step=self.trainer.progress.step,
                tokens=self.tokens,
                cpu_s=round(self.clock.cpu_s, 2),
                success=overall.success,
                episodes=overall.episodes,
                families={name.rpartition("/")[2]: round(t.success, 4) for name, t in found.families.items()},
                turns=round(overall.turns, 2),
            )
        )


def episode_tokens(collection: Collection) -> int:
    """Tokens of a step's episodes, said and read, each once."""
    return sum(len(s.ids) for group in collection.groups for t in group.trajectories for s in t.segments)


def weights_digest(model: str) -> str:
    """SHA-256 of a model's weights (12 characters)."""
    return hashlib.sha256((Path(resolve(model).path) / "model.safetensors").read_bytes()).hexdigest()[:12]
