"""What a cell looks like, in one byte: the alphabet of grids and pictures.

A code joins kind, colour and state, so that a grid is a `bytearray` and two pictures are compared as bytes.
"""

from __future__ import annotations

COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
"""In minigrid's order of colour indices."""
STATES = ("open", "closed", "locked")
"""Door states, in minigrid's order of state indices."""
MOVABLE = ("key", "ball", "box")

UNSEEN, EMPTY, WALL = 0, 1, 2
_MOVABLE0, _DOOR0 = 3, 3 + len(MOVABLE) * len(COLORS)
_OPEN_END = _DOOR0 + len(COLORS)
COUNT = _DOOR0 + len(STATES) * len(COLORS)


def code(kind: str, color: str, state: str = "closed") -> int:
    """The code of an object; raises `ValueError` for a kind, colour or state that does not exist."""
    if kind == "door":
        return _DOOR0 + STATES.index(state) * len(COLORS) + COLORS.index(color)
    return _MOVABLE0 + MOVABLE.index(kind) * len(COLORS) + COLORS.index(color)


def is_door(look: int) -> bool:
    return look >= _DOOR0


def is_movable(look: int) -> bool:
    """Whether it can be picked up."""
    return _MOVABLE0 <= look < _DOOR0


def is_walkable(look: int) -> bool:
    """Whether the agent can stand there: floor or an open door."""
    return look == EMPTY or _DOOR0 <= look < _OPEN_END


def kind_of(look: int) -> str:
    if look == WALL:
        return "wall"
    return "door" if look >= _DOOR0 else MOVABLE[(look - _MOVABLE0) // len(COLORS)]


def color_of(look: int) -> str:
    return COLORS[(look - _MOVABLE0) % len(COLORS)]


def state_of(look: int) -> str:
    """The state of a door."""
    return STATES[(look - _DOOR0) // len(COLORS)]


def with_state(look: int, state: str) -> int:
    """The same door in another state."""
    return code("door", color_of(look), state)


def _name(look: int) -> str:
    if look <= WALL:
        return ("unseen", "empty", "grey wall")[look]
    parts = (color_of(look), state_of(look), "door") if is_door(look) else (color_of(look), kind_of(look))
    return " ".join(parts)


NAMES = tuple(_name(look) for look in range(COUNT))
"""What each code is called: `red ball`, `grey locked door`."""
OPAQUE = bytes(int(look == WALL or look >= _OPEN_END) for look in range(256))
"""Translation table: 1 where nothing can be seen behind."""
