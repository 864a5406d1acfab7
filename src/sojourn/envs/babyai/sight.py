"""What the agent sees: a 7 x 7 picture in its own frame, and the objects in it.

The agent stands in the middle of the bottom row and looks up. A cell hidden by walls or shut doors is `UNSEEN`, by
minigrid's rule (light spreads row by row, sideways first); the agent's own cell shows what it carries.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from sojourn.envs.babyai import codes
from sojourn.envs.babyai.sim import World

SIZE = 7
SELF = SIZE * SIZE - SIZE // 2 - 1
"""Index of the agent's own cell in a picture."""

_BITS = {bytes(n >> i & 1 for i in range(SIZE)): n for n in range(1 << SIZE)}
_KEEP = [int.from_bytes(bytes(255 * (n >> i & 1) for i in range(SIZE)), "little") for n in range(1 << SIZE)]
_ALL = (1 << SIZE) - 1


@cache
def _spread(lit: int, opaque: int) -> tuple[int, int]:
    """Light in one row: (cells lit in it, cells lit in the row beyond). At most 2^14 entries."""
    beyond = 0
    for order, side in ((range(SIZE - 1), 1), (range(SIZE - 1, 0, -1), -1)):
        for i in order:
            if lit >> i & 1 and not opaque >> i & 1:
                pair = 1 << i + side
                lit |= pair
                beyond |= pair | 1 << i
    return lit, beyond


def picture(world: World) -> bytes:
    """What minigrid's observation image shows, one code a cell, row by row from the farthest.  # [49]"""
    cells, ghost = world.cells, world.ghost
    if ghost:
        cells = cells[:]
        cells[ghost[0]] = ghost[1]
    lit = 1 << SIZE // 2
    rows: list[bytes] = []
    for distance in range(SIZE):
        row = bytes(cells[_window(world.pos, world.facing, world.level.stride, distance)])
        lit, beyond = _spread(lit, _BITS[row.translate(codes.OPAQUE)])
        if lit != _ALL:
            row = (int.from_bytes(row, "little") & _KEEP[lit]).to_bytes(SIZE, "little")
        rows.append(row)
        lit = beyond
    rows.reverse()
    seen = bytearray(b"".join(rows))
    # minigrid draws an episode's first view before the agent's hand is filled.
    seen[SELF] = world.things[world.carrying].look if not ghost else codes.EMPTY
    return bytes(seen)


def _window(pos: int, facing: int, stride: int, distance: int) -> slice:
    """The cells of one row of the view, from the agent's left to its right."""
    half = SIZE // 2
    if facing == 3:
        start = pos - distance * stride - half
        return slice(start, start + SIZE)
    if facing == 1:
        start = pos + distance * stride + half
        return slice(start, start - SIZE, -1)
    if facing == 0:
        start = pos + distance - half * stride
        return slice(start, start + SIZE * stride, stride)
    start = pos - distance + half * stride
    return slice(start, start - SIZE * stride, -stride)


class Seen(NamedTuple):
    """One object in view."""

    look: int
    name: str
    rank: int
    """1 for the nearest of its name, 2 for the next ..."""
    front: int
    """Cells ahead."""
    right: int
    """Cells to the right (negative: to the left)."""
    at: int
    """Its index in the picture."""


class Sight(NamedTuple):
    """A picture, read."""

    things: tuple[Seen, ...]
    """By Manhattan distance; equally far ones by row from the farthest, then from left to right."""
    barrier: tuple[str, int] | None
    """The nearest wall or box straight ahead, whatever lies between, and its distance."""
    blank: bool
    """Nothing but floor, not even a wall."""


_PLACES = sorted(
    (abs(front) + abs(right), index, front, right)
    for index in range(SIZE * SIZE)
    for front, right in [(SIZE - 1 - index // SIZE, index % SIZE - SIZE // 2)]
    if index != SELF
)
_AHEAD = [(SELF - SIZE * distance, distance) for distance in range(1, SIZE)]


@lru_cache(maxsize=4096)
def read(seen: bytes) -> Sight:
    """List what a picture shows."""
    things: list[Seen] = []
    ranks: dict[int, int] = {}
    for _, index, front, right in _PLACES:
        look = seen[index]
        if look > codes.WALL:
            ranks[look] = ranks.get(look, 0) + 1
            things.append(Seen(look, codes.NAMES[look], ranks[look], front, right, index))
    barrier = None
    for index, distance in _AHEAD:
        look = seen[index]
        if look == codes.WALL or (codes.is_movable(look) and codes.kind_of(look) == "box"):
            barrier = (codes.kind_of(look), distance)
            break
    blank = all(look <= codes.EMPTY for index, look in enumerate(seen) if index != SELF)
    return Sight(tuple(things), barrier, blank)
