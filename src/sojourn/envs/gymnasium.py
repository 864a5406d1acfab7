"""Any of our environments as a plain, synchronous `gymnasium.Env` in this very process: no server, no sessions.

```python
env = sojourn.envs.gymnasium.make("babyai")
observation, info = env.reset(seed=1)
observation, reward, terminated, truncated, info = env.step("turn left")
```
"""

from __future__ import annotations

import asyncio
import string
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from pydantic import ValidationError

from sojourn.envs import registry
from sojourn.envs.base import Env, EnvService
from sojourn.protocol.env import Info, Observation, Snapshot, Solution, TaskRef
from sojourn.protocol.errors import UsageError
from sojourn.protocol.validation import first_problem

T = TypeVar("T")
LONGEST_ACTION, LONGEST_OBSERVATION = 1 << 12, 1 << 20
"""Characters that the spaces say; a longer action is the environment's business."""


class AnyText(spaces.Text):
    """Text of any characters; samples are printable ASCII."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, charset=string.printable)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


class TextEnv(gymnasium.Env[str, str]):
    """One episode at a time.

    `reset(seed=...)` chooses the task from the split and seeds the world; `reset(options={"task": ..., "init": ...})`
    names the task, and how it starts. `info` is the environment's own, with `task` and `family` beside it.

    Args:
        service: the environment, not yet opened; `close` closes it.
        split: where tasks come from.
        families: only these.
        view: one of the views that the environment has; None is its first.

    Raises:
        UsageError: an unknown view, or no task to play.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        service: EnvService,
        *,
        split: str,
        families: Sequence[str] | None = None,
        view: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        if view is not None and view not in service.spec.views:
            raise UsageError(f"{service.spec.name} has no view {view!r} (known: {', '.join(service.spec.views)})")
        self.service = service
        self.render_mode = render_mode
        self.observation_space = AnyText(LONGEST_OBSERVATION)
        self.action_space = AnyText(LONGEST_ACTION)
        self._tasks = service.tasks().select(split, families)
        if not len(self._tasks):
            raise UsageError(f"no task of {service.spec.name} in split {split!r} is of {families}")
        self._thread = _LoopThread(service.spec.name)
        try:
            self._thread.run(service.open())
        except BaseException:
            self._thread.stop()
            raise
        self._world: Env = service.create(view)
        self._task = self._tasks[0]
        self._seen = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        options = dict(options or {})
        named, init = options.pop("task", None), options.pop("init", None)
        if options:
            raise UsageError(f"reset knows the options task and init, not {', '.join(options)}")
        if named is None:
            self._task = self._tasks[int(self.np_random.integers(len(self._tasks)))]
        else:
            self._task = self.service.tasks().resolve(TaskRef.parse(named))
        world_seed = int(self.np_random.integers(2**31))
        return self._observed(self._thread.run(self._world.reset(self._task, seed=world_seed, init=init)))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        result = self._thread.run(self._world.step(action))
        self._seen = result.observation
        return result.observation, result.reward, result.terminated, result.truncated, self._info(result.info)

    def render(self) -> str:
        """The latest observation."""
        return self._seen

    def available_actions(self) -> list[str] | None:
        """Actions that the world would take now, or None when it cannot list them."""
        return self._thread.run(self._world.available_actions())

    def solve(self) -> Solution:
        """The scripted solution from here; raises `NotSupported` where there is none."""
        return self._thread.run(self._world.solve())

    def snapshot(self) -> Snapshot:
        """The present state as portable bytes."""
        return self._thread.run(self._world.snapshot())

    def restore(self, snapshot: Snapshot) -> tuple[str, dict[str, Any]]:
        """Continue from a snapshot; raises `SnapshotInvalid`. `info["task"]` is the last reset's."""
        return self._observed(self._thread.run(self._world.restore(snapshot)))

    def close(self) -> None:
        """Let go of the world and of the environment; again is no error."""
        if self._thread.alive:
            self._thread.run(self._world.close())
            self._thread.run(self.service.close())
            self._thread.stop()

    def _observed(self, observation: Observation) -> tuple[str, dict[str, Any]]:
        self._seen = observation.text
        return observation.text, self._info(observation.info)

    def _info(self, info: Info) -> dict[str, Any]:
        return {**info, "task": str(self._task), "family": self.service.tasks().family(self._task)}


def make(
    env: str,
    *,
    split: str | None = None,
    families: Sequence[str] | None = None,
    view: str | None = None,
    render_mode: str | None = None,
    **config: Any,
) -> TextEnv:
    """An environment by name.

    Args:
        env: a registered name, such as `babyai`.
        split: where `reset` takes tasks from; None is `train`, or the first where there is none of that name.
        families: only tasks of these families.
        view: the rendering; None is the environment's first.
        render_mode: None or `ansi`.
        config: the environment's own options.

    Raises:
        UsageError: an unknown environment, view or family, or an option that the environment does not have.
    """
    cls = registry.load(env)
    try:
        service = cls(cls.Config.model_validate(config))
    except ValidationError as error:
        known = ", ".join(cls.Config.model_fields) or "none"
        raise UsageError(f"{env}: {first_problem(error)} (options: {known})") from error
    splits = service.spec.splits
    split = split or ("train" if "train" in splits else next(iter(splits)))
    if split not in splits:
        raise UsageError(f"{env} has no split {split!r} (known: {', '.join(splits)})")
    made = TextEnv(service, split=split, families=families, view=view, render_mode=render_mode)
    again = {"env": env, "split": split, "families": families, "view": view, **config}
    made.spec = EnvSpec(f"sojourn/{env}-v0", entry_point=f"{__name__}:make", kwargs=again)
    return made


class _LoopThread:
    """An event loop in a thread of its own: the caller may have one that runs already, as in a notebook."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"sojourn-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, awaited in the thread."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
