"""A recipe book: which items exist, what they are made of, which of them a tag stands for.

Ids are those of the game (`minecraft:oak_planks`); names are what an agent reads and writes (`oak planks`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PREFIX = "minecraft:"
USES_PER_INGREDIENT = 10
"""Each ingredient of the goal's tree suggests at most this many other recipes as distractors."""


def to_name(identifier: str) -> str:
    """`minecraft:oak_planks` -> `oak planks`."""
    return identifier.replace(PREFIX, "").replace("_", " ")


def to_id(name: str) -> str:
    """`oak planks` -> `minecraft:oak_planks`, for any text."""
    return PREFIX + name.replace(" ", "_")


@dataclass(frozen=True, slots=True)
class Ingredient:
    """So many of an item, or of any one member of a tag."""

    id: str
    count: int
    is_tag: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to make `count` of an item."""

    output: str
    count: int
    ingredients: tuple[Ingredient, ...]
    line: str = field(init=False, compare=False)
    """As an agent reads it: `craft 4 oak planks using 1 oak logs`."""

    def __post_init__(self) -> None:
        inputs = ", ".join(f"{i.count} {to_name(i.id)}" for i in self.ingredients)
        object.__setattr__(self, "line", f"craft {self.count} {to_name(self.output)} using {inputs}")


class RecipeBook:
    """Everything that can be made in one world, and from what.

    Args:
        recipes: in the order in which alternatives are tried.
        tags: the items that each tag stands for, in order of preference.
        items: further items that exist although no recipe mentions them.
    """

    def __init__(self, recipes: Iterable[Recipe], tags: Mapping[str, Sequence[str]], items: Iterable[str] = ()) -> None:
        self.recipes: dict[str, list[Recipe]] = {}
        self.members: dict[str, tuple[str, ...]] = {tag: tuple(members) for tag, members in tags.items()}
        self.items: set[str] = {*items, *(item for members in self.members.values() for item in members)}
        self.uses: dict[str, list[Recipe]] = {}
        for recipe in recipes:
            self.recipes.setdefault(recipe.output, []).append(recipe)
            self.items.add(recipe.output)
            for ingredient in recipe.ingredients:
                self.uses.setdefault(ingredient.id, []).append(recipe)
                if not ingredient.is_tag:
                    self.items.add(ingredient.id)
        self.names: dict[str, str] = {i: to_name(i) for i in sorted({*self.items, *self.members})}
        self._closures: dict[str, tuple[Recipe, ...]] = {}

    def is_raw(self, identifier: str) -> bool:
        """Whether an agent can get it for nothing: an item that nothing makes."""
        return identifier in self.items and identifier not in self.recipes and identifier not in self.members

    def makes(self, identifier: str) -> list[Recipe]:
        """The recipes of an item, or of all members of a tag."""
        if identifier in self.recipes:
            return self.recipes[identifier]
        return [r for member in self.members.get(identifier, ()) for r in self.recipes.get(member, ())]

    def closure(self, goal: str) -> tuple[Recipe, ...]:
        """Every recipe that a way to `goal` may use, each once; linear in the book, and remembered."""
        if goal not in self._closures:
            found: dict[str, Recipe] = {}
            seen, stack = {goal}, [goal]
            while stack:
                for recipe in self.makes(stack.pop()):
                    found.setdefault(recipe.line, recipe)
                    fresh = [i.id for i in reversed(recipe.ingredients) if i.id not in seen]
                    seen.update(fresh)
                    stack.extend(fresh)
            self._closures[goal] = tuple(found.values())
        return self._closures[goal]

    def deal(self, goal: str, distractors: int, rng: random.Random) -> list[Recipe]:
        """The recipes that an episode shows: the whole tree of `goal` and a few that only look useful, shuffled."""
        shown = {recipe.line: recipe for recipe in self.closure(goal)}
        others: dict[str, Recipe] = {}
        if distractors:
            ingredients = dict.fromkeys(i.id for recipe in shown.values() for i in recipe.ingredients)
            for identifier in ingredients:
                uses = self.uses.get(identifier, [])
                for use in rng.sample(uses, USES_PER_INGREDIENT) if len(uses) > USES_PER_INGREDIENT else uses:
                    if use.line not in shown:
                        others[use.line] = use
        chosen = rng.sample(sorted(others), min(len(others), distractors))
        dealt = [*shown.values(), *(others[line] for line in chosen)]
        rng.shuffle(dealt)
        return dealt

    def export(
        self, recipes: Iterable[Recipe] | None = None, rename: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The book, or some of its recipes, as the `recipes` and `tags` of an episode's `init`.

        Args:
            recipes: which ones; None for all.
            rename: other names for items and tags, by name; it must not map two to one.
        """
        chosen = list(recipes) if recipes is not None else [r for options in self.recipes.values() for r in options]
        other = rename or {}

        def name(identifier: str) -> str:
            return other.get(self.names[identifier], self.names[identifier])

        tags = dict.fromkeys(i.id for recipe in chosen for i in recipe.ingredients if i.is_tag)
        return {
            "recipes": [
                {
                    "output": name(recipe.output),
                    "count": recipe.count,
                    "ingredients": {("#" if i.is_tag else "") + name(i.id): i.count for i in recipe.ingredients},
                }
                for recipe in chosen
            ],
            "tags": {name(tag): [name(member) for member in self.members[tag]] for tag in tags},
        }
