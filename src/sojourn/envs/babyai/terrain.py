"""Distances over the whole map, for the oracle: which way to a cell costs least, and what stands in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heappop, heappush

from sojourn.envs.babyai import codes
from sojourn.envs.babyai.sim import World

FAR = 1 << 30
LOCKED, BLOCKED = 60, 30
"""What a locked door without its key, and an object in the way, count as in cells of detour."""


def can_unlock(world: World, look: int) -> bool:
    """Whether the key of that door is in hand."""
    return world.things[world.carrying].look == codes.code("key", codes.color_of(look))


def toll(world: World, cell: int) -> int:
    """What it costs to enter a cell."""
    look = world.cells[cell]
    if codes.is_walkable(look):
        return 1
    if look == codes.WALL:
        return FAR
    if codes.is_door(look):
        return 2 if codes.state_of(look) == "closed" or can_unlock(world, look) else LOCKED
    return BLOCKED


class Terrain:
    """Cost from every cell to standing beside one of the targets."""

    def __init__(self, world: World, targets: Mapping[int, int], closed: Collection[int] = ()) -> None:
        """Args:
        targets: cells to stand beside, each with what it costs to be there.
        closed: cells to treat as walls.
        """
        self.world, self.targets = world, targets
        stride = world.level.stride
        self.steps = (1, stride, -1, -stride)
        self.cost: dict[int, int] = {}
        queue: list[tuple[int, int]] = []
        for target, extra in targets.items():
            for step in self.steps:
                if world.cells[target + step] != codes.WALL and target + step not in closed:
                    heappush(queue, (extra, target + step))
        self.tolls: dict[int, int] = {}
        while queue:
            cost, cell = heappop(queue)
            if cell in self.cost:
                continue
            self.cost[cell] = cost
            price = self.tolls[cell] = toll(world, cell)
            for step in self.steps:
                near = cell + step
                if near not in self.cost and world.cells[near] != codes.WALL and near not in closed:
                    heappush(queue, (cost + price, near))

    def reaches(self, cell: int) -> bool:
        return cell in self.cost

    def ahead(self, cell: int) -> int:
        """The cell to look at next from a cell: a target, or the next cell of the way."""
        best, choice = FAR, cell
        for step in self.steps:
            near = cell + step
            price = self.targets[near] if near in self.targets else self.cost.get(near, FAR) + self.tolls.get(near, FAR)
            if price < best:
                best, choice = price, near
        return choice

    def way(self, cell: int) -> list[int]:
        """The cells from there up to the target, which is the last one."""
        cells: list[int] = []
        while True:
            cell = self.ahead(cell)
            cells.append(cell)
            if cell in self.targets:
                return cells

    def rest(self, pos: int, facing: int) -> int:
        """How far a pose is from the end: falls with every step and turn in the right direction."""
        if pos not in self.cost:
            return FAR
        turn = (self.steps.index(self.ahead(pos) - pos) - facing) % 4
        return 3 * self.cost[pos] + (0, 1, 2, 1)[turn]


def is_spare(world: World, cell: int) -> bool:
    """Whether an object can be left on an empty cell without cutting anything off, nor standing before a door."""
    stride = world.level.stride
    ring = (-stride, -stride + 1, 1, stride + 1, stride, stride - 1, -1, -stride - 1)
    around = [world.cells[cell + step] for step in ring]
    if any(codes.is_door(look) for look in around[::2]):
        return False
    # Neighbours that the agent could walk must stay joined to one another around the cell.
    gaps = sum(codes.is_walkable(around[i]) and not codes.is_walkable(around[(i + 1) % 8]) for i in range(8))
    return gaps <= 1
