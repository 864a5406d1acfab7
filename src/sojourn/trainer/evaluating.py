"""The periodic evaluation of a run: the same episodes each time, under the weights that the engine holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from sojourn.client.interface import Envs
from sojourn.evaluation.evaluate import evaluate
from sojourn.evaluation.tasks import EvalTask, eval_tasks
from sojourn.rollout.player import Player
from sojourn.trainer.config import TrainConfig
from sojourn.trainer.offline.config import OfflineConfig
from sojourn.trainer.patience import Patience
from sojourn.trainer.run_dir import RunDir


class Evaluated(NamedTuple):
    """What an evaluation found."""

    metrics: dict[str, float]
    """As the report names them."""

    logged: dict[str, float]
    """The same as a step's metrics, with the time it took."""


class Evaluator:
    """Evaluates a run and keeps the results in its directory.

    Args:
        config: of the run.
        envs: the servers of its environments.
        player: of the run; evaluations have their own temperature.
        run_dir: where the results go.
        on_note: told of what a person should know.
    """

    def __init__(
        self,
        config: TrainConfig | OfflineConfig,
        envs: Envs,
        player: Player,
        run_dir: RunDir,
        on_note: Callable[[str], None],
    ) -> None:
        self.config = config
        self.envs = envs
        sampling = player.sampling.model_copy(update={"temperature": config.eval.temperature})
        self.player = replace(player, sampling=sampling)
        self.run_dir = run_dir
        self.tasks: list[EvalTask] = []
        self.on_note = on_note
        self.patience = Patience(envs, config.rollout.patience_s, on_note)

    async def open(self) -> None:
        """Choose the episodes, if the run evaluates at all.

        Raises:
            UsageError: there is no such view, split or family.
        """
        if not self.config.trainer.eval_every:
            return
        options = self.config.eval
        found: dict[str, EvalTask] = {}  # what two entries share is one episode
        for entry in self.config.envs:
            tasks = await eval_tasks(
                self.envs,
                entry.name,
                split=entry.eval_split or options.split,
                episodes=options.episodes,
                view=entry.view,
                families=entry.families,
                init=entry.init,
                seed=options.seed,
            )
            found |= {task.key: task for task in tasks}
        self.tasks = list(found.values())

    async def evaluate(self, step: int) -> Evaluated:
        """Play, and keep what came of it under `step`; servers that are gone are waited for.

        Raises:
            TransportError: every episode was lost to infrastructure, twice.
        """
        options, began = self.config.eval, time.monotonic()
        evaluation = await evaluate(
            self.player,
            self.tasks,
            horizon=options.horizon,
            concurrency=options.concurrency,
            deterministic=self.config.rollout.deterministic,
            seed=options.seed,
            before_again=self._again,
        )
        self.run_dir.write_evaluation(step, evaluation)
        metrics = evaluation.metrics()
        logged = {f"eval/{name}": value for name, value in metrics.items()}
        return Evaluated(metrics, logged | {"time/eval": time.monotonic() - began})

    async def _again(self) -> None:
        self.on_note("episodes of the evaluation were lost to infrastructure: playing them again")
        await self.patience.with_servers(self.envs.specs)
