"""An episode of SciWorld: what it says, pays and takes, how it ends, and how it is saved and solved."""

import os
import signal

import pytest
from pydantic import ValidationError

from sojourn.envs.sciworld import SciWorldService
from sojourn.envs.sciworld.__main__ import main as work_out
from sojourn.envs.sciworld.env import LONGEST_ACTION, OVER, UNKNOWN, SciWorldConfig
from sojourn.protocol.env import Snapshot, TaskRef
from sojourn.protocol.errors import (
    BadRequest,
    Conflict,
    InvalidInit,
    NotSupported,
    ReplayDiverged,
    SnapshotInvalid,
    UnknownTask,
)
from tests.envs.test_sciworld_java import needs_java

pytestmark = needs_java

BOIL = TaskRef("sciworld", "boil/3")
FIND = TaskRef("sciworld", "find-plant/20")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOJOURN_HOME", str(tmp_path_factory.mktemp("home")))
        made = SciWorldService(SciWorldConfig(jvms=1, heap_mb=512))
    yield made
    made.pool.close()


def test_a_pool_that_cannot_hold_what_it_is_told_to_is_refused():
    assert (SciWorldConfig().live, SciWorldConfig().rss_mb) == (48, 1536)
    assert (SciWorldConfig(heap_mb=4096).live, SciWorldConfig(heap_mb=4096).rss_mb) == (195, 4608)
    with pytest.raises(ValidationError, match=r"live_per_jvm=200 games of 10.5 MB do not fit heap_mb=1024"):
        SciWorldConfig(live_per_jvm=200)
    with pytest.raises(ValidationError, match="recycle_mb=1024 is not above heap_mb=1024"):
        SciWorldConfig(recycle_mb=1024)


@pytest.fixture
async def env(service):
    made = service.create()
    await made.reset(BOIL)
    yield made
    await made.close()


async def test_reset_gives_the_task_and_a_look_around(env):
    observation = await env.reset(TaskRef.parse("sciworld_3"), seed=7)
    task, _, scene = observation.text.partition("\n")
    assert task.startswith("Your task is to boil water.")
    assert scene.startswith("This outside location is called the outside. Here you see: \n\tthe agent")
    assert observation.info["score"] == 0.0
    assert observation.info["raw"] == {"score": 0, "moves": 0}
    assert observation.info["view"] == {"task": task, "variation": 3}


async def test_the_solution_is_paid_in_parts_and_ends_in_success(service, env):
    await env.reset(FIND)
    solution = await env.solve()
    results = [await env.step(action) for action in solution.actions]
    assert sum(result.reward for result in results) == pytest.approx(1.0)
    assert len([result for result in results if result.reward > 0]) > 1
    assert [result.terminated for result in results] == [False] * (len(results) - 1) + [True]
    last = results[-1].info
    assert (last["score"], last["success"], last["raw"]["score"]) == (1.0, True, 100)
    assert await env.available_actions() == []
    assert (await env.solve()).actions == []
    after = await env.step("look around")
    assert (after.observation, after.reward, after.terminated) == (OVER, 0.0, True)
    assert (after.info["score"], after.info["success"]) == (1.0, True)


async def test_a_wrong_focus_ends_it_all(env):
    paid = (await env.step("open door to kitchen")).reward
    assert paid > 0
    result = await env.step("focus on agent")
    assert result.terminated
    assert result.reward == -paid
    assert (result.info["score"], result.info["success"]) == (0.0, False)
    assert result.info["raw"]["score"] == -100


async def test_points_that_a_game_begins_with_are_paid_by_the_first_step(env):
    observation = await env.reset(TaskRef("sciworld", "chemistry-mix-paint-secondary-color/27"))
    assert (observation.info["score"], observation.info["raw"]["score"]) == (0.0, 20)
    for reward in (0.2, 0.0):
        result = await env.step("inventory")
        assert (result.reward, result.info["score"]) == (reward, 0.2)


async def test_unknown_actions_are_refused_and_take_no_time(env):
    for action in ("", "fly to the moon", "look around " * 100, "x" * (LONGEST_ACTION + 1), "\ud800", "\0"):
        result = await env.step(action)
        assert result.observation == UNKNOWN
        assert result.info["invalid"]
        assert (result.reward, result.done) == (0.0, False)
        assert result.info["raw"]["moves"] == 0
    assert "invalid" not in (await env.step("look around")).info


async def test_the_state_is_told_apart_by_what_it_is(env):
    async def key(action):
        return (await env.step(action)).info["state_key"]

    closed = await key("look around")
    assert await key("inventory") == closed
    opened = await key("open door to kitchen")
    shut = await key("close door to kitchen")
    assert len({closed, opened, shut}) == 3  # the task pays for the first time that the door is opened
    assert await key("open door to kitchen") == opened
    assert await key("go to kitchen") != opened


async def test_the_view_look_shows_a_room_on_arrival(service):
    plain, seeing = service.create(), service.create("look")
    texts: dict[str, tuple[str, str]] = {}
    try:
        assert (await plain.reset(FIND)).text == (await seeing.reset(FIND)).text
        for action in (await plain.solve()).actions:
            texts[action] = ((await plain.step(action)).observation, (await seeing.step(action)).observation)
        arrivals = {action: said for action, said in texts.items() if said[0] != said[1]}
        assert list(arrivals) == [action for action in texts if action.startswith("go to")]
        for moved, seen in arrivals.values():
            assert seen.startswith(f"{moved}\nThis ")
            assert seen.splitlines()[2] == "\tthe agent"
            assert seen.splitlines()[-1].startswith("\tA door to")
        assert (await plain.step("look around")).observation == (await seeing.step("look around")).observation
    finally:
        await plain.close()
        await seeing.close()


async def test_a_snapshot_of_one_view_is_restored_in_another(service):
    plain, seeing = service.create(), service.create("look")
    try:
        await seeing.reset(FIND)
        path = (await seeing.solve()).actions
        first = next(i for i, action in enumerate(path) if action.startswith("go to"))
        for action in path[: first + 1]:
            seen = await seeing.step(action)
        restored = await plain.restore(await seeing.snapshot())
        assert restored.text == seen.observation.partition("\n")[0]
        assert (await seeing.restore(await plain.snapshot())).text == seen.observation
    finally:
        await plain.close()
        await seeing.close()


async def test_the_view_look_adds_nothing_where_the_agent_stays(service):
    seeing = service.create("look")
    try:
        there = (await seeing.reset(FIND)).text
        for action in ("task", "inventory", "nonsense", "x" * (LONGEST_ACTION + 1)):
            assert "This room is called" not in (await seeing.step(action)).observation
        injected = (await seeing.inject({"location": "kitchen"})).text
        assert injected.startswith("This room is called the kitchen.")
        assert "\n" not in (await seeing.step("open door to hallway")).observation
        assert "called the hallway" in (await seeing.step("go to hallway")).observation
        assert (await seeing.reset(FIND)).text == there
        assert "\n" not in (await seeing.step("nonsense")).observation
    finally:
        await seeing.close()


async def test_a_long_episode_is_truncated(env, monkeypatch):
    monkeypatch.setattr("sojourn.envs.sciworld.env.MOST_STEPS", 3)
    ends = [(await env.step("inventory")).truncated for _ in range(3)]
    assert ends == [False, False, True]
    assert (await env.step("inventory")).observation == OVER
    restored = await env.restore(await env.snapshot())
    assert restored.text == OVER


async def test_simplifications_change_the_start(service, env):
    easy = await env.reset(BOIL, init={"simplifications": "easy"})
    assert "A door to the kitchen (that is open)" in easy.text
    assert (await env.step("teleport to kitchen")).observation == "You teleport to the kitchen."
    again = service.create()
    restored = await again.restore(await env.snapshot())
    assert restored.text == "You teleport to the kitchen."
    await again.close()
    plain = await env.reset(BOIL)
    assert "A door to the kitchen (that is closed)" in plain.text


async def test_what_is_refused_leaves_the_episode(env):
    await env.step("open door to kitchen")
    for init in ({"simplifications": "fly"}, {"seed": 1}):
        with pytest.raises(InvalidInit):
            await env.reset(BOIL, init=init)
    with pytest.raises(UnknownTask):
        await env.reset(TaskRef("sciworld", "boil/99"))
    with pytest.raises(InvalidInit, match="kitchen"):
        await env.inject({"location": "moon"})
    assert (await env.step("go to kitchen")).observation == "You move to the kitchen."
    assert len((await env.solve()).actions) > 10


async def test_inject_moves_the_agent(service, env):
    observation = await env.inject({"location": "kitchen"})
    assert observation.text.startswith("This room is called the kitchen.")
    assert observation.info["raw"]["moves"] == 0
    fork = service.create()
    restored = await fork.restore(await env.snapshot())
    assert restored == observation
    assert await fork.step("look around") == await env.step("look around")
    await fork.close()


async def test_a_snapshot_of_another_past_is_refused(service, env):
    await env.step("open door to kitchen")
    data = (await env.snapshot()).data
    fork = service.create()
    with pytest.raises(ReplayDiverged):
        await fork.restore(Snapshot("sciworld", data.replace(b'["open door to kitchen"]', b'["go to kitchen"]')))
    with pytest.raises(SnapshotInvalid, match="no variation"):
        await fork.restore(Snapshot("sciworld", data.replace(b"boil/3", b"boil/x")))
    await fork.close()


async def test_solve_goes_on_from_a_detour(env):
    whole = (await env.solve()).actions
    await env.step(whole[0])
    assert (await env.solve()).actions == whole[1:]
    for action in ("inventory", "look around", "wait1"):
        await env.step(action)
    results = [await env.step(action) for action in (await env.solve()).actions]
    assert results[-1].info["success"]


async def test_where_the_path_does_not_lead_there_is_no_solution(env):
    await env.inject({"location": "bedroom"})
    with pytest.raises(NotSupported, match="scripted agent"):
        await env.solve()


async def test_paths_are_kept_on_disk(service, env, monkeypatch):
    whole = (await env.solve()).actions
    again = type(service.gold)(service.pool, service.gold._folder)
    monkeypatch.setattr(service.pool, "gold", lambda game: pytest.fail("worked out again"))
    assert again.path(env._episode.game) == whole


def test_the_command_works_a_family_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SOJOURN_HOME", str(tmp_path))
    assert work_out(["--split", "dev", "--family", "identify-life-stages-2"]) == 0
    assert capsys.readouterr().out == f"2 of 2 tasks have a path, kept in {tmp_path / 'sciworld'}\n"
    assert len(list((tmp_path / "sciworld").rglob("identify-life-stages-2/*"))) == 2
    assert work_out(["--family", "boiling"]) == 2
    assert capsys.readouterr().err.startswith("no family 'boiling' (known: boil, melt")


async def test_the_end_of_a_jvm_is_not_seen(service, env):
    await env.step("open door to kitchen")
    frozen = await env.snapshot()
    os.kill(service.pool.jvms()[0].pid, signal.SIGKILL)
    assert (await env.step("go to kitchen")).observation == "You move to the kitchen."
    fork = service.create()
    await fork.restore(frozen)
    assert (await fork.step("go to kitchen")).observation == "You move to the kitchen."
    await fork.close()


async def test_before_the_first_reset(service):
    env = service.create("agentgym")
    with pytest.raises(Conflict):
        await env.step("look around")
    with pytest.raises(BadRequest, match="'compact'"):
        service.create("compact")
    await env.close()
