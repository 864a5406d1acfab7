"""A small world for the service's tests: a counter with every behaviour that a service must survive."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from sojourn.envs.base import Env, EnvConfig, EnvService, TaskIndex, digest, pack_state, unpack_state
from sojourn.protocol.env import EnvSpec, Info, Observation, Snapshot, Solution, StepResult, TaskRef
from sojourn.protocol.errors import InvalidInit, NotSupported, UnknownTask

GOAL = 5


class CounterConfig(EnvConfig):
    padding: int = 0
    """Bytes that make a snapshot large."""
    execution: str = "inline"
    name: str = "counter"
    tame: bool = False
    """No trouble, whatever is said: for fuzzers, which find the words for it."""


class CounterTasks(TaskIndex):
    def __init__(self, env: str) -> None:
        self._env = env

    def resolve(self, task: TaskRef) -> TaskRef:
        index = task.index
        if index is None or index >= 10:
            raise UnknownTask(f"no task {task}")
        return TaskRef(self._env, str(index))

    def family(self, task: TaskRef) -> str:
        return "even" if int(task.key) % 2 == 0 else "odd"

    def select(self, split: str, families: Sequence[str] | None = None) -> Sequence[TaskRef]:
        start = {"train": 0, "test": 8}[split]
        refs = [TaskRef(self._env, str(i)) for i in range(start, 8 if split == "train" else 10)]
        for family in families or []:
            if family not in {"even", "odd"}:
                raise ValueError(f"no family {family!r}")
        return [ref for ref in refs if not families or self.family(ref) in families]


def checked_count(change: dict[str, Any]) -> int:
    count = change.get("count")
    if set(change) != {"count"} or type(count) is not int or not 0 <= count <= GOAL:
        raise InvalidInit(f"not a count: {change}")
    return count


class CounterWorld(Env):
    """`add`: one more. At GOAL the episode ends. Other words make trouble on purpose."""

    def __init__(self, service: CounterService, view: str) -> None:
        self.service = service
        self.view = view
        self.count = 0
        self.task = "0"
        service.open_worlds += 1

    async def reset(self, task: TaskRef, *, seed: int | None = None, init: dict[str, Any] | None = None) -> Observation:
        self.task, self.count = task.key, 0
        if init is not None:
            self.count = checked_count(init)
        return self._observe()

    async def step(self, action: str) -> StepResult:
        if self.count >= GOAL:
            return StepResult("already there", 0.0, True, False, self._info())
        words = action.split()
        if self.service.settings.tame and words != ["add"]:
            words = ["echo", action]
        match words:
            case ["add"]:
                self.count += 1
                self.service.acted += 1
            case ["sleep", seconds]:
                await asyncio.sleep(float(seconds))
            case ["block", seconds]:
                self.service.blocked += 1
                time.sleep(float(seconds))  # noqa: ASYNC251 - what a threaded world does
                self.service.blocked -= 1
            case ["hold"]:
                self.service.blocked += 1
                assert self.service.gate.wait(60), "the test never let go"
                self.service.blocked -= 1
            case ["wait"]:
                while not self.service.gate.is_set():  # noqa: ASYNC110 - one gate for both kinds of world
                    await asyncio.sleep(0.005)
            case ["raise"]:
                self.count = -99
                raise KeyError("broken world")
            case ["cancel"]:
                raise asyncio.CancelledError
            case ["set"]:
                return StepResult("a set", 0.0, False, False, {"score": 0.0, "raw": {"x": {1, 2}}})
            case ["nan"]:
                return StepResult("nan", float("nan"), False, False, self._info())
            case ["die"]:
                os._exit(7)
            case ["thread"]:
                return StepResult(threading.current_thread().name, 0.0, False, False, self._info())
            case ["echo", *_]:
                return StepResult(action, 0.0, False, False, self._info())
            case _:
                return StepResult("no such action", 0.0, False, False, {**self._info(), "invalid": True})
        done = self.count >= GOAL
        return StepResult(self._observe().text, 1.0 if done else 0.0, done, False, self._info())

    async def available_actions(self) -> list[str] | None:
        return ["add"]

    async def inject(self, change: dict[str, Any]) -> Observation:
        self.count = checked_count(change)
        self.service.acted += 1
        return self._observe()

    async def solve(self) -> Solution:
        if self.task == "9":
            raise NotSupported("task 9 has no scripted solution")
        if self.task == "7":  # in a thread: one that takes long to work out
            self.service.solving += 1
            assert self.service.gate.wait(60), "the test never let go"
        return Solution(["add"] * (GOAL - self.count))

    async def snapshot(self) -> Snapshot:
        state = {"count": self.count, "task": self.task, "padding": "x" * self.service.settings.padding}
        return pack_state(self.service.spec.name, "1", "state", state)

    async def restore(self, snapshot: Snapshot) -> Observation:
        state = unpack_state(snapshot, self.service.spec.name, "1", "state")
        self.count, self.task = state["count"], state["task"]
        self.service.acted += 1
        return self._observe()

    async def close(self) -> None:
        self.service.open_worlds -= 1
        self.service.world_closed.set()

    def _observe(self) -> Observation:
        text = f"{self.count}" if self.view == "compact" else f"The counter shows {self.count}."
        return Observation(text, self._info())

    def _info(self) -> Info:
        success = self.count >= GOAL
        return {"score": float(success), "success": success, "state_key": digest([self.task, self.count])}


class CounterService(EnvService):
    Config = CounterConfig

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        assert isinstance(self.config, CounterConfig)
        self.settings = self.config
        self.open_worlds = 0
        self.world_closed = asyncio.Event()
        self.blocked = 0
        self.solving = 0
        self.gate = threading.Event()
        """What `hold` (in a thread) and `wait` (inline) wait for."""
        self.acted = 0
        self.opened = 0
        self.closed = 0
        self.spec = EnvSpec.model_validate(
            {
                "name": self.settings.name,
                "version": "1",
                "snapshot": "state",
                "execution": self.settings.execution,
                "views": ("full", "compact"),
                "action_help": {"full": "add", "compact": "add"},
                "default_horizon": 10,
                "splits": {"train": 8, "test": 2},
                "families": ("even", "odd"),
            }
        )

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1

    def tasks(self) -> TaskIndex:
        return CounterTasks(self.spec.name)

    def create(self, view: str | None = None) -> Env:
        return CounterWorld(self, view or "full")
