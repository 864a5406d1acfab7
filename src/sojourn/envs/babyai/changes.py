"""What may be set at the start of an episode (`init`) and changed in the middle of one (`inject`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sojourn.envs.babyai import codes
from sojourn.envs.babyai.sim import Thing, World
from sojourn.protocol.errors import InvalidInit
from sojourn.protocol.validation import first_problem

MAX_STEPS = 100_000
MAX_THINGS = 256
"""Objects that one episode may come to hold, removed ones included."""

Kind = Literal["key", "ball", "box"]
Color = Literal["red", "green", "blue", "purple", "yellow", "grey"]
_Int = Annotated[int, Field(strict=True)]
Position = tuple[_Int, _Int]
"""Column and row, counted from the top left corner of the outer wall."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Agent(_Model):
    """Where the agent stands and looks."""

    pos: Position | None = None
    dir: Annotated[int, Field(strict=True, ge=0, le=3)] | None = None
    """0 right, 1 down, 2 left, 3 up."""


class Init(_Model):
    """Changes to a level before the episode starts."""

    max_steps: Annotated[int, Field(strict=True, ge=1, le=MAX_STEPS)] | None = None
    """Low-level steps until the episode is truncated; also the scale of the reward."""
    agent: Agent | None = None
    picture: Annotated[bool, Field(strict=True)] = False
    """Put a PNG of the grid into `info["view"]["png"]` (base64), in every fork too. The world is the same."""

    play_on: Annotated[bool, Field(strict=True)] = False
    """AgentGym's rules, for comparison: a macro is carried out to its end, and neither success, failure nor `max_steps`
    ends the episode. The first success is paid; `info["raw"]` has minigrid's latest reward, and its verdict."""


class Place(_Model):
    """Put a new object on an empty cell. It is never what the mission speaks of, whatever it looks like."""

    kind: Kind
    color: Color
    pos: Position


class Remove(_Model):
    """Take a key, ball or box off the grid."""

    pos: Position


class Door(_Model):
    """Open, close or lock the door at a position."""

    pos: Position
    state: Literal["open", "closed", "locked"]


class Carry(_Model):
    """Put a new object into the agent's empty hand."""

    kind: Kind
    color: Color


class Inject(_Model):
    """Changes to a running episode, made in this order, all or none."""

    remove: Remove | None = None
    place: Place | None = None
    door: Door | None = None
    agent: Agent | None = None
    carry: Carry | None = None


Wanted = TypeVar("Wanted", bound=BaseModel)


def start(world: World, init: dict[str, Any] | None) -> tuple[World, bool]:
    """A fresh world with `init` applied, and whether pictures are wanted; raises `InvalidInit`."""
    wanted = _parse(Init, {} if init is None else init)
    if wanted.max_steps is not None:
        world.max_steps = wanted.max_steps
    if wanted.agent is not None:
        _move(world, wanted.agent)
        world.ghost = None
    world.endless = wanted.play_on
    return world, wanted.picture


def apply(world: World, change: dict[str, Any]) -> World:
    """A changed copy of the world; raises `InvalidInit` and leaves the world as it was."""
    wanted = _parse(Inject, change)
    world = world.copy()
    world.ghost = None
    if wanted.remove:
        cell = _cell(world, wanted.remove.pos)
        if not codes.is_movable(world.cells[cell]):
            raise InvalidInit(f"there is nothing to remove at {list(wanted.remove.pos)}")
        world.put(cell, 0)
    if wanted.place:
        _place(world, wanted.place)
    if wanted.door:
        _door(world, wanted.door)
    if wanted.agent:
        _move(world, wanted.agent)
    if wanted.carry:
        if world.carrying:
            raise InvalidInit("the agent already carries something")
        world.carrying = _create(world, wanted.carry.kind, wanted.carry.color)
    return world


def _parse(model: type[Wanted], value: Any) -> Wanted:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInit(first_problem(error)) from error


def _cell(world: World, pos: tuple[int, int]) -> int:
    x, y = pos
    if not (0 <= x < world.level.width and 0 <= y < world.level.height):
        raise InvalidInit(f"{list(pos)} is outside of the {world.level.width} x {world.level.height} grid")
    return world.level.cell(x, y)


def _move(world: World, agent: Agent) -> None:
    if agent.pos is not None:
        cell = _cell(world, agent.pos)
        if not codes.is_walkable(world.cells[cell]):
            raise InvalidInit(f"the agent cannot stand at {list(agent.pos)}: {codes.NAMES[world.cells[cell]]}")
        world.pos = cell
    if agent.dir is not None:
        world.facing = agent.dir


def _place(world: World, place: Place) -> None:
    cell = _cell(world, place.pos)
    if world.cells[cell] != codes.EMPTY or cell == world.pos:
        raise InvalidInit(f"{list(place.pos)} is not an empty cell")
    number = _create(world, place.kind, place.color)
    world.places[number] = cell
    world.put(cell, number)


def _door(world: World, door: Door) -> None:
    cell = _cell(world, door.pos)
    if not codes.is_door(world.cells[cell]):
        raise InvalidInit(f"there is no door at {list(door.pos)}")
    if cell == world.pos and door.state != "open":
        raise InvalidInit("the agent stands in that door")
    world.set_door(cell, door.state)


def _create(world: World, kind: str, color: str) -> int:
    if len(world.things) >= MAX_THINGS:
        raise InvalidInit(f"an episode holds at most {MAX_THINGS} objects")
    world.things.append(Thing(codes.code(kind, color), 0))
    world.places.append(-1)
    return len(world.things) - 1
