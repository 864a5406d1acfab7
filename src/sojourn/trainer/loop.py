"""The training loop: horizon, collect, advantages, update, sync weights, evaluate, save."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from sojourn.client.interface import Envs
from sojourn.evaluation.report import Evaluation
from sojourn.rollout.horizon import HorizonState
from sojourn.trainer.build import build
from sojourn.trainer.checkpoint import Checkpoint, Progress
from sojourn.trainer.collecting import Collecting, Collection, Collector, Plan
from sojourn.trainer.config import TrainConfig
from sojourn.trainer.divergence import culprits, describe, in_a_row, stop_if_lost
from sojourn.trainer.evaluating import Evaluator
from sojourn.trainer.feedback import seen
from sojourn.trainer.queue import CollectionQueue
from sojourn.trainer.replaying import Replayer
from sojourn.trainer.run_dir import RunDir
from sojourn.trainer.statistics import collection_metrics


class Observer(Protocol):
    """What a progress display hooks into."""

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        """After step `step` (from 1) of `total`."""

    def on_eval(self, step: int, metrics: dict[str, float]) -> None:
        """After an evaluation of the weights that `step` steps gave."""

    def on_note(self, text: str) -> None:
        """Something a person should know."""


class RunSummary(BaseModel):
    """What a run came to."""

    model_config = ConfigDict(extra="forbid")

    run_dir: str
    steps: int
    """Finished, those before a resumption included."""
    seconds: float
    """Of this process."""
    metrics: dict[str, float]
    """Of the last step."""
    evaluations: dict[int, Evaluation]
    """By the step whose weights were evaluated."""


class Trainer:
    """One run.

    Args:
        config: what to do.
        envs: the servers of its environments.
        run_dir: where everything goes; see `run_dir`.
        resume: continue the run that is there.
        observer: told of every step.

    Raises:
        UsageError: the directory holds a run already, or (resuming) none, or one of another config; an unknown model.
    """

    def __init__(self, config: TrainConfig, envs: Envs, *, run_dir: Path, resume: bool, observer: Observer) -> None:
        self.config = config
        self.envs = envs
        self.observer = observer
        self.run_dir = RunDir(run_dir, config, resume=resume, on_note=observer.on_note)
        self.parts = build(config, envs)
        self.evaluator = Evaluator(config, envs, self.parts.player, self.run_dir, observer.on_note)
        replays = config.trainer.mode == "replay"
        self.collector: Collecting = (
            Replayer(config) if replays else Collector(config, envs, self.parts.player, observer.on_note)
        )
        self.progress = Progress(horizon=HorizonState(envs=tuple(dict.fromkeys(entry.name for entry in config.envs))))
        self.planned = self.progress
        self.queue = CollectionQueue[Collection](lambda: self.parts.engine.policy_version, config.trainer.max_staleness)
        self.metrics: dict[str, float] = {}

    async def run(self) -> RunSummary:
        """Train to the last step."""
        began, total = time.monotonic(), self.config.trainer.num_steps
        try:
            await self.start()
            while (step := self.progress.step) < total:
                for ahead in self.queue.admitted(step, total):
                    self.queue.begin(ahead, self.collector.collect(await self.plan(ahead)))
                await self.update(*await self.queue.take(step))
                await self.sync_weights()
                await self.evaluate()
                self.save()
        finally:
            await self.close()
        return RunSummary(
            run_dir=str(self.run_dir.path),
            steps=self.progress.step,
            seconds=time.monotonic() - began,
            metrics=self.metrics,
            evaluations=self.run_dir.evaluations(),
        )

    async def start(self) -> None:
        """Get ready: tasks and engine; then the checkpoint, or an evaluation of where the run begins."""
        statistics = await self.collector.open()
        await self.evaluator.open()
        self.run_dir.open()
        await self.parts.engine.start()
        if self.run_dir.checkpoint:
            self._restore(self.run_dir.checkpoint)
            await self.sync_weights()
            return
        self.progress = self.planned = self.progress.model_copy(update={"statistics": statistics})
        if self.config.trainer.eval_every:
            await self._evaluate()
            self.run_dir.metrics.write(0, self.metrics)

    async def plan(self, step: int) -> Plan:
        """Choose the horizon of a step, then its tasks."""
        ahead = max(self.progress, self.planned, key=lambda progress: progress.step)
        plan = await self.collector.plan(step, ahead, self.progress)
        for reason in plan.reasons:
            self.observer.on_note(f"step {step + 1}: horizon of {reason}")
        self.run_dir.decide(step + 1, plan.caps, plan.reasons)
        self.planned = plan.after
        return plan

    async def update(self, collection: Collection, staleness: int) -> None:
        """Advantages, then the optimiser's steps; what was seen is what the next choices rest on."""
        self.run_dir.record(collection.plan.after.step, collection.groups)
        began, rewards = time.monotonic(), self.config.rewards()
        self.metrics = collection_metrics(collection, rewards)
        if self.config.trainer.mode != "rollout":
            self.metrics |= await asyncio.to_thread(self._train, collection)
        self.metrics |= {"train/staleness": float(staleness), "time/update": time.monotonic() - began}
        self.progress = seen(self.progress, collection, self.metrics, self.config)

    async def sync_weights(self) -> None:
        """Hand the weights to the engine, under the number of steps that made them."""
        await self.parts.engine.update_weights(self.parts.policy.named_weights(), self.progress.step)

    async def evaluate(self) -> None:
        """Evaluate every `eval_every` steps and at the end; then the step is told and its metrics are written."""
        step, trainer = self.progress.step, self.config.trainer
        if trainer.eval_every and (step % trainer.eval_every == 0 or step == trainer.num_steps):
            await self._evaluate()
        self.run_dir.metrics.write(step, self.metrics)
        self.observer.on_step(step, trainer.num_steps, self.metrics)

    def save(self) -> None:
        """Write a checkpoint every `save_every` steps and at the end."""
        step, trainer = self.progress.step, self.config.trainer
        if step == trainer.num_steps or (trainer.save_every and step % trainer.save_every == 0):
            algorithm = self.parts.learner.algorithm.state()
            self.run_dir.save(self.progress, self.parts.policy, self.parts.tokenizer, algorithm)

    async def close(self) -> None:
        """Stop collecting and generating; close the files."""
        await self.queue.close()
        await self.parts.engine.close()
        self.run_dir.close()

    def _train(self, collection: Collection) -> dict[str, float]:
        """Update the policy; where the gradient was not finite, find out why, and end a run that is lost."""
        learner, step = self.parts.learner, collection.plan.after.step
        prepared = learner.prepare(collection.trained)
        metrics = learner.update(step - 1, prepared)
        if skipped := int(metrics["train/skipped_steps"]):
            episodes = culprits(learner, prepared)
            self.observer.on_note(describe(step, skipped, episodes))
            most, places = self.config.trainer.max_skipped_steps, [self.run_dir.path / "trajectories"]
            if self.config.trainer.replay:
                places = [Path(self.config.trainer.replay)]
            stop_if_lost(step, in_a_row(self.progress.skipped, metrics), most, episodes, places)
        return metrics

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.progress = self.planned = checkpoint.state.progress
        self.parts.policy.load(checkpoint.trained, checkpoint.optimizer)
        self.parts.learner.algorithm.load_state(checkpoint.state.algorithm)
        if self.parts.learner.algorithm.restarts:
            self.parts.learner.recall(self.run_dir.recorded())
        checkpoint.restore_rng()

    async def _evaluate(self) -> None:
        found = await self.evaluator.evaluate(self.progress.step)
        self.metrics |= found.logged
        self.observer.on_eval(self.progress.step, found.metrics)
