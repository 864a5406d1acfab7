"""Missions: the instruction tree of a level and minigrid's rules of success, oddities included.

A port of `minigrid.envs.babyai.core.verifier`. What minigrid keeps in the instruction objects (which half is done, what
was carried when a clause was last verified, where described objects were last seen) is the `Progress` of an episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sojourn.envs.babyai import codes

Kind = Literal["goto", "open", "pickup", "putnext", "before", "after", "and"]
Status = Literal["continue", "success", "failure"]

PICKUP, DROP, TOGGLE = 3, 4, 5


@dataclass(frozen=True, slots=True)
class Clause:
    """One node of the tree.

    For `before`, `after` and `and` the two numbers are nodes; otherwise they are descriptions (only `putnext` uses the
    second one: what the first is to be put next to).
    """

    kind: Kind
    strict: bool
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Description:
    """The objects that a noun phrase matched when the episode began, and the cells where they were."""

    objects: frozenset[int]
    cells: frozenset[int]
    walls: frozenset[int]
    """Cells of walls among them: to minigrid a wall is a grey object, if only the colour is given."""


@dataclass(frozen=True, slots=True)
class Mission:
    """A whole instruction; the last clause is the root."""

    text: str
    clauses: tuple[Clause, ...]
    descriptions: tuple[Description, ...]

    @property
    def root(self) -> int:
        return len(self.clauses) - 1


@dataclass(slots=True)
class Progress:
    """How far an episode has come in its mission."""

    done: list[int]
    """For each clause of two: bit 1 when the first half has succeeded, bit 2 for the second."""
    held: list[int]
    """For each clause: the object carried when it was last verified (0: none)."""
    cells: list[frozenset[int]]
    """For each description: where its objects were at the start or at the last drop. Stale in between, as in minigrid:
    going to the place that an object was taken from counts as going to the object."""

    @classmethod
    def start(cls, mission: Mission) -> Progress:
        count = len(mission.clauses)
        return cls([0] * count, [0] * count, [d.cells for d in mission.descriptions])

    def copy(self) -> Progress:
        return Progress(self.done.copy(), self.held.copy(), self.cells.copy())


@dataclass(slots=True)
class Scene:
    """What a rule may look at, just after an action."""

    action: int
    front: int
    """The cell that the agent faces."""
    front_object: int
    """The object in it (0: none)."""
    front_look: int
    carrying: int
    places: list[int]
    """Where each object was last put down (-1: it was picked up since)."""
    stride: int


def forget_places(mission: Mission, progress: Progress, ids: Mapping[int, int]) -> None:
    """After any attempt to drop, minigrid looks again where the described objects are."""
    for index, description in enumerate(mission.descriptions):
        seen = frozenset(cell for cell, thing in ids.items() if thing in description.objects)
        progress.cells[index] = seen | description.walls


def verify(mission: Mission, progress: Progress, scene: Scene, node: int) -> Status:
    """Whether clause `node` has just succeeded or failed. Changes `progress`."""
    kind = mission.clauses[node].kind
    if kind == "goto":
        return "success" if scene.front in progress.cells[mission.clauses[node].first] else "continue"
    if kind == "open":
        return _open(mission, scene, node)
    if kind == "pickup":
        return _pickup(mission, progress, scene, node)
    if kind == "putnext":
        return _put_next(mission, progress, scene, node)
    if kind == "and":
        return _both(mission, progress, scene, node)
    return _in_order(mission, progress, scene, node)


def _open(mission: Mission, scene: Scene, node: int) -> Status:
    clause = mission.clauses[node]
    if scene.action != TOGGLE:
        return "continue"
    faces_door = codes.is_door(scene.front_look)
    if (
        faces_door
        and codes.state_of(scene.front_look) == "open"
        and scene.front_object in mission.descriptions[clause.first].objects
    ):
        return "success"
    return "failure" if clause.strict and faces_door else "continue"


def _pickup(mission: Mission, progress: Progress, scene: Scene, node: int) -> Status:
    clause = mission.clauses[node]
    before, progress.held[node] = progress.held[node], scene.carrying
    if scene.action != PICKUP:
        return "continue"
    if not before and scene.carrying in mission.descriptions[clause.first].objects:
        return "success"
    return "failure" if clause.strict and scene.carrying else "continue"


def _put_next(mission: Mission, progress: Progress, scene: Scene, node: int) -> Status:
    clause = mission.clauses[node]
    before, progress.held[node] = progress.held[node], scene.carrying
    if clause.strict and scene.action == PICKUP and scene.carrying:
        return "failure"
    if scene.action != DROP or before not in mission.descriptions[clause.first].objects:
        return "continue"
    place, fixed = scene.places[before], progress.cells[clause.second]
    near = (place - 1, place + 1, place - scene.stride, place + scene.stride)
    return "success" if place >= 0 and any(cell in fixed for cell in near) else "continue"


def _both(mission: Mission, progress: Progress, scene: Scene, node: int) -> Status:
    clause = mission.clauses[node]
    # A half that fails is only tried again: minigrid lets an "and" outlive the failure of a strict clause.
    for bit, half in ((1, clause.first), (2, clause.second)):
        if not progress.done[node] & bit and verify(mission, progress, scene, half) == "success":
            progress.done[node] |= bit
    return "success" if progress.done[node] == 3 else "continue"


def _in_order(mission: Mission, progress: Progress, scene: Scene, node: int) -> Status:
    clause = mission.clauses[node]
    early, late = (clause.first, clause.second) if clause.kind == "before" else (clause.second, clause.first)
    bit = 1 if clause.kind == "before" else 2
    if not progress.done[node] & bit:
        status = verify(mission, progress, scene, early)
        if status == "failure":
            return "failure"
        if status == "continue":
            out_of_turn = clause.strict and verify(mission, progress, scene, late) == "success"
            return "failure" if out_of_turn else "continue"
        progress.done[node] |= bit
    return verify(mission, progress, scene, late)
