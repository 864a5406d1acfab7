"""What a server can do to an episode: `init`, `inject`, snapshot and restore; and what it refuses."""

import orjson
import pytest

from sojourn.envs.babyai import BabyAIService, changes, codes
from sojourn.protocol.env import Snapshot, TaskRef
from sojourn.protocol.errors import InvalidInit, NotSupported, SnapshotInvalid
from tests.envs.test_babyai_env import CORRIDOR, SERVICE, begin


async def test_init_moves_the_agent_and_reset_forgets_it():
    env, plain = await begin()
    init = {"max_steps": 50, "agent": {"pos": [3, 1], "dir": 2}}
    _, moved = await begin(init=init)
    observed = await env.reset(CORRIDOR, init=init)
    assert observed == moved
    assert env.world.level.xy(env.world.pos) == (3, 1)
    assert (env.world.facing, env.world.max_steps) == (2, 50)
    assert await env.reset(CORRIDOR) == plain


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        ({"max_steps": 0}, "max_steps: Input should be greater than or equal to 1"),
        ({"max_steps": True}, "max_steps: Input should be a valid integer"),
        ({"agent": {"pos": [0, 0]}}, "cannot stand at .0, 0.: grey wall"),
        ({"agent": {"pos": [-1, 1]}}, "outside of the 7 x 3 grid"),
        ({"agent": {"pos": [10**30, 1]}}, "outside of the 7 x 3 grid"),
        ({"agent": {"pos": [1]}}, "agent.pos.1: Field required"),
        ({"agent": {"dir": 4}}, "agent.dir"),
        ({"agents": {}}, "agents: Extra inputs are not permitted"),
        ("x", "expected an object"),
    ],
)
async def test_a_wrong_init_says_why(init, reason):
    with pytest.raises(InvalidInit, match=reason):
        await begin(init=init)


async def test_injections_change_the_world():
    env, _ = await begin()
    await env.inject({"door": {"pos": [4, 1], "state": "open"}, "carry": {"kind": "box", "color": "green"}})
    level = env.world.level
    doors = [level.xy(cell) for cell, look in level_doors(env.world)]
    assert (4, 1) in doors
    seen = await env.inject({"agent": {"dir": 0}})
    assert seen.text.endswith("carrying green box")
    ball = next(level.xy(cell) for cell, thing in env.world.ids.items() if env.world.things[thing].look in range(9, 15))
    gone = await env.inject(
        {"remove": {"pos": list(ball)}, "place": {"kind": "ball", "color": "red", "pos": list(ball)}}
    )
    assert gone.info["state_key"] != seen.info["state_key"]
    with pytest.raises(NotSupported):
        await env.solve()  # the ball of the mission is gone, and another one does not stand for it


def level_doors(world):
    return [(cell, world.cells[cell]) for cell in world.ids if world.cells[cell] > 20]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"remove": {"pos": [0, 0]}}, "nothing to remove"),
        ({"place": {"kind": "door", "color": "red", "pos": [3, 1]}}, "place.kind"),
        ({"place": {"kind": "key", "color": "pink", "pos": [3, 1]}}, "place.color"),
        ({"place": {"kind": "key", "color": "red", "pos": [3, 1]}}, "not an empty cell"),
        ({"door": {"pos": [3, 1], "state": "open"}}, "no door at"),
        ({"door": {"pos": [2, 1], "state": "ajar"}}, "door.state"),
        ({"agent": {"pos": [2, 1]}, "door": {"pos": [2, 1], "state": "locked"}}, "cannot stand"),
        ({"carry": {"kind": "key", "color": "red"}, "place": {"kind": "key"}}, "place.color: Field required"),
        ({"teleport": [1, 1]}, "teleport: Extra inputs"),
        (None, "expected an object"),
    ],
)
async def test_a_wrong_injection_says_why_and_changes_nothing(change, reason):
    env, _ = await begin(init={"agent": {"pos": [3, 1]}})
    frozen = (await env.snapshot()).digest
    with pytest.raises(InvalidInit, match=reason):
        await env.inject(change)
    assert (await env.snapshot()).digest == frozen


async def test_an_episode_holds_only_so_many_objects():
    env, _ = await begin(TaskRef("babyai", "GoToObjS4/0"), init={"agent": {"pos": [1, 1]}})
    level = env.world.level
    spot = next([x, y] for x, y in ((1, 2), (2, 1), (2, 2)) if env.world.cells[level.cell(x, y)] == codes.EMPTY)
    box = {"place": {"kind": "box", "color": "red", "pos": spot}}
    while len(env.world.things) < changes.MAX_THINGS:
        await env.inject(box)
        await env.inject({"remove": {"pos": spot}})
    with pytest.raises(InvalidInit, match="at most 256 objects"):
        await env.inject(box)


# Snapshots


@pytest.mark.parametrize("name", ["PutNextS7N4Carrying", "SynthSeq", "KeyInBox", "OneRoomS20"])
async def test_restored_episodes_go_on_alike(name):
    for view in SERVICE.spec.views:
        env, seen = await begin(TaskRef("babyai", f"{name}/3"), view)
        actions = (await env.solve()).actions
        for action in actions:
            twin = BabyAIService().create(view)
            frozen = await env.snapshot()
            restored = await twin.restore(frozen)
            assert (restored.text, restored.info) == (seen.text, seen.info)
            assert (await twin.snapshot()).digest == frozen.digest
            assert (await twin.solve()).actions == (await env.solve()).actions
            result = await env.step(action)
            assert await twin.step(action) == result
            seen.text, seen.info = result.observation, result.info
        assert seen.info["success"]


async def tampered(**changed):
    env, _ = await begin()
    document = orjson.loads((await env.snapshot()).data)
    document["state"].update(changed)
    return Snapshot("babyai", orjson.dumps(document))


@pytest.mark.parametrize(
    "changed",
    [
        {"level": "NoSuchLevel"},
        {"seed": -1},
        {"pos": 0},
        {"pos": 10**9},
        {"facing": 4},
        {"carrying": 99},
        {"carrying": 1},
        {"things": []},
        {"things": [[1, 0], [3, 0], [25, 0], [21, 0], [13, 5]]},
        {"ids": []},
        {"ids": [[0, 1]]},
        {"ids": "x"},
        {"places": [1]},
        {"steps": -1},
        {"max_steps": 0},
        {"done": []},
        {"done": [4]},
        {"held": [1000]},
        {"cells": [[10**9]]},
        {"ghost": True},
        {"score": 2.0},
        {"score": float("nan")},
        {"success": True},
        {"event": ["boom", "", False]},
        {"extra": 1},
    ],
)
async def test_tampered_snapshots_are_refused(changed):
    with pytest.raises(SnapshotInvalid):
        await SERVICE.create().restore(await tampered(**changed))


async def test_an_untampered_snapshot_is_taken():
    await SERVICE.create().restore(await tampered())
