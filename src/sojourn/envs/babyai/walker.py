"""How the oracle walks: one macro at a time down a way that nothing blocks, each one nearer to its end.

A macro that names an object is used only when the compact view shows the object, and under the number that both views
show. First choice is the macro that does what is wanted, then the farthest door of the way, then an object near the way
if walking up to it saves several cells; and where none of them is in view, a turn or a step.
"""

from __future__ import annotations

from typing import NamedTuple

from sojourn.envs.babyai import codes
from sojourn.envs.babyai.macros import Macro, perform, table
from sojourn.envs.babyai.sight import Seen, picture, read
from sojourn.envs.babyai.sim import FORWARD, RIGHT, World
from sojourn.envs.babyai.terrain import Terrain
from sojourn.envs.babyai.views import SHOWN

_DETOUR = 12
"""What walking up to an object that is not on the way has to save (three a cell)."""
_ENDS = {
    "go to": ("go to",),
    "pickup": ("pickup",),
    "toggle": ("toggle and go through", "go to"),
    "drop": (),
}
"""For what is wanted of a target: the macros that do it, or walk up to the target."""


class Step(NamedTuple):
    action: str
    thought: str


class _Option(NamedTuple):
    action: str
    verb: str
    macro: Macro
    cell: int
    """Of the object that it names."""


def finish(world: World, cell: int, verb: str, thought: str) -> Step | None:
    """The last step, with the target straight ahead."""
    if verb in ("drop", "toggle"):
        return Step(verb, thought)
    if verb == "go to":  # minigrid looks at what has been reached after an action only
        return Step("turn left", "I am there already, I look again.")
    options = (option for option in _options(world) if option.cell == cell and option.verb == verb)
    return next((Step(option.action, thought) for option in options), None)


def walk(world: World, terrain: Terrain, way: list[int], verb: str, thought: str) -> Step:
    """The best macro towards the end of a way.

    Args:
        world: the present state; left as it is.
        terrain: costs of the way's end.
        way: the cells ahead, the target last; none of them is blocked or locked without its key at hand.
        verb: what is wanted of the target (`go to`, `pickup`, `toggle`, `drop`).
        thought: why.
    """
    options = _options(world)
    for option in options:
        if option.cell in terrain.targets and option.verb in _ENDS[verb] and _does(world, option, terrain):
            return Step(option.action, thought)
    doors = [option for option in options if option.cell in way and option.verb.endswith("through")]
    for option in sorted(doors, key=lambda option: -way.index(option.cell)):
        if _gain(world, option, terrain) > 0:
            return Step(option.action, "The way leads through that door.")
    stones = [(_promise(world, option.macro, terrain), option) for option in options if option.verb == "go to"]
    for promise, option in sorted(stones, key=lambda stone: -stone[0]):
        if promise >= _DETOUR and _gain(world, option, terrain) >= _DETOUR:
            return Step(option.action, "That brings me nearer.")
    turn = (terrain.steps.index(way[0] - world.pos) - world.facing) % 4
    if turn:
        return Step("turn left" if turn == 3 else "turn right", "It is not ahead of me, I look around.")
    if codes.is_walkable(world.cells[way[0]]):
        return Step("move forward", "The way is free.")
    return Step("toggle", "The way leads through that door.")


def _options(world: World) -> list[_Option]:
    """Macros that name an object which the compact view shows, under the number it shows."""
    shown = read(picture(world)).things[:SHOWN]
    found: list[_Option] = []
    for action, macro in table(world).possible.items():
        thing = macro.target
        if thing in shown and thing is not None:
            verb, named, rest = action.partition(f" {thing.name} {thing.rank}")
            if named and not rest:
                found.append(_Option(action, verb, macro, _cell(world, thing)))
    return found


def _cell(world: World, thing: Seen) -> int:
    """Where on the map something in view is."""
    return world.pos + thing.front * world.ahead(world.facing) + thing.right * world.ahead((world.facing + 1) % 4)


def _does(world: World, option: _Option, terrain: Terrain) -> bool:
    """Whether a macro does what is wanted with a target, or at least comes nearer to it."""
    trial = world.copy()
    perform(trial, option.action)
    if trial.over:
        return trial.success
    if option.verb == "pickup":
        return trial.carrying != world.carrying
    if option.verb == "go to":
        return terrain.rest(trial.pos, trial.facing) < terrain.rest(world.pos, world.facing)
    return trial.cells[option.cell] != world.cells[option.cell]


def _gain(world: World, option: _Option, terrain: Terrain) -> int:
    """How much nearer a macro really comes."""
    trial = world.copy()
    perform(trial, option.action)
    if trial.over and not trial.success:
        return 0
    return terrain.rest(world.pos, world.facing) - terrain.rest(trial.pos, trial.facing)


def _promise(world: World, macro: Macro, terrain: Terrain) -> int:
    """How much nearer a macro would come if nothing stopped it."""
    pos, facing = world.pos, world.facing
    for step in macro.path:
        if step == FORWARD:
            pos += world.ahead(facing)
        else:
            facing = (facing + (1 if step == RIGHT else 3)) % 4
    return terrain.rest(world.pos, world.facing) - terrain.rest(pos, facing)
