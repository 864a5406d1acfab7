"""One search from the agent's cell, in its own frame, gives the way to everything in view.

The search is the reference's, so that the same macro walks the same steps and earns the same reward: it knows only the
picture, treats unseen cells and doors of any state as free, and stays within the window (which, in two headings each,
reaches one column too far right or one row behind). It marks a pose as visited when it leaves the queue, not when it
enters, and a later discoverer overwrites an earlier one until then; where several ways exist, that decides which is
taken. Its walls and objects are obstacles.
"""

from __future__ import annotations

from typing import NamedTuple

from sojourn.envs.babyai.sight import SELF, SIZE
from sojourn.envs.babyai.sim import FORWARD, LEFT, RIGHT

_WIDE = SIZE + 1
"""The search window with its extra column and row."""
_CELLS = _WIDE * _WIDE


def _cell(index: int) -> int:
    """A picture's index in the search window."""
    return index // SIZE * _WIDE + index % SIZE


def _neighbours(heading: int) -> list[int]:
    """The cell before each pose (cell * 4 + direction; 0 is ahead, 1 right ...), -1 outside the window.  # [256]"""
    rows = range(SIZE + (heading in (0, 1)))
    columns = range(SIZE + (heading in (1, 2)))
    table = [-1] * (_CELLS * 4)
    for row in rows:
        for column in columns:
            for direction, (down, right) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
                if row + down in rows and column + right in columns:
                    table[(row * _WIDE + column) * 4 + direction] = (row + down) * _WIDE + column + right
    return table


_AHEAD = [_neighbours(heading) for heading in range(4)]


class Routes(NamedTuple):
    """Low-level actions, by index in the picture, for what can be reached."""

    facing: dict[int, bytes]
    """To stand beside a cell and look at it."""
    onto: dict[int, bytes]
    """To stand on it."""


def search(obstacles: frozenset[int], targets: frozenset[int], heading: int) -> Routes:
    """Ways from the agent to each of `targets`.

    Args:
        obstacles: indices in the picture that block the way.
        targets: indices whose ways are wanted.
        heading: the agent's absolute direction, which shapes the window.
    """
    ahead = _AHEAD[heading]
    blocked = bytearray(_CELLS)
    for index in obstacles:
        blocked[_cell(index)] = 1
    start = _cell(SELF) * 4
    came_from: dict[int, tuple[int, int]] = {}
    beside: dict[int, int] = {}
    upon: dict[int, int] = {}
    visited = bytearray(_CELLS * 4)
    queue = [start]
    for pose in queue:
        visited[pose] = 1
        before = ahead[pose]
        beside.setdefault(before, pose)
        upon.setdefault(pose >> 2, pose)
        if before >= 0 and not blocked[before]:
            step = before << 2 | pose & 3
            if not visited[step]:
                queue.append(step)
                came_from[step] = pose, FORWARD
        for action, turn in ((LEFT, 3), (RIGHT, 1)):
            turned = pose & ~3 | pose + turn & 3
            if not visited[turned]:
                queue.append(turned)
                came_from[turned] = pose, action
    return Routes(_trace(beside, targets, came_from, start), _trace(upon, targets, came_from, start))


def _trace(
    ends: dict[int, int], targets: frozenset[int], came_from: dict[int, tuple[int, int]], start: int
) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for index in targets:
        pose = ends.get(_cell(index))
        if pose is None:
            continue
        path = bytearray()
        while pose != start:
            pose, action = came_from[pose]
            path.append(action)
        found[index] = bytes(reversed(path))
    return found
