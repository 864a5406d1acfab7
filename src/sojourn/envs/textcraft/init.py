"""What `init` and `inject` may say, and the world that an `init` describes.

Items are named as an agent reads them (`oak planks`) or by id (`oak_planks`, `minecraft:oak_planks`). In a recipe book
of one's own, an ingredient `#planks` is any item that `tags` lists under `planks`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from sojourn.envs.base import digest
from sojourn.envs.textcraft.exchange import exchanged, renamed
from sojourn.envs.textcraft.minecraft import minecraft_book
from sojourn.envs.textcraft.planner import Planner
from sojourn.envs.textcraft.recipes import PREFIX, Ingredient, Recipe, RecipeBook, to_id, to_name
from sojourn.envs.textcraft.rules import MAX_GET
from sojourn.protocol.errors import InvalidInit
from sojourn.protocol.validation import first_problem

_NAME = r"(?:minecraft:)?[a-z][a-z0-9]*(?:[ _][a-z0-9]+)*"
Name = Annotated[str, StringConstraints(pattern=f"^{_NAME}$", max_length=64)]
Slot = Annotated[str, StringConstraints(pattern=f"^#?{_NAME}$", max_length=65)]
Held = Annotated[int, Field(ge=1, le=MAX_GET)]
Count = Annotated[int, Field(ge=1, le=10_000)]


_Model = TypeVar("_Model", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class RecipeInit(_Strict):
    """One recipe of a book of one's own."""

    output: Name
    count: Count = 1
    ingredients: dict[Slot, Count] = Field(min_length=1, max_length=32)
    """Counts by item, or by `#tag`."""


class TextCraftInit(_Strict):
    """How an episode starts otherwise than empty-handed at the task's goal."""

    inventory: dict[Name, Held] = Field(default_factory=dict, max_length=2_000)
    goal: Name | None = None
    """Item to make in place of the task's."""
    recipes: list[RecipeInit] | None = Field(default=None, min_length=1, max_length=1_000)
    """A whole world of its own: nothing exists but what these recipes and `tags` name."""
    tags: dict[Name, Annotated[list[Name], Field(max_length=256)]] = Field(default_factory=dict, max_length=256)
    """The items that each tag of `recipes` stands for, in order of preference."""
    distractors: int = Field(default=10, ge=0, le=1_000)
    """Most recipes to show that do not belong to the goal's tree."""
    exchange_names: bool = False
    """Things of a kind exchange their names, by the seed: the same crafts, and no recipe that could be known by heart.
    The task, `goal` and `inventory` say what is meant before the exchange."""


class TextCraftInject(_Strict):
    """A change in the middle of an episode."""

    items: dict[Name, Annotated[int, Field(ge=-MAX_GET, le=MAX_GET)]] = Field(min_length=1, max_length=2_000)
    """How many of each item to give (or, below zero, to take away)."""


@dataclass(frozen=True, slots=True)
class World:
    """What exists in an episode, and how to get it."""

    book: RecipeBook
    planner: Planner
    key: str
    """Tells it from others; empty for the game's own."""
    other_id: Mapping[str, str] = field(default_factory=dict)
    """Where names were exchanged, the id that a thing has here, by the one that its task knows."""


@cache
def minecraft_world() -> World:
    """The game's own world."""
    book = minecraft_book()
    return World(book, Planner(book), "")


def parse_init(init: Mapping[str, Any] | None) -> TextCraftInit:
    """Read an `init`; raises `InvalidInit` with the first reason."""
    return _validate(TextCraftInit, init or {})


def parse_inject(change: Mapping[str, Any]) -> TextCraftInject:
    """Read an `inject`; raises `InvalidInit` with the first reason."""
    return _validate(TextCraftInject, change)


def world_of(init: TextCraftInit, seed: int | None = None) -> World:
    """The world of an `init`; raises `InvalidInit` for a book that contradicts itself."""
    if init.recipes is None:
        if init.tags:
            raise InvalidInit("tags: only a recipe book of its own has tags of its own, and there are no recipes")
        document = b""
    else:
        document = orjson.dumps({"recipes": [recipe.model_dump() for recipe in init.recipes], "tags": init.tags})
    return _exchanged_world(document, seed or 0) if init.exchange_names else _world(document)


def meant_item(world: World, name: str, where: str) -> str:
    """The id in this world of an item by the name that its task knows; raises `InvalidInit` as `find_item` does."""
    identifier = _id(name)
    return find_item(world, world.other_id.get(identifier, identifier), where)


def find_item(world: World, name: str, where: str) -> str:
    """The id of an item by name; raises `InvalidInit` when the world has none such, or it is a tag."""
    identifier = _id(name)
    if identifier in world.book.members:
        raise InvalidInit(f"{where}: {to_name(identifier)!r} is a tag, name one of its items")
    if identifier not in world.book.items:
        raise InvalidInit(f"{where}: there is no item {to_name(identifier)!r} in the recipe book")
    return identifier


def find_goal(world: World, name: str) -> str:
    """The id of an item that can be made, by the name that the task knows; raises `InvalidInit` otherwise."""
    identifier = meant_item(world, name, "goal")
    if not world.planner.can_make(identifier):
        raise InvalidInit(f"goal: {to_name(identifier)!r} cannot be made, its recipes only lead in circles")
    return identifier


def _world(document: bytes) -> World:
    """The world of a recipe book as JSON; of none, the game's own."""
    return _own_world(document) if document else minecraft_world()


@lru_cache(maxsize=64)
def _exchanged_world(document: bytes, seed: int) -> World:
    """Siblings of a group start from the same `init` and seed: one book serves them."""
    plain = _world(document)
    mapping = exchanged(plain.book, random.Random(f"names/{seed}"))
    book = renamed(plain.book, mapping)
    return World(book, Planner(book), f"{plain.key}/{seed}", mapping)


@lru_cache(maxsize=64)
def _own_world(document: bytes) -> World:
    """Siblings of a group start from the same `init`: one book serves them."""
    content = orjson.loads(document)
    tags = {_id(tag): [_id(member) for member in members] for tag, members in content["tags"].items()}
    recipes = [
        Recipe(
            _id(entry["output"]),
            entry["count"],
            tuple(
                Ingredient(_id(slot.removeprefix("#")), count, slot.startswith("#"))
                for slot, count in entry["ingredients"].items()
            ),
        )
        for entry in content["recipes"]
    ]
    _check(recipes, tags)
    book = RecipeBook(recipes, tags)
    return World(book, Planner(book), digest(content)[:16])


def _check(recipes: list[Recipe], tags: Mapping[str, list[str]]) -> None:
    """Raises `InvalidInit` for an unknown, empty or ambiguous tag, an ingredient named twice, an unspeakable name."""
    for recipe in recipes:
        if recipe.line.count(" using ") > 1:
            raise InvalidInit(f"recipes: a name in {recipe.line!r} holds the word 'using', which no action could say")
    for tag, members in tags.items():
        if not members or len(set(members)) < len(members):
            raise InvalidInit(f"tags: {to_name(tag)!r} is empty or names an item twice")
        for member in members:
            if member in tags:
                raise InvalidInit(f"tags: {to_name(member)!r}, a member of {to_name(tag)!r}, is itself a tag")
    for recipe in recipes:
        named = {ingredient.id for ingredient in recipe.ingredients}
        if len(named) < len(recipe.ingredients):
            raise InvalidInit(f"recipes: an ingredient is named twice in {recipe.line!r}")
        if recipe.output in tags:
            raise InvalidInit(f"recipes: {to_name(recipe.output)!r} is a tag, a recipe makes an item")
        for ingredient in recipe.ingredients:
            name = to_name(ingredient.id)
            if ingredient.is_tag and ingredient.id not in tags:
                raise InvalidInit(f"recipes: tag '#{name}' is not in tags")
            if not ingredient.is_tag and ingredient.id in tags:
                raise InvalidInit(f"recipes: {name!r} is a tag, write '#{name}'")


def _id(name: str) -> str:
    return to_id(name.removeprefix(PREFIX))


def _validate(model: type[_Model], value: object) -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInit(first_problem(error)) from error
