"""Macro actions: what can be done in a picture, under AgentGym's names, and what it takes in low-level actions.

A picture is read once into a table of possible macros and of specific refusals. Two liberties are taken, which change
nothing that the reference accepts: `pick up` is `pickup`, and `toggle` is taken wherever it would do something (it
opens boxes and shuts doors too; the reference does not list it there, and cannot open a box at all).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from sojourn.envs.babyai import codes
from sojourn.envs.babyai.paths import Routes, search
from sojourn.envs.babyai.sight import SELF, SIZE, Seen, Sight, picture, read
from sojourn.envs.babyai.sim import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE, World

CHECK = "check available actions"
UNRECOGNIZED = "The action is not recognized. Please check valid actions."
NO_CHANGE = "No change in state."
_FRONT = SELF - SIZE
_NAMED = re.compile(r"(pickup|go to|go through|toggle and go through) (\w+(?: open| closed| locked)? \w+) ([0-9]{1,3})")


class Macro(NamedTuple):
    """A possible action."""

    path: bytes
    """Low-level actions."""
    target: Seen | None
    """The object it names."""


class Event(NamedTuple):
    """What became of an action, for the views to word."""

    code: str
    """`""` (done), `no change`, `invalid`, `not possible`, `no path`, `locked`, `list`, `over`."""
    text: str
    """The sentence of the `agentgym` view ("" where it has none)."""
    invalid: bool


DONE = Event("", "", False)
EVENTS = ("", "no change", "invalid", "not possible", "no path", "locked", "list", "over")


class Table(NamedTuple):
    """What can be done in one picture."""

    possible: dict[str, Macro]
    """In the order in which the reference lists them."""
    extra: dict[str, Macro]
    """Possible, but not listed by the reference."""
    refused: dict[str, Event]
    """Actions that cannot be done for a reason that can be told."""

    def get(self, action: str) -> Macro | None:
        return self.possible.get(action) or self.extra.get(action)


def table(world: World) -> Table:
    """The table of the present view."""
    hand = world.things[world.carrying].look if world.carrying else 0
    return _table(picture(world), hand, world.facing)


@lru_cache(maxsize=2048)
def _table(seen: bytes, hand: int, heading: int) -> Table:
    sight = read(seen)
    obstacles = frozenset(
        index for index, look in enumerate(seen) if index != SELF and look >= codes.WALL and not codes.is_door(look)
    )
    routes = search(obstacles, frozenset(thing.at for thing in sight.things), heading)
    builder = _Builder(seen, hand, sight, routes)
    return builder.build()


class _Builder:
    """Fills a table in the reference's order: turns, forward, pickups, drop, doors, go to, check."""

    def __init__(self, seen: bytes, hand: int, sight: Sight, routes: Routes) -> None:
        self.seen, self.hand, self.sight, self.routes = seen, hand, sight, routes
        self.table = Table({}, {}, {})

    def build(self) -> Table:
        possible = self.table.possible
        possible["turn left"] = Macro(bytes([LEFT]), None)
        possible["turn right"] = Macro(bytes([RIGHT]), None)
        barrier = self.sight.barrier
        if barrier is None or barrier[1] > 1:
            possible["move forward"] = Macro(bytes([FORWARD]), None)
        else:
            self._refuse("move forward", "not possible", "There is a barrier in front of you, you can't move forward.")
        if not self.hand:
            self._number("pickup", [thing for thing in self.sight.things if codes.is_movable(thing.look)])
        self._drop()
        for thing in self.sight.things:
            if codes.is_door(thing.look):
                self._door(thing)
        self._number("go to", list(self.sight.things))
        possible[CHECK] = Macro(b"", None)
        if self.seen[_FRONT] > codes.WALL:
            self._toggle(self.seen[_FRONT])
        return self.table

    def _refuse(self, action: str, code: str, text: str) -> None:
        self.table.refused.setdefault(action, Event(code, text, True))

    def _number(self, verb: str, things: list[Seen]) -> None:
        """`pickup` and `go to`: the reference numbers only what it finds a way to."""
        counts: dict[str, int] = {}
        for thing in things:
            number = counts.get(thing.name, 0) + 1
            action = f"{verb} {thing.name} {number}"
            path = self.routes.facing.get(thing.at)
            if path is None:
                text = f"You cannot {action}, as there is no path leading to it."
                self.table.refused[action] = Event("no path", text, True)
            else:
                counts[thing.name] = number
                self.table.possible[action] = Macro(path + bytes([PICKUP]) if verb == "pickup" else path, thing)

    def _drop(self) -> None:
        if not self.hand:
            text = "You cannot drop the object, as you are not carrying anything."
            self._refuse("drop", "not possible", text)
        elif self.seen[_FRONT] >= codes.WALL and not codes.is_door(self.seen[_FRONT]):
            text = "You cannot drop the object, as there is already an object in front of you."
            self._refuse("drop", "not possible", text)
        else:
            self.table.possible["drop"] = Macro(bytes([DROP]), None)

    def _door(self, door: Seen) -> None:
        state, numbered = codes.state_of(door.look), f"{door.name} {door.rank}"
        through, toggle = f"go through {numbered}", f"toggle and go through {numbered}"
        if state == "open":
            path = self.routes.onto.get(door.at)
            if path is None:
                self._refuse(through, "no path", f"You cannot {through}, as there is no path leading to it.")
            else:
                self.table.possible[through] = Macro(path, door)
            return
        if state == "closed":
            text = f"You cannot {through}, as it is closed. You should toggle it first."
            self._refuse(through, "not possible", text)
        elif not self._holds_key():
            self._refuse(toggle, "locked", f"You cannot {toggle}, as you are not carrying a key.")
            return
        elif codes.color_of(self.hand) != codes.color_of(door.look):
            text = "the color of the key you are carrying does not match the color of door"
            self._refuse(toggle, "locked", f"You cannot {toggle}, as {text}.")
            return
        path = self.routes.facing.get(door.at)
        if path is None:
            self._refuse(toggle, "no path", f"You cannot {toggle}, as there is no path leading to it.")
            return
        self.table.possible[toggle] = Macro(path + bytes([TOGGLE, FORWARD]), door)
        if not path:
            self.table.possible["toggle"] = Macro(bytes([TOGGLE]), None)

    def _holds_key(self) -> bool:
        return bool(self.hand) and codes.kind_of(self.hand) == "key"

    def _toggle(self, look: int) -> None:
        if codes.is_door(look) and codes.state_of(look) == "locked":
            if "toggle" not in self.table.possible:
                self._refuse("toggle", "locked", UNRECOGNIZED)
        elif codes.is_door(look) or codes.kind_of(look) == "box":
            if "toggle" not in self.table.possible:
                self.table.extra["toggle"] = Macro(bytes([TOGGLE]), None)
        else:
            self._refuse("toggle", "not possible", UNRECOGNIZED)


def normalize(action: str) -> str:
    """Lower case, single spaces, and `pickup` for `pick up`."""
    action = " ".join(action.lower().split())
    return "pickup" + action[len("pick up") :] if action.startswith("pick up") else action


def perform(world: World, action: str) -> tuple[Event, float]:
    """Carry out a macro: what became of it, and the reward.

    Its low-level actions are taken one by one until the episode ends or, as in the reference, until one of them leaves
    the picture as it was.
    """
    action = normalize(action)
    options = table(world)
    if "check" in action:
        return Event("list", "You can take the following actions: " + ", ".join(options.possible), False), 0.0
    macro = options.get(action)
    if macro is None:
        return _refusal(options, world, action), 0.0
    if not macro.path:
        return Event("no change", NO_CHANGE, False), 0.0
    reward, changed = run(world, macro.path)
    return DONE if changed else Event("no change", "", False), reward


def run(world: World, path: bytes) -> tuple[float, bool]:
    """Take low-level actions as `perform` does: the reward, and whether anything has changed."""
    seen, before = picture(world), _state(world)
    reward = 0.0
    for step in path:
        verdict = world.act(step)
        reward += verdict.reward
        now = picture(world)
        if world.over or now == seen:
            break
        seen = now
    return reward, _state(world) != before


def _state(world: World) -> tuple[int, int, int, int]:
    """Enough to tell whether an action did anything: pose, hand and the cell in front."""
    return world.pos, world.facing, world.carrying, world.cells[world.front]


def _refusal(options: Table, world: World, action: str) -> Event:
    if action in options.refused:
        return options.refused[action]
    if not action:
        return Event("invalid", NO_CHANGE, True)
    match = _NAMED.fullmatch(action)
    if match:
        name, number = match[2], int(match[3])
        if any(thing.name == name and thing.rank == number for thing in read(picture(world)).things):
            return Event("not possible", UNRECOGNIZED, True)
    return Event("not possible" if action == "toggle" else "invalid", UNRECOGNIZED, True)
