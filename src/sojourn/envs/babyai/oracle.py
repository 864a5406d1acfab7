"""The scripted solution: knows the map, speaks in macros, and says why.

From any state it works on one want at a time (go there, take this, open that, put it beside), and on what stands in the
way of it: a locked door wants its key, a thing in the passage wants moving, a full hand wants emptying. How it walks is
`walker`'s business. Whatever it finds has been played to success on a copy before it is returned.

It finds no plan where there is none (a key behind its own door, as in some seeds of GoToImpUnlock and Unlock; two doors
in OpenDoorsOrder...Debug, where minigrid fails the second in the very step that opens the first; a strict mission whose
target is walled in by objects that must not be touched), and now and then in a crowd that has to be cleared in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sojourn.envs.babyai import codes
from sojourn.envs.babyai.macros import perform
from sojourn.envs.babyai.sim import FORWARD, LEFT, RIGHT, World
from sojourn.envs.babyai.terrain import BLOCKED, FAR, LOCKED, Terrain, can_unlock, is_spare
from sojourn.envs.babyai.walker import Step, finish, walk
from sojourn.protocol.env import Solution
from sojourn.protocol.errors import NotSupported

MAX_TURNS = 150
_DEPTH = 8
_PRIMITIVES = {LEFT: "turn left", RIGHT: "turn right", FORWARD: "move forward"}


class Style(NamedTuple):
    """Choices that are tried one after another."""

    second_first: bool = False
    """Begin an "and" with its second half."""
    late_drop: bool = False
    """Empty the hand beside the next thing to take, not at once."""


STYLES = (Style(), Style(late_drop=True), Style(second_first=True), Style(True, True))


def solve(world: World) -> Solution:
    """A way to success from here; raises `NotSupported` when none is found. The world is left as it is."""
    if world.over:
        raise NotSupported("the episode is over")
    for style in STYLES:
        steps = _Oracle(world.copy(), style).play()
        if steps is not None:
            return Solution([step.action for step in steps], [step.thought for step in steps])
    raise NotSupported(f"no scripted solution of {world.level.name}/{world.level.seed} from here")


class _Tangled(Exception):
    """A key behind its own door, or worse."""


class _Oracle:
    def __init__(self, world: World, style: Style) -> None:
        self.world, self.style = world, style
        self.reserved: frozenset[int] = frozenset()
        """Cells that nothing else is to be laid on."""

    def play(self) -> list[Step] | None:
        """Play to success, or None where that fails."""
        steps: list[Step] = []
        seen: set[tuple[object, ...]] = set()
        while not self.world.over:
            world = self.world
            memory = world.progress
            pose = (world.pos, world.facing, world.carrying)
            state = (bytes(world.cells), pose, tuple(memory.done), tuple(memory.held))
            if state in seen or len(steps) >= MAX_TURNS:
                return None
            seen.add(state)
            self.reserved = frozenset()
            try:
                step = self.pursue(world.level.mission.root)
            except _Tangled:
                return None
            if step is None:
                return None
            perform(world, step.action)
            steps.append(step)
        return steps if self.world.success else None

    # What is wanted

    def pursue(self, node: int) -> Step | None:
        """The next step towards a clause of the mission."""
        world = self.world
        mission = world.level.mission
        clause = mission.clauses[node]
        if clause.kind in ("before", "after", "and"):
            return self.pursue(self._half(node))
        objects = mission.descriptions[clause.first].objects
        if clause.kind == "goto":
            cells = world.progress.cells[clause.first]
            if not cells:
                return self.empty_hand("I have to put it down to go to it.", {}) if world.carrying in objects else None
            return self.approach(dict.fromkeys(cells, 0), "go to", "That is where I have to go.", 0)
        if clause.kind == "pickup":
            return self.take(objects, "That is what I have to pick up.", 0)
        if clause.kind == "open":
            return self.open(objects)
        return self.put_next(node, objects, mission.descriptions[clause.second].objects)

    def _half(self, node: int) -> int:
        clause, done = self.world.level.mission.clauses[node], self.world.progress.done[node]
        if clause.kind == "before":
            return clause.second if done & 1 else clause.first
        if clause.kind == "after":
            return clause.first if done & 2 else clause.second
        if done:
            return clause.second if done & 1 else clause.first
        return clause.second if self.style.second_first else clause.first

    def open(self, doors: frozenset[int]) -> Step | None:
        world, targets = self.world, {}
        for cell, look in self._where(doors):
            state = codes.state_of(look)
            needs_key = state == "locked" and not can_unlock(world, look)
            # An open door counts only when it is opened again.
            targets[cell] = LOCKED if needs_key else 4 if state == "open" else 0
        return self.approach(targets, "toggle", "That is the door I have to open.", 0)

    def put_next(self, node: int, moved: frozenset[int], fixed: frozenset[int]) -> Step | None:
        world = self.world
        stride = world.level.stride
        beside = [cell + step for cell, _ in self._where(fixed) for step in (1, stride, -1, -stride)]
        spots = {cell: 0 for cell in beside if world.cells[cell] == codes.EMPTY}
        if not spots:
            crowd = {cell: 0 for cell in beside if codes.is_movable(world.cells[cell])}
            if world.carrying:
                return self.empty_hand("I need a free hand to make room.", crowd)
            return self.approach(crowd, "pickup", "There is no room beside it.", 0)
        if world.carrying not in moved:
            # What bars the way there is cleared first, while the hand is free for it, and the way is kept clear.
            terrain = Terrain(world, spots)
            way = terrain.way(world.pos) if terrain.reaches(world.pos) else []
            self.reserved = frozenset((*spots, *way))
            step = self._unbar(way[:-1], spots, 0, unlock=True)
            return step or self.take(moved, "That is what I have to move.", 0)
        self.reserved = frozenset(spots)
        if world.progress.held[node] != world.carrying and world.front in spots:
            # minigrid has not noticed yet that the hand is full, and would not count this drop.
            return Step("turn left", "I look around first.")
        return self.approach(spots, "drop", "I have to put it down there.", 0)

    def take(self, objects: Iterable[int], thought: str, depth: int) -> Step | None:
        """Get one of several objects into the hand, out of a box if it is inside one."""
        world, wanted = self.world, set(objects)
        targets = {cell: 0 for cell, _ in self._where(wanted)}
        if targets:
            terrain = Terrain(world, targets)
            if not terrain.reaches(world.pos):
                return None
            way = terrain.way(world.pos)[:-1]
            if step := self._unbar(way, targets, depth):
                return step
            if world.carrying and (world.carrying in wanted or not self._keeps(way)):
                return self.empty_hand("I need a free hand.", targets)
            return self.approach(targets, "pickup", thought, depth)
        boxes = {number for number, thing in enumerate(world.things) if thing.contains and thing.contains in wanted}
        if world.carrying in wanted | boxes:
            return self.empty_hand("I have to put it down first.", {})
        return self.approach({cell: 0 for cell, _ in self._where(boxes)}, "toggle", "It must be in the box.", depth)

    def _keeps(self, way: list[int]) -> bool:
        """Whether what is in hand is still of use on the way."""
        return any(self._is_locked(cell) for cell in way) or (self.style.late_drop and len(way) > 2)

    def _is_locked(self, cell: int) -> bool:
        look = self.world.cells[cell]
        return codes.is_door(look) and codes.state_of(look) == "locked"

    def _where(self, objects: Iterable[int]) -> list[tuple[int, int]]:
        """(cell, look) of those objects that are on the grid."""
        return [(cell, self.world.cells[cell]) for cell, thing in self.world.ids.items() if thing in objects]

    # What stands in the way

    def approach(self, targets: dict[int, int], verb: str, thought: str, depth: int) -> Step | None:
        """The next step towards standing before one of the targets and then doing what the verb says."""
        world = self.world
        if not targets:
            return None
        terrain = Terrain(world, targets)
        if not terrain.reaches(world.pos):
            return None
        way = terrain.way(world.pos)
        if step := self._unbar(way if verb == "toggle" else way[:-1], targets, depth):
            return step
        if world.front == way[0] and way[0] in targets:
            return finish(world, way[0], verb, thought)
        return walk(world, terrain, way, verb, thought)

    def _unbar(self, way: list[int], targets: dict[int, int], depth: int, *, unlock: bool = False) -> Step | None:
        """The next step towards freeing a way of what bars it, or None when it is free.

        Args:
            way: cells to be walked.
            targets: cells whose objects are no obstacles.
            depth: how many wants this one serves.
            unlock: whether a door whose key is in hand has to be opened, too, and not left to the walk.
        """
        if depth > _DEPTH:
            raise _Tangled
        opens: int | None = None
        for cell in way:
            look = self.world.cells[cell]
            locked = self._is_locked(cell)
            if locked and can_unlock(self.world, look):
                opens = opens if opens is not None else cell
            elif locked or (codes.is_movable(look) and cell not in targets):
                if opens is not None:
                    break
                return self.fetch_key(codes.color_of(look), depth) if locked else self.clear(cell, targets, depth)
        else:
            opens = opens if unlock else None
        return None if opens is None else self.approach({opens: 0}, "toggle", "I have the key of that door.", depth + 1)

    def fetch_key(self, color: str, depth: int) -> Step | None:
        look = codes.code("key", color)
        keys = [number for number, thing in enumerate(self.world.things) if thing.look == look]
        return self.take(keys, f"The {color} door is locked, I need the {color} key.", depth + 1)

    def clear(self, cell: int, targets: dict[int, int], depth: int) -> Step | None:
        """Take away what lies in a cell."""
        if self.world.carrying:
            return self.empty_hand("I need a free hand to clear the way.", targets)
        return self.approach(
            {cell: 0}, "pickup", f"The {codes.NAMES[self.world.cells[cell]]} is in the way.", depth + 1
        )

    def empty_hand(self, thought: str, targets: dict[int, int]) -> Step | None:
        """Lay down what is in hand on the nearest cell where it hinders nothing."""
        world = self.world
        terrain = Terrain(world, targets)
        cost = terrain.cost.get(world.pos, FAR)
        kept = {*targets, *self.reserved, *(terrain.way(world.pos) if terrain.reaches(world.pos) else ())}
        poses = [(first, pos, pos + world.ahead(facing)) for first, pos, facing in self._poses()]
        poses = [pose for pose in poses if world.cells[pose[2]] == codes.EMPTY and pose[2] not in targets]
        for first, _, cell in poses:
            if cell not in kept and cell != world.pos and is_spare(world, cell):
                return _lay_down(first, thought)
        # In a tight place anything goes that leaves a way; what is reserved comes last.
        for first, pos, cell in sorted(poses, key=lambda pose: pose[2] in self.reserved):
            if not targets or Terrain(world, targets, closed=(cell,)).cost.get(pos, FAR) < cost + BLOCKED // 2:
                return _lay_down(first, thought)
        return None

    def _poses(self) -> list[tuple[int, int, int]]:
        """(first action, cell, facing) of the poses at hand by distance; the present one has action -1."""
        world = self.world
        queue, visited = [(-1, world.pos, world.facing)], {(world.pos, world.facing)}
        for first, pos, facing in queue:
            front = pos + world.ahead(facing)
            options = [(LEFT, pos, (facing - 1) % 4), (RIGHT, pos, (facing + 1) % 4)]
            if codes.is_walkable(world.cells[front]):
                options.append((FORWARD, front, facing))
            for action, *pose in options:
                if tuple(pose) not in visited and len(queue) < 120:
                    visited.add((pose[0], pose[1]))
                    queue.append((action if first < 0 else first, pose[0], pose[1]))
        return queue


def _lay_down(first: int, thought: str) -> Step:
    """Drop, or the first step to the place for it."""
    return Step(_PRIMITIVES.get(first, "drop"), thought)
