"""The simulator's 7,207 games: 30 tasks in variations, by AgentGym's index or by name, in the simulator's splits."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import chain

import orjson

from sojourn.envs.base import TaskIndex
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import NotFound, UnknownTask

NAME = "sciworld"
SPLITS = ("train", "dev", "test")
_DIGITS = 6


@cache
def sizes() -> dict[str, tuple[int, int, int]]:
    """Variations of each task in train, dev and test, in the simulator's order; each split is a range."""
    table = orjson.loads(files(__package__).joinpath("games.json").read_bytes())
    return {task: (train, dev, test) for task, (train, dev, test) in table["sizes"].items()}


@cache
def indexed() -> dict[str, int]:
    """Tasks that have indices, with the first index of each, in AgentGym's order (it leaves out seven tasks)."""
    table = orjson.loads(files(__package__).joinpath("games.json").read_bytes())
    offsets, at = {}, 0
    for task in table["indexed"]:
        offsets[task] = at
        at += sum(sizes()[task])
    return offsets


def parse(task: TaskRef) -> tuple[str, int]:
    """The simulator's task and its variation; raises `UnknownTask`."""
    if task.env != NAME:
        raise UnknownTask(f"{task.env!r} is not {NAME!r}")
    if task.index is not None:
        return _at(task.index)
    name, _, digits = task.key.rpartition("/")
    if name not in sizes():
        near = difflib.get_close_matches(name or task.key, sizes(), n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise UnknownTask(f"no task {task.key[:80]!r}{hint} (a name and a variation, as in {NAME}:boil/3)")
    total = sum(sizes()[name])
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS and int(digits) < total):
        raise UnknownTask(f"{name} has no variation {digits[:20]!r}, only 0 to {total - 1}")
    return name, int(digits)


def _at(index: int) -> tuple[str, int]:
    for name, offset in indexed().items():
        if index < offset + sum(sizes()[name]):
            return name, index - offset
    last = max(offset + sum(sizes()[name]) for name, offset in indexed().items()) - 1
    raise UnknownTask(f"index {index} is past the last task, {NAME}_{last}")


class SciWorldTasks(TaskIndex):
    """`sciworld_17` by AgentGym's index, `sciworld:boil/17` by name (the canonical one)."""

    def resolve(self, task: TaskRef) -> TaskRef:
        name, variation = parse(task)
        return TaskRef(NAME, f"{name}/{variation}")

    def family(self, task: TaskRef) -> str:
        return parse(task)[0]

    def select(self, split: str, families: Sequence[str] | None = None) -> Sequence[TaskRef]:
        if split not in SPLITS:
            raise NotFound(f"no split {split!r} (known: {', '.join(SPLITS)})")
        if unknown := set(families or ()) - sizes().keys():
            raise NotFound(f"no family {min(unknown)!r} (known: {', '.join(sizes())})")
        chosen = sizes() if families is None else [task for task in sizes() if task in families]
        return list(chain.from_iterable(_part(task, SPLITS.index(split)) for task in chosen))


def _part(task: str, split: int) -> list[TaskRef]:
    start = sum(sizes()[task][:split])
    return [TaskRef(NAME, f"{task}/{variation}") for variation in range(start, start + sizes()[task][split])]
