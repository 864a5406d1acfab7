"""The loop over fixed data: load, then batch after batch: update, evaluate, save.

A step is one optimiser step. Everything that a step depends on follows from its number, so that a resumed run is the
uninterrupted one.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import torch

from sojourn.algorithms import registry
from sojourn.client.interface import Envs
from sojourn.engines import models
from sojourn.engines.hf import HFEngine
from sojourn.protocol.errors import UsageError
from sojourn.rollout.horizon import HorizonState
from sojourn.rollout.renderer import Renderer
from sojourn.trainer.build import player_of
from sojourn.trainer.checkpoint import Checkpoint, Progress
from sojourn.trainer.divergence import describe
from sojourn.trainer.evaluating import Evaluator
from sojourn.trainer.loop import Observer, RunSummary
from sojourn.trainer.offline.config import OfflineConfig
from sojourn.trainer.offline.data import Loader
from sojourn.trainer.offline.learner import OfflineLearner
from sojourn.trainer.offline.order import batch_at, steps_in
from sojourn.trainer.offline.rows import Example
from sojourn.trainer.policy import TrainPolicy
from sojourn.trainer.run_dir import RunDir


class OfflineTrainer:
    """One run.

    Args:
        config: what to do.
        envs: the servers of its environments, where it needs any.
        run_dir: where everything goes; see `run_dir`.
        resume: continue the run that is there.
        observer: told of every step.

    Raises:
        UsageError: the directory holds a run already, or (resuming) none, or one of another config; an unknown model,
            or one whose rows cannot be packed.
    """

    def __init__(self, config: OfflineConfig, envs: Envs, *, run_dir: Path, resume: bool, observer: Observer) -> None:
        self.config = config
        self.observer = observer
        self.run_dir = RunDir(run_dir, config, resume=resume, on_note=observer.on_note)
        source = models.resolve(config.model.name)
        self.tokenizer = models.load_tokenizer(source)
        model = models.load_model(source, dtype=config.model.dtype, device=config.model.device)
        self.engine = HFEngine(
            model, name=f"hf:{source.name}", config=config.engine, share=not config.trainer.eval_every
        )
        renderer = Renderer(self.tokenizer)
        torch.manual_seed(config.seed)
        self.policy = TrainPolicy(model, config.optim, lora=config.model.lora, autocast=config.model.autocast)
        method = registry.load_offline(config.algorithm.name)(config.algorithm)
        loop = config.trainer
        self.learner = OfflineLearner(self.policy, method, token_budget=loop.token_budget, packing=loop.packing)
        longest = min(loop.max_tokens or self.engine.max_context, self.engine.max_context)
        self.loader = Loader(config, envs, renderer, run_dir, longest, observer.on_note, resume=resume)
        player = player_of(config, envs, self.engine, renderer)
        self.evaluator = Evaluator(config, envs, player, self.run_dir, observer.on_note)
        self.progress = Progress(horizon=HorizonState(envs=()))
        self.metrics: dict[str, float] = {}

    async def run(self) -> RunSummary:
        """Train to the last step."""
        began = time.monotonic()
        try:
            await self.start()
            while self.progress.step < self.total:
                await asyncio.to_thread(self.update)
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
        """Get ready: data and engine; then the checkpoint, or an evaluation of where the run begins."""
        loop = self.config.trainer
        await self.evaluator.open()
        self.examples, self.held_out = self._divided(await self.loader.load())
        self.run_dir.open()
        self.loader.keep()
        self.total = steps_in(loop.epochs, len(self.examples), loop.batch_size)
        if self.learner.method.needs_reference:
            # Before any checkpoint: the reference is the model that the run started from.
            await asyncio.to_thread(self.learner.score, [*self.examples, *self.held_out])
        await self.engine.start()
        if self.run_dir.checkpoint:
            self._restore(self.run_dir.checkpoint)
            return
        if loop.eval_every or self.held_out:
            await self._evaluate()
            self.run_dir.metrics.write(0, self.metrics)

    def update(self) -> None:
        """One batch.

        Raises:
            UsageError: too many gradients in a row were not finite.
        """
        step, loop, began = self.progress.step, self.config.trainer, time.monotonic()
        chosen = batch_at(step, len(self.examples), loop.batch_size, seed=self.config.seed)
        scale = self.config.optim.scale(step / self.total)
        batch = [self.examples[i] for i in chosen]
        self.metrics = self.learner.step(batch, step, scale)
        skipped = self.progress.skipped + 1 if self.metrics["train/skipped_steps"] else 0
        if skipped:
            note = describe(step + 1, 1, self.learner.culprits(batch))
            self.observer.on_note(note)
            if skipped >= loop.max_skipped_steps:
                raise UsageError(
                    f"stopped after {skipped} steps in a row whose gradient was not finite, the last {note}: mend the "
                    "data, lower optim.lr, or resume from a checkpoint before it went wrong"
                )
        done = (step + 1) * loop.epochs / self.total
        self.metrics |= {"train/epoch": done, "time/update": time.monotonic() - began}
        self.progress = self.progress.model_copy(update={"step": step + 1, "skipped": skipped})

    async def evaluate(self) -> None:
        """Evaluate every `eval_every` steps and at the end; then the step is told and its metrics are written."""
        step, every = self.progress.step, self.config.trainer.eval_every
        if step == self.total or (every and step % every == 0):
            await self._evaluate()
        self.run_dir.metrics.write(step, self.metrics)
        self.observer.on_step(step, self.total, self.metrics)

    def save(self) -> None:
        """Write a checkpoint every `save_every` steps and at the end."""
        step, every = self.progress.step, self.config.trainer.save_every
        if step == self.total or (every and step % every == 0):
            self.run_dir.save(self.progress, self.policy, self.tokenizer)

    async def close(self) -> None:
        """Stop generating; close the files."""
        await self.engine.close()
        self.run_dir.close()

    def _divided(self, examples: list[Example]) -> tuple[list[Example], list[Example]]:
        """Those to learn from, and those held out: the same ones in every run over the same data."""
        held = self.config.trainer.held_out
        if held >= len(examples):
            raise UsageError(f"trainer.held_out is {held} of {len(examples)} examples: nothing is left to learn from")
        chosen = set(batch_at(0, len(examples), held, seed=0)) if held else set()
        return (
            [example for i, example in enumerate(examples) if i not in chosen],
            [example for i, example in enumerate(examples) if i in chosen],
        )

    async def _evaluate(self) -> None:
        step = self.progress.step
        if self.held_out:
            found = await asyncio.to_thread(self.learner.measure, self.held_out)
            self.metrics |= {f"held_out/{name}": value for name, value in found.items()}
        if self.config.trainer.eval_every:
            await self.engine.update_weights(self.policy.named_weights(), step)
            evaluated = await self.evaluator.evaluate(step)
            self.metrics |= evaluated.logged
            self.observer.on_eval(step, evaluated.metrics)

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.progress = checkpoint.state.progress
        self.policy.load(checkpoint.trained, checkpoint.optimizer)
        checkpoint.restore_rng()
