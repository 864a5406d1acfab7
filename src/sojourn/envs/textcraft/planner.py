"""The scripted player: the next action from any inventory, with the path from the goal down to what is acted on.

It is closed-loop: walk down from the goal, always into the first ingredient that is missing, until something can be
got or crafted. Effort (an estimate of actions) decides between recipes and between members of a tag.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sojourn.envs.textcraft.recipes import Ingredient, Recipe, RecipeBook

MAX_ACTIONS = 1_000
"""A plan longer than this is not worked out (a recipe book of one's own can ask for billions)."""
RAW_EFFORT = 1


class Move(NamedTuple):
    """One action of a plan and what it changes."""

    thought: str
    """`chest 8 planks acacia planks`: the goal, then for each hop the count, the ingredient, the member of a tag."""
    action: str
    item: str
    amount: int
    """So many of `item` are gained."""
    inputs: tuple[tuple[str, int], ...]
    """Items that are used up, with their counts."""


class Planner:
    """Plans in one recipe book.

    `effort` holds the actions that one making of an item takes from nothing; items that cannot be made at all (their
    recipes only lead in circles) have none.
    """

    def __init__(self, book: RecipeBook) -> None:
        self._book = book
        self.effort: dict[str, int] = {}
        self.depth: dict[str, int] = {}
        self.best: dict[str, Recipe] = {}
        self._measure()

    def can_make(self, identifier: str) -> bool:
        """Whether an item can be had at all, got or crafted."""
        return identifier in self.effort and identifier not in self._book.members

    def plan(self, goal: str, inventory: Mapping[str, int]) -> Iterator[Move]:
        """All moves from an inventory to the crafting of `goal`; raises `OverflowError` past `MAX_ACTIONS`."""
        held = dict(inventory)
        for _ in range(MAX_ACTIONS):
            move = self.move(goal, held)
            yield move
            if move.item == goal:
                return
            for item, count in move.inputs:
                held[item] -= count
            held[move.item] = held.get(move.item, 0) + move.amount
        raise OverflowError(f"more than {MAX_ACTIONS} actions")

    def move(self, goal: str, inventory: Mapping[str, int]) -> Move:
        """What to do next; every move brings `goal` nearer, since making an item only uses items of less effort."""
        names, item, path = self._book.names, goal, [self._book.names[goal]]
        count = 1
        while item in self.best:
            recipe = self.best[item]
            used: dict[str, int] = {}
            inputs: list[tuple[str, int]] = []
            for ingredient in recipe.ingredients:
                member = self._member(ingredient, item, inventory, used) if ingredient.is_tag else ingredient.id
                if inventory.get(member, 0) - used.get(member, 0) < ingredient.count:
                    path += [str(ingredient.count), names[ingredient.id]]
                    if ingredient.is_tag:
                        path.append(names[member])
                    item, count = member, ingredient.count
                    break
                used[member] = used.get(member, 0) + ingredient.count
                inputs.append((member, ingredient.count))
            else:
                what = ", ".join(f"{n} {names[member]}" for member, n in inputs)
                action = f"craft {recipe.count} {names[item]} using {what}"
                return Move(" ".join(path), action, item, recipe.count, tuple(inputs))
        return Move(" ".join(path), f"get {count} {names[item]}", item, count, ())

    def _member(self, wanted: Ingredient, item: str, inventory: Mapping[str, int], used: Mapping[str, int]) -> str:
        """The member of a tag that takes the least further effort; only one of less effort than what it goes into."""
        best, least = "", -1
        for member in self._book.members[wanted.id]:
            effort = self.effort.get(member)
            if effort is None or effort >= self.effort[item]:
                continue
            missing = wanted.count - inventory.get(member, 0) + used.get(member, 0)
            further = self._actions(member, missing) if missing > 0 else 0
            if least < 0 or further < least:
                best, least = member, further
        return best

    def _actions(self, identifier: str, count: int) -> int:
        """Actions to have `count` more of an item, from nothing."""
        recipe = self.best.get(identifier)
        return RAW_EFFORT if recipe is None else -(-count // recipe.count) * self.effort[identifier]

    def _measure(self) -> None:
        """Least effort and least depth of everything, cheapest first (Knuth's generalisation of Dijkstra)."""
        book = self._book
        waiting = {id(recipe): len(recipe.ingredients) for options in book.recipes.values() for recipe in options}
        tags_of: dict[str, list[str]] = {}
        for tag, members in book.members.items():
            for member in members:
                tags_of.setdefault(member, []).append(tag)
        cheapest: dict[str, str] = {}
        heap: list[tuple[int, int, str, Recipe | None]] = []
        order = 0
        for item in sorted(book.items):
            if book.is_raw(item):
                heapq.heappush(heap, (RAW_EFFORT, order, item, None))
                order += 1
        while heap:
            effort, _, name, recipe = heapq.heappop(heap)
            if name in self.effort:
                continue
            self.effort[name] = effort
            if recipe is not None:
                self.best[name] = recipe
            for tag in tags_of.get(name, ()):
                if tag not in cheapest:
                    cheapest[tag] = name
                    heapq.heappush(heap, (effort, order, tag, None))
                    order += 1
            for use in book.uses.get(name, ()):
                waiting[id(use)] -= 1
                if not waiting[id(use)]:
                    total = 1 + sum(self._actions(cheapest.get(i.id, i.id), i.count) for i in use.ingredients)
                    heapq.heappush(heap, (total, order, use.output, use))
                    order += 1
