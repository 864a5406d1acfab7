"""The renderings of one world: what an agent reads after each action.

`full` is the published wording with the reasons of refusals put right; `agentgym` answers as the reference server
does, to the letter; `compact` is for small models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, NamedTuple

from sojourn.envs.textcraft.recipes import RecipeBook, to_id, to_name

ECHO = 100
"""Characters of a refused action that `full` repeats."""


class Kind(StrEnum):
    """What happened."""

    START = "start"
    GOT = "got"
    CRAFTED = "crafted"
    INVENTORY = "inventory"
    NOT_FOUND = "not_found"
    NOT_ENOUGH = "not_enough"
    NO_RECIPE = "no_recipe"
    WRONG_GET = "wrong_get"
    WRONG_COUNT = "wrong_count"
    WRONG_FORMAT = "wrong_format"
    UNKNOWN = "unknown"
    OVER = "over"

    @property
    def is_refusal(self) -> bool:
        """The world did not take the action."""
        return self not in {Kind.START, Kind.GOT, Kind.CRAFTED, Kind.INVENTORY}


class Reply(NamedTuple):
    """What happened, before it is put into words."""

    kind: Kind
    text: str = ""
    """The item, or the part of the action, that it is about, as the agent wrote it."""
    number: str = ""
    """The number that the agent wrote; of what was crafted, the number made."""
    allowed: int = 0
    """The number that would have been right."""


class View:
    """Base of the renderings; `strict` ones hold an agent to the counts that it writes."""

    name: ClassVar[str]
    strict: ClassVar[bool] = True
    help: ClassVar[str]

    def opening(self, lines: Sequence[str], goal: str) -> str:
        """The observation of a reset: the recipes shown and the goal, both in words."""
        raise NotImplementedError

    def reply(self, reply: Reply, inventory: Mapping[str, int], book: RecipeBook) -> str:
        """The observation of everything else."""
        raise NotImplementedError


class Full(View):
    """The published wording; refusals give their reason."""

    name = "full"
    help = (
        "You make items in a game of crafting. The first message lists recipes and names the item to make; some "
        "recipes lead nowhere. You start with nothing.\n"
        "Actions, one a turn:\n"
        "- `get N ITEM`: take N of an item that no recipe makes. There is no end of them.\n"
        "- `craft N ITEM using N1 ITEM1, N2 ITEM2`: carry out one recipe. Write every count exactly as the recipe "
        "gives it; a recipe can be carried out again. Where it names a kind of item (such as `planks`), write one "
        "item of that kind that you hold (such as `oak planks`).\n"
        "- `inventory`: list what you hold.\n"
        "You have won when the named item is crafted."
    )

    def opening(self, lines: Sequence[str], goal: str) -> str:
        return "Crafting commands:\n{}\n\nGoal: craft {}.".format("\n".join(lines), goal)

    def reply(self, reply: Reply, inventory: Mapping[str, int], book: RecipeBook) -> str:
        name = _plain(reply.text)
        match reply.kind:
            case Kind.GOT:
                return f"Got {reply.number} {name}"
            case Kind.CRAFTED:
                return f"Crafted {reply.number} {to_id(name)}"
            case Kind.INVENTORY:
                return _inventory(inventory)
            case Kind.NOT_FOUND:
                return f"Could not find {name}"
            case Kind.NOT_ENOUGH:
                return f"Could not find enough items to craft {to_id(name)}"
            case Kind.NO_RECIPE:
                return f"Could not find a valid recipe for {name}"
            case Kind.WRONG_GET:
                return f"Could not get {_plain(reply.number)} {name}: the count must be from 1 to {reply.allowed}"
            case Kind.WRONG_COUNT:
                return f"Could not craft {_plain(reply.number)} {name}: this recipe makes {reply.allowed}"
            case Kind.WRONG_FORMAT:
                return f"Wrong item format: {name}"
            case Kind.OVER:
                return "The episode is over."
            case _:
                return f"Could not execute {name}"


class AgentGym(Full):
    """The reference server's answers, bit for bit, its leaked representation of a Python object included."""

    name = "agentgym"
    strict = False

    def reply(self, reply: Reply, inventory: Mapping[str, int], book: RecipeBook) -> str:
        identifier = to_id(reply.text)
        is_tag = identifier in book.members
        match reply.kind:
            case Kind.GOT | Kind.NOT_FOUND | Kind.WRONG_FORMAT | Kind.UNKNOWN:
                lead = {
                    Kind.GOT: f"Got {reply.number}",
                    Kind.NOT_FOUND: "Could not find",
                    Kind.WRONG_FORMAT: "Wrong item format:",
                    Kind.UNKNOWN: "Could not execute",
                }[reply.kind]
                return f"{lead} {reply.text}"
            case Kind.NOT_ENOUGH:
                return f"Could not find enough items to craft {None if is_tag else identifier}"
            case Kind.NO_RECIPE:
                tag, item = (identifier, None) if is_tag else (None, identifier)
                leak = f"ItemTagWithCount(item_tag=ItemTag(tag={tag!r}, item_id={item!r}), count={reply.number or 1})"
                return f"Could not find a valid recipe for {leak}"
            case _:
                return super().reply(reply, inventory, book)


class Compact(View):
    """As few words as can be: a recipe a line, replies of one to five words."""

    name = "compact"
    help = (
        "Make the goal. Actions: `get N ITEM` (what no recipe makes), `craft N ITEM using N ITEM, N ITEM` "
        "(counts as in the recipe), `inventory`."
    )

    def opening(self, lines: Sequence[str], goal: str) -> str:
        return "\n".join([*lines, f"goal: {goal}"])

    def reply(self, reply: Reply, inventory: Mapping[str, int], book: RecipeBook) -> str:
        match reply.kind:
            case Kind.GOT | Kind.CRAFTED:
                return f"{reply.kind} {reply.number} {_plain(reply.text)}"
            case Kind.INVENTORY:
                return "inventory: " + (", ".join(f"{n} {to_name(i)}" for i, n in inventory.items()) or "empty")
            case Kind.WRONG_GET | Kind.WRONG_COUNT:
                return "wrong count"
            case Kind.UNKNOWN:
                return "unknown action"
            case _:
                return reply.kind.replace("_", " ")


VIEWS: dict[str, View] = {view.name: view for view in (Full(), Compact(), AgentGym())}


def _inventory(inventory: Mapping[str, int]) -> str:
    held = "".join(f"[{to_name(item)}] ({count}) " for item, count in inventory.items())
    return "Inventory: " + (held or "You are not carrying anything.")


def _plain(text: str) -> str:
    """What an agent wrote, on one line and not at any length."""
    if len(text) > ECHO:
        text = text[:ECHO] + "..."
    return to_name(text) if text.isprintable() else to_name(" ".join(text.split()))
