"""The scripted player wins every goal, from any state, in any recipe book in which the goal can be made."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.envs.textcraft.minecraft import minecraft_book
from sojourn.envs.textcraft.planner import MAX_ACTIONS, Planner
from sojourn.envs.textcraft.recipes import Ingredient, Recipe, RecipeBook
from sojourn.envs.textcraft.rules import apply
from sojourn.envs.textcraft.views import Kind
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import NotSupported


async def finish(env):
    """Carry out the solution; every action is taken, and only the last one ends the episode."""
    solution = await env.solve()
    results = [await env.step(action) for action in solution.actions]
    assert not any(result.info.get("invalid") for result in results)
    assert [result.reward for result in results] == [0.0] * (len(results) - 1) + [1.0]
    return solution


async def test_every_goal_is_solved_and_most_within_thirty_turns(textcraft):
    env, short, turns = textcraft.create("compact"), Counter(), 0
    for task in (TaskRef("textcraft", str(i)) for i in range(544)):
        await env.reset(task)
        solution = await finish(env)
        turns += len(solution.actions)
        short[textcraft.tasks().family(task)] += len(solution.actions) <= 30
    assert short == {"depth1": 125, "depth2": 291, "depth3": 106, "depth4": 6}
    assert turns / 544 < 8


@pytest.mark.parametrize("view", ["full", "compact", "agentgym"])
async def test_every_goal_is_solved_from_where_a_random_player_left_it(textcraft, view):
    rng, env = random.Random(0), textcraft.create(view)
    for index in range(0, 544, 3):
        await env.reset(TaskRef("textcraft", str(index)), seed=index)
        for _ in range(rng.randrange(12)):
            if (await env.step(rng.choice(await env.available_actions()))).done:
                await env.reset(TaskRef("textcraft", str(index)))
        await finish(env)


async def test_every_goal_is_solved_with_anything_in_hand(textcraft):
    rng, env, names = random.Random(1), textcraft.create(), minecraft_book().names
    items = [names[item] for item in sorted(minecraft_book().items)]
    for index in range(0, 544, 3):
        held = {item: rng.randrange(1, 9) for item in rng.sample(items, 60)}
        await env.reset(TaskRef("textcraft", str(index)), init={"inventory": held})
        await finish(env)


async def test_what_is_held_is_used(start):
    env = await start("chest", init={"inventory": {"oak planks": 5}})
    assert (await env.solve()).actions == [
        "get 1 oak logs",
        "craft 4 oak planks using 1 oak logs",
        "craft 1 chest using 8 oak planks",
    ]


async def test_a_goal_in_hand_is_crafted_all_the_same(start):
    env = await start("acacia_planks", init={"inventory": {"acacia planks": 64}})
    assert len((await finish(env)).actions) == 2


async def test_after_the_end_there_is_nothing_to_do(start):
    env = await start("acacia_planks")
    await finish(env)
    assert (await env.solve()).actions == []


async def test_thoughts_are_the_path_from_the_goal(start):
    env = await start("chest")
    solution = await env.solve()
    assert list(zip(solution.thoughts, solution.actions, strict=True)) == [
        ("chest 8 planks acacia planks 1 acacia logs", "get 1 acacia logs"),
        ("chest 8 planks acacia planks", "craft 4 acacia planks using 1 acacia logs"),
        ("chest 8 planks acacia planks 1 acacia logs", "get 1 acacia logs"),
        ("chest 8 planks acacia planks", "craft 4 acacia planks using 1 acacia logs"),
        ("chest", "craft 1 chest using 8 acacia planks"),
    ]


async def test_a_goal_that_nothing_makes_is_got(start):
    env = await start("chest", init={"goal": "oak log"})
    assert await finish(env) == await finish(await start("beacon", init={"goal": "oak_log"}))


async def test_a_plan_of_billions_is_not_worked_out(start):
    doubling = [{"output": f"a{i + 1}", "ingredients": {f"a{i}": 2}} for i in range(30)]
    env = await start("chest", init={"recipes": doubling, "goal": "a30"})
    with pytest.raises(NotSupported, match=str(MAX_ACTIONS)):
        await env.solve()


ITEMS = [f"minecraft:i{n}" for n in range(8)]
TAGS = {"minecraft:t0": ITEMS[1:4], "minecraft:t1": ITEMS[3:7]}
INGREDIENTS = st.dictionaries(st.sampled_from([*ITEMS, *TAGS]), st.integers(1, 3), min_size=1, max_size=3)


@st.composite
def books(draw):
    """Small books with circles, tags over craftable and raw items, and several recipes for one item."""
    entries = draw(st.lists(st.tuples(st.sampled_from(ITEMS), st.integers(1, 4), INGREDIENTS), min_size=1, max_size=8))
    return RecipeBook(
        [
            Recipe(output, count, tuple(Ingredient(i, n, i in TAGS) for i, n in ingredients.items()))
            for output, count, ingredients in entries
        ],
        TAGS,
    )


@settings(max_examples=300, deadline=None)
@given(books(), st.dictionaries(st.sampled_from(ITEMS), st.integers(1, 5)))
def test_whatever_can_be_made_is_made(book, held):
    planner = Planner(book)
    for goal in planner.best:
        if planner.effort[goal] > MAX_ACTIONS // 2:
            continue
        inventory = {item: count for item, count in held.items() if item in book.items}
        for move in planner.plan(goal, inventory):
            reply = apply(book, inventory, move.action, strict=True)
            assert reply.kind in {Kind.GOT, Kind.CRAFTED}, (move, reply)
        assert inventory[goal] > 0


@given(books())
def test_what_cannot_be_made_only_leads_in_circles(book):
    """Each recipe of an item that cannot be made asks for another such item."""
    planner = Planner(book)
    hopeless = [item for item in book.recipes if not planner.can_make(item)]
    for item in hopeless:
        for recipe in book.recipes[item]:
            assert any(i.id not in planner.effort for i in recipe.ingredients)


async def test_a_renamed_world_is_solved_alike(textcraft):
    rng, book, env = random.Random(2), minecraft_book(), textcraft.create("compact")
    names = sorted(book.names.values())
    for index in range(0, 544, 9):
        task = textcraft.tasks().resolve(TaskRef("textcraft", str(index)))
        goal = f"minecraft:{task.key}"
        await env.reset(task)
        usual = await env.solve()
        other = dict(zip(names, rng.sample(names, len(names)), strict=True))
        own = book.export(book.deal(goal, 10, rng), other)
        opening = await env.reset(task, init={**own, "goal": other[book.names[goal]]})
        assert opening.text.endswith(f"goal: {other[book.names[goal]]}")
        assert len((await finish(env)).actions) == len(usual.actions)


async def test_the_exported_book_is_the_same_world(textcraft):
    own = minecraft_book().export()
    env, twin = textcraft.create(), textcraft.create()
    for index in range(0, 544, 50):
        task = TaskRef("textcraft", str(index))
        assert (await env.reset(task, seed=3)).text == (await twin.reset(task, seed=3, init=own)).text
        assert await env.solve() == await twin.solve()
