"""One episode of TextCraft: what each view answers, how it starts, ends, freezes and is changed from outside."""

import itertools
import random

import orjson
import pytest

from sojourn.envs.base import pack_state, unpack_state
from sojourn.envs.textcraft.rules import HUGE, MAX_GET
from sojourn.protocol.env import Snapshot, TaskRef
from sojourn.protocol.errors import Conflict, InvalidInit, SnapshotInvalid, UnknownTask, UsageError

VIEWS = ("full", "compact", "agentgym")
LEAK = (
    "Could not find a valid recipe for ItemTagWithCount(item_tag=ItemTag(tag=None, item_id='minecraft:{}'), count={})"
)
HELD = {"oak planks": 5, "stick": 2, "oak logs": 1, "birch planks": 3}
REPLIES = [
    # action, full, compact, agentgym; each starts with `HELD`
    ("get 3 oak log", "Got 3 oak log", "got 3 oak log", "Got 3 oak log"),
    ("get 007 oak_log", "Got 7 oak log", "got 7 oak log", "Got 7 oak_log"),
    ("get 1 oak log\nget 2 flint", "Got 1 oak log", "got 1 oak log", "Got 1 oak log"),
    ("get 1 planks", "Could not find planks", "not found", "Could not find planks"),
    ("get 1 stick", "Could not find stick", "not found", "Could not find stick"),
    ("get 1 unobtainium", "Could not find unobtainium", "not found", "Could not find unobtainium"),
    (
        "get 0 oak log",
        f"Could not get 0 oak log: the count must be from 1 to {MAX_GET}",
        "wrong count",
        "Got 0 oak log",
    ),
    (
        f"get {'9' * 22} oak log",
        f"Could not get {'9' * 22} oak log: the count must be from 1 to {MAX_GET}",
        "wrong count",
        f"Got {'9' * 22} oak log",
    ),
    ("get some oak log", "Could not execute get some oak log", "unknown action", "Could not execute get some oak log"),
    ("", "Could not execute ", "unknown action", "Could not execute "),
    ("GET 1 oak log", "Could not execute GET 1 oak log", "unknown action", "Could not execute GET 1 oak log"),
    (
        "craft 4 oak planks using 1 oak logs",
        "Crafted 4 minecraft:oak_planks",
        "crafted 4 oak planks",
        "Crafted 4 minecraft:oak_planks",
    ),
    (
        "craft oak planks using 1 oak logs",
        "Crafted 4 minecraft:oak_planks",
        "crafted 4 oak planks",
        "Crafted 4 minecraft:oak_planks",
    ),
    (
        "craft 9 oak planks using 1 oak logs",
        "Could not craft 9 oak planks: this recipe makes 4",
        "wrong count",
        "Crafted 4 minecraft:oak_planks",
    ),
    (
        "craft 0 oak planks using 1 oak logs",
        "Could not craft 0 oak planks: this recipe makes 4",
        "wrong count",
        "Crafted 4 minecraft:oak_planks",
    ),
    (
        "craft 4 stick using 2 oak planks",
        "Crafted 4 minecraft:stick",
        "crafted 4 stick",
        "Crafted 4 minecraft:stick",
    ),
    (
        "craft 4 stick using 2 planks",
        "Could not find enough items to craft minecraft:stick",
        "not enough",
        "Could not find enough items to craft minecraft:stick",
    ),
    (
        "craft 1 planks using 9 oak logs",
        "Could not find enough items to craft minecraft:planks",
        "not enough",
        "Could not find enough items to craft None",
    ),
    (
        "craft 4 oak planks using 2 stick",
        "Could not find a valid recipe for oak planks",
        "no recipe",
        LEAK.format("oak_planks", 4),
    ),
    (
        "craft gold using 1 stick, 1 oak logs",
        "Could not find a valid recipe for gold",
        "no recipe",
        LEAK.format("gold", 1),
    ),
    (
        "craft 4 planks using 2 stick",
        "Could not find a valid recipe for planks",
        "no recipe",
        "Could not find a valid recipe for "
        "ItemTagWithCount(item_tag=ItemTag(tag='minecraft:planks', item_id=None), count=4)",
    ),
    (
        "craft 4 stick using 1 oak planks, 1 oak planks",
        "Could not find a valid recipe for stick",
        "no recipe",
        LEAK.format("stick", 4),
    ),
    ("craft 4 stick using 1 oak planks, 1 birch planks", "Could not find a valid recipe for stick", "no recipe", None),
    (
        "craft 4 stick using oak planks",
        "Wrong item format: oak planks",
        "wrong format",
        "Wrong item format: oak planks",
    ),
    ("craft 4 stick using 2 oak planks,", "Wrong item format: ", "wrong format", "Wrong item format: "),
    ("craft stick", "Could not execute craft stick", "unknown action", "Could not execute craft stick"),
    ("look\naround", "Could not execute look around", "unknown action", "Could not execute look\naround"),
    ("x" * 200, f"Could not execute {'x' * 100}...", "unknown action", f"Could not execute {'x' * 200}"),
    (
        "inventory",
        "Inventory: [oak planks] (5) [stick] (2) [oak logs] (1) [birch planks] (3) ",
        "inventory: 5 oak planks, 2 stick, 1 oak logs, 3 birch planks",
        "Inventory: [oak planks] (5) [stick] (2) [oak logs] (1) [birch planks] (3) ",
    ),
    ("inventory, please", None, None, None),
]


@pytest.mark.parametrize(("action", "full", "compact", "agentgym"), REPLIES)
async def test_what_each_view_answers(start, action, full, compact, agentgym):
    for view, expected in zip(VIEWS, (full, compact, agentgym), strict=True):
        env = await start("beacon", view=view, init={"inventory": HELD})
        result = await env.step(action)
        assert (result.reward, result.terminated, result.truncated) == (0.0, False, False)
        if expected is not None:
            assert result.observation == expected
        taken = result.observation.lower().startswith(("got", "crafted", "inventory"))
        assert result.info.get("invalid", False) is not taken


async def test_an_empty_inventory(start):
    texts = [(await (await start("chest", view=view)).step("inventory")).observation for view in VIEWS]
    nothing = "Inventory: You are not carrying anything."
    assert texts == [nothing, "inventory: empty", nothing]


async def test_openings(textcraft):
    texts = {}
    for view in VIEWS:
        opening = await textcraft.create(view).reset(TaskRef("textcraft", "acacia_planks"), init={"distractors": 0})
        texts[view] = opening.text
    recipe = "craft 4 acacia planks using 1 acacia logs"
    assert texts["full"] == texts["agentgym"] == f"Crafting commands:\n{recipe}\n\nGoal: craft acacia planks."
    assert texts["compact"] == f"{recipe}\ngoal: acacia planks"


async def test_distractors_are_bounded_and_do_not_belong_to_the_tree(textcraft):
    env, counts = textcraft.create("compact"), {}
    for wanted in (0, 3, 10, 40):
        text = (await env.reset(TaskRef("textcraft", "beacon"), init={"distractors": wanted})).text
        counts[wanted] = text.count("\n") - 1
    assert counts[0] == 0
    assert counts[3] == 3
    assert counts[10] == 10
    assert counts[10] < counts[40] <= 40


async def test_leftovers_stay_and_what_is_used_up_is_gone(start):
    env = await start("chest", init={"inventory": {"oak logs": 1}})
    result = await env.step("craft 4 oak planks using 1 oak logs")
    assert result.info["view"] == {"goal": "chest", "inventory": {"oak planks": 4}}


@pytest.mark.parametrize("view", VIEWS)
async def test_the_end_pays_once(start, view):
    env = await start("acacia_planks", view=view, init={"inventory": {"acacia logs": 3}})
    won = await env.step("craft 4 acacia planks using 1 acacia logs")
    assert (won.reward, won.terminated, won.info["score"], won.info["success"]) == (1.0, True, 1.0, True)
    for action in ("craft 4 acacia planks using 1 acacia logs", "inventory", "get 1 flint", ""):
        after = await env.step(action)
        assert (after.reward, after.terminated, after.info["score"]) == (0.0, True, 1.0)
        assert after.info["invalid"]
        assert after.info["view"] == won.info["view"]
    assert await env.available_actions() == []


async def test_a_spare_of_another_item_is_no_success(start):
    env = await start("acacia_planks")
    await env.step("get 1 oak logs")
    result = await env.step("craft 4 oak planks using 1 oak logs")
    assert (result.reward, result.terminated) == (0.0, False)


async def test_available_actions_are_taken(start):
    rng = random.Random(3)
    for item in ("beacon", "chest", "painting", "daylight_detector"):
        env = await start(item)
        for _ in range(25):
            options = await env.available_actions()
            assert len(options) == len(set(options))
            frozen = await env.snapshot()
            for action in options:
                assert not (await env.step(action)).info.get("invalid"), action
                await env.restore(frozen)
            if (await env.step(rng.choice(options))).done:
                break


async def test_state_keys_tell_states_apart(start):
    env, other = await start("chest"), await start("beacon")
    seen = [(await env.snapshot()).digest]
    keys = {(await env.step(action)).info["state_key"] for action in ("get 1 oak log", "get 1 flint", "get 1 flint")}
    assert len(keys) == 3
    assert (await other.step("get 1 oak log")).info["state_key"] not in keys
    twin = await start("chest", seed=5)
    await twin.step("get 2 flint")
    assert (await twin.step("get 1 oak log")).info["state_key"] in keys
    assert (await env.snapshot()).digest not in seen


async def test_surrogates_are_answered(start):
    result = await (await start("chest", view="agentgym")).step("get \ud800")
    assert result.observation == "Could not execute get ?"


async def test_before_a_reset_nothing_works(textcraft):
    env = textcraft.create()
    for call in (env.step("inventory"), env.snapshot(), env.solve(), env.available_actions()):
        with pytest.raises(Conflict):
            await call


def test_unknown_views_are_refused(textcraft):
    with pytest.raises(UsageError, match="tiny"):
        textcraft.create("tiny")


def test_the_specification_publishes_its_schemas(textcraft):
    spec = textcraft.spec
    assert spec.views == VIEWS
    assert set(spec.init_schema["properties"]) == {
        "inventory",
        "goal",
        "recipes",
        "tags",
        "distractors",
        "exchange_names",
    }
    assert set(spec.inject_schema["properties"]) == {"items"}
    assert (spec.default_horizon, spec.snapshot, spec.execution) == (30, "state", "inline")


# init and inject


async def test_init_sets_inventory_and_goal(start):
    env = await start("chest", view="compact", init={"goal": "stick", "inventory": {"minecraft:oak_planks": 2}})
    assert (await env.step("inventory")).observation == "inventory: 2 oak planks"
    assert (await env.step("craft 4 stick using 2 oak planks")).reward == 1.0


OWN = {
    "recipes": [
        {"output": "soup", "count": 2, "ingredients": {"#root": 3, "water": 1}},
        {"output": "baked root", "ingredients": {"raw root": 1}},
    ],
    "tags": {"root": ["turnip", "baked root"]},
    "goal": "soup",
    "distractors": 0,
}


async def test_an_own_recipe_book_is_a_whole_world(start, textcraft):
    env = await start("chest", view="compact", init=OWN)
    opening = await textcraft.create("compact").reset(TaskRef("textcraft", "chest"), init=OWN)
    assert sorted(opening.text.splitlines()) == [
        "craft 1 baked root using 1 raw root",
        "craft 2 soup using 3 root, 1 water",
        "goal: soup",
    ]
    actions = ["get 1 stick", "get 1 oak logs", "get 3 root", "get 3 turnip", "get 1 water"]
    answers = [(await env.step(action)).observation for action in actions]
    assert answers == ["not found"] * 3 + ["got 3 turnip", "got 1 water"]
    assert (await env.solve()).actions == ["craft 2 soup using 3 turnip, 1 water"]
    assert (await env.step("craft 2 soup using 3 turnip, 1 water")).reward == 1.0


async def test_circles_in_an_own_book_are_gone_round(start):
    circle = [
        {"output": "iron", "ingredients": {"block": 1}, "count": 9},
        {"output": "block", "ingredients": {"iron": 9}},
        {"output": "iron", "ingredients": {"ore": 1}},
    ]
    env = await start("chest", init={"recipes": circle, "goal": "block"})
    solution = await env.solve()
    assert solution.actions[-1] == "craft 1 block using 9 iron"
    assert len(solution.actions) == 19


def one(output="a", **ingredients):
    return [{"output": output, "ingredients": ingredients or {"b": 1}}]


REFUSED = [
    ({"size": 3}, "size"),
    ([1], "expected an object"),
    ({"goal": "unobtainium"}, "no item 'unobtainium'"),
    ({"goal": "planks"}, "'planks' is a tag"),
    ({"goal": 3}, "goal"),
    ({"inventory": {"unobtainium": 1}}, "no item 'unobtainium'"),
    ({"inventory": {"stick": 0}}, "inventory.stick"),
    ({"inventory": {"stick": True}}, "inventory.stick"),
    ({"inventory": {"stick": 10**30}}, "inventory.stick"),
    ({"inventory": {"oak planks": 1, "oak_planks": 2}}, "twice"),
    ({"distractors": -1}, "distractors"),
    ({"recipes": []}, "recipes"),
    ({"tags": {"t": ["a"]}}, "tags"),
    ({"recipes": one()}, "no item 'chest'"),
    ({"goal": "a", "recipes": one() + one("b", a=1)}, "circles"),
    ({"goal": "a", "recipes": one("a", a=1)}, "circles"),
    ({"goal": "a", "recipes": one("a", **{"#t": 1})}, "'#t' is not in tags"),
    ({"goal": "a", "recipes": one("a", t=1), "tags": {"t": ["x"]}}, "write '#t'"),
    ({"goal": "a", "recipes": one(), "tags": {"t": []}}, "empty"),
    ({"goal": "a", "recipes": one(), "tags": {"t": ["x", "minecraft:x"]}}, "twice"),
    ({"goal": "a", "recipes": one(), "tags": {"t": ["u"], "u": ["x"]}}, "itself a tag"),
    ({"goal": "a", "recipes": one(), "tags": {"a": ["x"]}}, "makes an item"),
    ({"goal": "a", "recipes": one("a", b=1, **{"minecraft:b": 2})}, "named twice"),
    ({"goal": "a", "recipes": one("a using b", b=1)}, "'using'"),
    ({"goal": "a", "recipes": one("A, b", b=1)}, "output"),
    ({"goal": "a", "recipes": [{"output": "a", "ingredients": {}}]}, "ingredients"),
    ({"goal": "a", "recipes": [{"output": "a", "count": 0, "ingredients": {"b": 1}}]}, "count"),
    ({"goal": "a", "recipes": one("a", b=10**9)}, "ingredients"),
]


@pytest.mark.parametrize(("init", "reason"), REFUSED)
async def test_an_impossible_init_is_refused_with_the_reason(textcraft, init, reason):
    with pytest.raises(InvalidInit, match=reason):
        await textcraft.create().reset(TaskRef("textcraft", "chest"), init=init)


async def test_a_refused_reset_leaves_the_episode_as_it_was(start):
    env = await start("chest")
    await env.step("get 1 flint")
    before = await env.snapshot()
    with pytest.raises(InvalidInit):
        await env.reset(TaskRef("textcraft", "chest"), init={"goal": "nothing"})
    with pytest.raises(UnknownTask):
        await env.reset(TaskRef("textcraft", "nothing"))
    assert await env.snapshot() == before


async def test_injection_gives_and_takes(start):
    env = await start("chest", view="compact", init={"inventory": {"flint": 3, "stick": 1}})
    seen = await env.inject({"items": {"flint": -1, "stick": -1, "oak planks": 8}})
    assert seen.text == "inventory: 2 flint, 8 oak planks"
    assert seen.info["view"]["inventory"] == {"flint": 2, "oak planks": 8}
    assert (await env.step("craft 1 chest using 8 oak planks")).reward == 1.0


@pytest.mark.parametrize(
    "change",
    [{}, {"items": {}}, {"items": {"flint": -4}}, {"items": {"flint": MAX_GET}}, {"items": {"planks": 1}},
     {"items": {"unobtainium": 1}}, {"items": {"flint": 0.5}}, {"goal": "stick"}, {"items": {"flint": 1, "gold": 1}}],
)  # fmt: skip
async def test_an_impossible_injection_changes_nothing(start, change):
    env = await start("chest", init={"inventory": {"flint": 3}})
    before = await env.snapshot()
    with pytest.raises(InvalidInit):
        await env.inject(change)
    assert await env.snapshot() == before


# snapshots


async def test_a_snapshot_goes_on_in_another_view(start, textcraft):
    env = await start("chest", view="agentgym")
    await env.step("get 0 flint")
    await env.step("craft 4 oak planks using 2 stick")
    frozen = await env.snapshot()
    compact = textcraft.create("compact")
    assert (await compact.restore(frozen)).text == "not enough"
    assert (await compact.step("inventory")).observation == "inventory: empty"
    again = textcraft.create("agentgym")
    await again.restore(frozen)
    assert (await again.step("inventory")).observation == "Inventory: [flint] (0) "


async def test_a_snapshot_of_an_own_world_is_whole(start, textcraft):
    env = await start("chest", init=OWN)
    await env.step("get 3 turnip")
    other = textcraft.create()
    await other.restore(await env.snapshot())
    assert (await other.solve()).actions == (await env.solve()).actions
    assert len((await env.snapshot()).data) < 600


async def test_the_opening_survives_a_snapshot(start, textcraft):
    env = await start("painting", seed=12)
    opening = await env.reset(TaskRef("textcraft", "painting"), seed=12)
    assert (await textcraft.create().restore(await env.snapshot())).text == opening.text


TAMPERED = [
    {"inventory": {"minecraft:unobtainium": 1}},
    {"inventory": {"minecraft:flint": -1}},
    {"inventory": {"minecraft:flint": HUGE + 1}},
    {"inventory": {"minecraft:flint": 1.5}},
    {"inventory": {"minecraft:planks": 1}},
    {"inventory": []},
    {"ended": "no"},
    {"seed": "x"},
    {"task": "babyai_3"},
    {"task": "textcraft:nothing"},
    {"task": "no task"},
    {"task": 3},
    {"init": {"goal": "nothing"}},
    {"init": {"recipes": [{"output": "a", "ingredients": {"a": 1}}], "goal": "a"}},
    {"init": []},
    {"reply": ["sung", "", "", 0]},
    {"reply": ["got", "flint", 1, 0]},
    {"reply": ["got"]},
    {"reply": {}},
    {"more": 1},
]


@pytest.mark.parametrize("change", TAMPERED)
async def test_a_tampered_snapshot_is_refused(start, textcraft, change):
    env = await start("chest")
    state = unpack_state(await env.snapshot(), "textcraft", "1", "state")
    before = await env.snapshot()
    with pytest.raises(SnapshotInvalid):
        await env.restore(pack_state("textcraft", "1", "state", {**state, **change}))
    assert await env.snapshot() == before
    await textcraft.create().restore(pack_state("textcraft", "1", "state", state))


async def test_any_damage_to_a_snapshot_is_refused_or_harmless(start, textcraft):
    env = await start("chest", init=OWN)
    await env.step("get 3 turnip")
    data, rng = (await env.snapshot()).data, random.Random(0)
    outcomes = set()
    for at, _ in itertools.product(range(0, len(data), 3), range(3)):
        damaged = Snapshot("textcraft", data[:at] + rng.randbytes(1) + data[at + 1 :])
        other = textcraft.create()
        try:
            await other.restore(damaged)
        except SnapshotInvalid:
            outcomes.add("refused")
        else:
            outcomes.add("restored")
            orjson.dumps((await other.step("inventory")).observation)
    assert "refused" in outcomes
