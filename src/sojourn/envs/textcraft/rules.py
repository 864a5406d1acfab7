"""The action grammar and what each action does to an inventory.

Refusals come in the reference's order: items that are not held before a recipe that does not exist. A strict game also
holds the agent to the counts it writes and to a bounded inventory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sojourn.envs.textcraft.recipes import Recipe, RecipeBook, to_id
from sojourn.envs.textcraft.views import Kind, Reply

CRAFT = re.compile(r"craft (.*) using (.*)")
GET = re.compile(r"get ([0-9]+) (.*)")
COUNTED = re.compile(r"([0-9]+) (.*)")

MAX_GET = 1_000_000
"""Most of one item that a strict game lets an agent hold by getting."""
HUGE = 10**15
"""Counts above this are all the same (they must stay within 64 bits on the wire)."""


def apply(book: RecipeBook, inventory: dict[str, int], action: str, *, strict: bool) -> Reply:
    """Carry out one action on `inventory`, in place; a refused one leaves it as it was."""
    if match := CRAFT.match(action):
        return _craft(book, inventory, match[1], match[2], strict)
    if match := GET.match(action):
        return _get(book, inventory, match[2], match[1], strict)
    if action.startswith("inventory"):
        return Reply(Kind.INVENTORY)
    return Reply(Kind.UNKNOWN, action)


def _get(book: RecipeBook, inventory: dict[str, int], name: str, digits: str, strict: bool) -> Reply:
    item, count, written = to_id(name), _number(digits), _written(digits)
    if not book.is_raw(item):
        return Reply(Kind.NOT_FOUND, name)
    total = inventory.get(item, 0) + count
    if strict and not (count and total <= MAX_GET):
        return Reply(Kind.WRONG_GET, name, written, MAX_GET)
    inventory[item] = min(total, HUGE)
    return Reply(Kind.GOT, name, written)


def _craft(book: RecipeBook, inventory: dict[str, int], output: str, inputs: str, strict: bool) -> Reply:
    counted = COUNTED.match(output)
    name, digits = (counted[2], counted[1]) if counted else (output, "")
    given: list[tuple[str, int]] = []
    for part in inputs.split(","):
        match = COUNTED.match(part.strip())
        if not match:
            return Reply(Kind.WRONG_FORMAT, part.strip())
        given.append((to_id(match[2]), _number(match[1])))
    written = _written(digits) if digits else ""
    if not _holds(book, inventory, given, strict):
        return Reply(Kind.NOT_ENOUGH, name, written)
    fitting = [recipe for recipe in book.recipes.get(to_id(name), ()) if _fits(book, recipe, given)]
    if not fitting:
        return Reply(Kind.NO_RECIPE, name, written)
    recipe = fitting[0]
    if strict and written:
        recipe = next((r for r in fitting if r.count == _number(digits)), recipe)
        if recipe.count != _number(digits):
            return Reply(Kind.WRONG_COUNT, name, written, recipe.count)
    if not _holds(book, inventory, given, strict=True):
        return Reply(Kind.NOT_ENOUGH, name, written)
    for item, count in given:
        inventory[item] -= count
        if not inventory[item]:
            del inventory[item]
    inventory[recipe.output] = min(inventory.get(recipe.output, 0) + recipe.count, HUGE)
    return Reply(Kind.CRAFTED, name, str(recipe.count))


def _holds(book: RecipeBook, inventory: dict[str, int], given: Sequence[tuple[str, int]], strict: bool) -> bool:
    """Whether every input is held; a tag is never held, only its members are."""
    for item, count in given:
        if item in book.members or item not in inventory:
            return False
        wanted = sum(n for other, n in given if other == item) if strict else count
        if inventory[item] < wanted:
            return False
    return True


def _fits(book: RecipeBook, recipe: Recipe, given: Sequence[tuple[str, int]]) -> bool:
    """Whether the inputs are exactly a recipe's: each slot takes the first input that can fill it."""
    left = list(given)
    for slot in recipe.ingredients:
        for index, (item, count) in enumerate(left):
            if item in book.members[slot.id] if slot.is_tag else item == slot.id:
                if count != slot.count:
                    return False
                del left[index]
                break
        else:
            return False
    return not left


def _number(digits: str) -> int:
    """The number that digits stand for, or `HUGE` for any that is larger."""
    significant = digits.lstrip("0")
    return min(int(significant or "0"), HUGE) if len(significant) <= 18 else HUGE


def _written(digits: str) -> str:
    """The digits as a number is printed."""
    return digits.lstrip("0") or "0"
