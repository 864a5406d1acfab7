"""A staircase for the rollout's tests: partial rewards, refusals, talk of any length, an end of the world's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sojourn.envs.base import Env, EnvConfig, EnvService, ReplayEnv, TaskIndex, digest
from sojourn.protocol.env import EnvSpec, Info, Observation, StepResult, TaskRef
from sojourn.protocol.errors import UnknownTask

TOP = 5


class StairsTasks(TaskIndex):
    def resolve(self, task: TaskRef) -> TaskRef:
        if task.index is None or task.index >= 100:
            raise UnknownTask(f"no task {task}")
        return task

    def family(self, task: TaskRef) -> str:
        return "even" if int(task.key) % 2 == 0 else "odd"

    def select(self, split: str, families: Sequence[str] | None = None) -> Sequence[TaskRef]:
        return [TaskRef("stairs", str(i)) for i in range(100)]


class Stairs(ReplayEnv):
    """`up`: one step and 0.2 of the score. At the top the episode ends; `leave` ends it by the world's own cap."""

    def __init__(self, service: StairsService, view: str) -> None:
        super().__init__()
        self.service, self.spec, self.view = service, service.spec, view
        self.steps = 0
        self.task = ""
        service.came()

    async def _reset(self, task: TaskRef, seed: int | None, init: dict[str, Any] | None) -> Observation:
        self.task, self.steps = str(task), (init or {}).get("steps", 0)
        return Observation(f"You stand on step {self.steps}.", self._info())

    async def _step(self, action: str) -> StepResult:
        self.service.actions.append(action)
        if action in self.service.broken:
            self.service.broken.remove(action)
            raise RuntimeError("the stairs collapsed")
        if action == "up":
            self.steps += 1
            done = self.steps >= TOP
            return StepResult(f"You stand on step {self.steps}.", 1 / TOP, done, False, self._info())
        if action == "leave":
            return StepResult("You left.", 0.0, False, True, self._info())
        if action.startswith("say "):
            return StepResult(action[4:], 0.0, False, False, self._info())
        if action.startswith("talk "):
            return StepResult("la " * int(action[5:]), 0.0, False, False, self._info())
        return StepResult(f"You cannot {action}.", 0.0, False, False, {**self._info(), "invalid": True})

    async def close(self) -> None:
        self.service.went()

    def _info(self) -> Info:
        return {
            "score": self.steps / TOP,
            "success": self.steps >= TOP,
            "state_key": digest([self.task, self.steps]),
        }


class StairsService(EnvService):
    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        self.live = 0
        """Worlds that exist."""
        self.vacant = asyncio.Event()
        self.vacant.set()
        self.actions: list[str] = []
        """Every action that reached a world."""
        self.broken: list[str] = []
        """Actions that make a world raise, once each."""
        self.spec = EnvSpec(
            name="stairs",
            version="1",
            snapshot="replay",
            views=("full",),
            action_help={"full": "Climb the stairs with up."},
            default_horizon=10,
            solvable=False,
            splits={"train": 100},
            families=("even", "odd"),
        )

    async def empty(self) -> None:
        """Wait until no world is left (the service closes them after its reply)."""
        await self.vacant.wait()

    def came(self) -> None:
        self.live += 1
        self.vacant.clear()

    def went(self) -> None:
        self.live -= 1
        if not self.live:
            self.vacant.set()

    def tasks(self) -> TaskIndex:
        return StairsTasks()

    def create(self, view: str | None = None) -> Env:
        return Stairs(self, view or "full")
