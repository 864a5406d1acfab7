"""A crafting game of fifteen recipes: TextCraft's rules and compact view on a recipe book of our own.

An episode is a goal and what one happens to hold at the start, so that no two tasks need be alike: `crafting:axe/17`.
Families are the depths of the goals' recipes; the scripted solution takes 1 action at the least and 12 at the most.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from sojourn.envs.base import EnvConfig, EnvService, TaskIndex
from sojourn.envs.textcraft.env import TextCraftEnv
from sojourn.envs.textcraft.episode import Episode
from sojourn.envs.textcraft.views import VIEWS, Kind, Reply
from sojourn.protocol.env import EnvSpec, Observation, Solution, TaskRef
from sojourn.protocol.errors import InvalidInit, NotFound, NotSupported, UnknownTask

NAME = "crafting"
BOOK: dict[str, dict[str, int]] = {
    "plank": {"log": 1},
    "brick": {"clay": 1},
    "rope": {"fibre": 1},
    "torch": {"coal": 1, "log": 1},
    "ingot": {"ore": 1, "coal": 1},
    "stick": {"plank": 1},
    "wall": {"brick": 1, "stone": 1},
    "net": {"rope": 1, "stone": 1},
    "bow": {"stick": 1, "rope": 1},
    "axe": {"stick": 1, "ingot": 1},
    "oven": {"wall": 1, "torch": 1},
    "trap": {"net": 1, "stick": 1},
    "forge": {"oven": 1, "ingot": 1},
    "drill": {"axe": 1, "ingot": 1},
    "raft": {"trap": 1, "plank": 1},
}
"""Ingredients of each thing that can be made; what nothing makes is there for the taking."""
NUMBERS = {"train": range(20_000), "test": range(20_000, 24_000)}
"""Starts of each goal, by split."""
HELD = 0.15
"""Chance of each thing of the book, the goal and what contains it excepted, to be held at the start."""


class CraftingConfig(EnvConfig):
    solvable: bool = True
    """Tell the scripted solution."""


class CraftingTasks(TaskIndex):
    """`crafting:GOAL/NUMBER`."""

    def __init__(self) -> None:
        self.goals = sorted(BOOK, key=lambda goal: (self.depth(goal), goal))
        self.families = tuple(dict.fromkeys(f"depth{self.depth(goal)}" for goal in self.goals))

    def depth(self, goal: str) -> int:
        """Recipes on the longest way down from a thing."""
        return 1 + max((self.depth(i) for i in BOOK[goal] if i in BOOK), default=0)

    def resolve(self, task: TaskRef) -> TaskRef:
        self.parts(task)
        return task

    def family(self, task: TaskRef) -> str:
        return f"depth{self.depth(self.parts(task)[0])}"

    def select(self, split: str, families: Sequence[str] | None = None) -> Sequence[TaskRef]:
        if split not in NUMBERS:
            raise NotFound(f"no split {split!r} (known: {', '.join(NUMBERS)})")
        if unknown := set(families or ()) - set(self.families):
            raise NotFound(f"no family {min(unknown)!r} (known: {', '.join(self.families)})")
        return _tasks(split, tuple(families) if families is not None else self.families)

    def parts(self, task: TaskRef) -> tuple[str, int]:
        """Goal and number of a task; raises `UnknownTask`."""
        goal, _, number = task.key.partition("/")
        known = task.env == NAME and goal in BOOK and number.isascii() and number.isdigit() and len(number) < 6
        if not known or int(number) >= NUMBERS["test"].stop or str(int(number)) != number:
            raise UnknownTask(f"no task {task.key[:80]!r} (expected GOAL/NUMBER, as in crafting:axe/17)")
        return goal, int(number)

    def init(self, task: TaskRef) -> dict[str, Any]:
        """The task as TextCraft's `init`: the whole book, the goal, what is held."""
        goal, number = self.parts(task)
        rng = random.Random(f"{goal}/{number}")
        possible = [thing for thing in things() if thing != goal and goal not in _parts_of(thing)]
        held = {thing: 1 for thing in possible if rng.random() < HELD}
        return {**_book(), "goal": goal, "inventory": held, "distractors": 0}


class CraftingEnv(TextCraftEnv):
    """TextCraft, started from what the task says."""

    def __init__(self, tasks: CraftingTasks, view: str | None, solvable: bool) -> None:
        super().__init__(tasks, view)  # type: ignore[arg-type]  # it asks a task index for nothing but names
        self._starts, self._solvable = tasks, solvable

    async def reset(self, task: TaskRef, *, seed: int | None = None, init: dict[str, Any] | None = None) -> Observation:
        if init:
            raise InvalidInit("crafting takes no init: its tasks say how they start")
        return await super().reset(task, seed=seed, init=self._starts.init(task))

    async def solve(self) -> Solution:
        if not self._solvable:
            raise NotSupported("served without its scripted solution")
        return await super().solve()

    def _text(self, episode: Episode) -> str:
        """The opening also says what is held: no action has told the agent yet."""
        text = super()._text(episode)
        if episode.reply.kind is not Kind.START:
            return text
        return f"{text}\n{self._view.reply(Reply(Kind.INVENTORY), episode.inventory, episode.world.book)}"


class CraftingService(EnvService):
    """The game."""

    Config = CraftingConfig
    config: CraftingConfig

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        tasks = _index()
        self.spec = EnvSpec(
            name=NAME,
            version="1",
            snapshot="state",
            views=("compact",),
            action_help={"compact": VIEWS["compact"].help},
            default_horizon=20,
            solvable=self.config.solvable,
            splits={split: len(tasks.select(split)) for split in NUMBERS},
            families=tasks.families,
        )

    def tasks(self) -> CraftingTasks:
        return _index()

    def create(self, view: str | None = None) -> CraftingEnv:
        return CraftingEnv(_index(), view or "compact", self.config.solvable)


@cache
def _index() -> CraftingTasks:
    return CraftingTasks()


@cache
def _tasks(split: str, families: tuple[str, ...]) -> Sequence[TaskRef]:
    index = _index()
    goals = [goal for goal in index.goals if f"depth{index.depth(goal)}" in families]
    return [TaskRef(NAME, f"{goal}/{number}") for number in NUMBERS[split] for goal in goals]


@cache
def _book() -> dict[str, Any]:
    return {"recipes": [{"output": output, "ingredients": parts} for output, parts in BOOK.items()]}


@cache
def things() -> tuple[str, ...]:
    """All there is."""
    return tuple(sorted({*BOOK, *(part for parts in BOOK.values() for part in parts)}))


@cache
def _parts_of(thing: str) -> frozenset[str]:
    """Everything that goes into a thing, however deep."""
    return frozenset({part for own in BOOK.get(thing, {}) for part in (own, *_parts_of(own))})
