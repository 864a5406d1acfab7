"""Groups: siblings, forks that share a prefix, many groups at once, and failures that stay in their group."""

from __future__ import annotations

import asyncio
import gc
import random

import httpx
import pytest

from sojourn.client.pool import EnvPool
from sojourn.client.session import EnvClient, EnvSession
from sojourn.protocol.errors import EngineError, InvalidInit, TransportError, UnknownTask
from sojourn.protocol.trajectory import StopReason
from sojourn.rollout.branching import Branching
from sojourn.rollout.group import GroupPlan, collect, collect_group
from sojourn.serving.app import create_app
from tests.rollout.engine import turns
from tests.rollout.world import StairsService

UP = "Thought: climb\nAction: up"


def plan(number=0, fork_turn=None, **options):
    given = {"env": "stairs", "family": "odd", "view": "full", "horizon": 8, "size": 4}
    given |= {"task": f"stairs_{number}", "group_id": f"s0/{number}", **options}
    return GroupPlan(**given, branching=fork_turn and Branching.at(fork_turn, given["size"]))


def wandering(request):
    """A policy that depends on what its draws depend on, and on nothing else."""
    return random.Random(repr(request.key)).choice([UP, "Action: say hi", "Action: fly", "hm", "Action: leave"])


def facts(t):
    return (t.episode_id, t.stop, [turn.text for turn in t.turns], [s.ids for s in t.segments], t.score)


async def test_siblings_are_numbered_and_draw_differently(make, stairs):
    group = await collect_group(make(wandering), plan(7, size=6))
    assert [t.sibling for t in group.trajectories] == list(range(6))
    assert [t.episode_id for t in group.trajectories] == [f"s0/7/{i}" for i in range(6)]
    assert (group.group_id, group.task, group.dropped) == ("s0/7", "stairs_7", 0)
    assert len({tuple(turn.text for turn in t.turns) for t in group.trajectories}) > 1
    await stairs.empty()


async def test_lost_episodes_are_dropped_and_counted(make, stairs, caplog):
    def script(request):
        return EngineError("lost") if request.key[3] in (1, 3) else UP

    group = await collect_group(make(script), plan())
    assert [t.sibling for t in group.trajectories] == [0, 2]
    assert group.dropped == 2
    assert all(t.success for t in group.trajectories)
    assert "s0/0/1 dropped after 3 attempts: EngineError: lost" in caplog.text
    await stairs.empty()


async def test_a_group_that_is_lost_whole_is_empty(make):
    group = await collect_group(make(lambda request: EngineError("lost")), plan())
    assert (group.trajectories, group.dropped) == ([], 4)


async def test_groups_are_yielded_as_they_finish_without_a_barrier(make, stairs):
    """C1, C2: 24 episodes of 4 groups overlap; a slow sibling holds up its own group alone."""

    def script(request):
        return UP

    player = make(script, latency_s=[0.0, 0.0, 0.0, 0.05])
    plans = [plan(0), *(plan(n, size=3) for n in range(1, 4))]
    groups = [g.task async for g in collect(player, plans, concurrency=100)]
    assert groups[-1] == "stairs_0"
    assert sorted(groups) == [f"stairs_{n}" for n in range(4)]
    assert make.engine.most_playing > 4
    await stairs.empty()


async def test_sessions_are_opened_together_and_not_one_after_another(make, client):
    """C1: no session opens before all 64 were asked for."""
    everybody = asyncio.Barrier(64)

    class Slow:
        spec = client.spec

        async def create(self, *task, **options):
            await everybody.wait()
            return await client.create(*task, **options)

    plans = [plan(n, horizon=1, size=8) for n in range(8)]
    found = [g async for g in collect(make(turns(UP), envs=Slow()), plans, concurrency=64)]
    assert sum(len(g.trajectories) for g in found) == 64


class Mortal(httpx.AsyncBaseTransport):
    """The way to a server that dies after so many requests."""

    def __init__(self, inner, requests):
        self.inner, self.left = inner, requests

    async def handle_async_request(self, request):
        self.left -= 1
        if self.left < 0:
            raise httpx.ConnectError("the server is gone")
        return await self.inner.handle_async_request(request)


@pytest.mark.parametrize("fork_turn", [None, 2])
async def test_a_server_that_dies_in_the_middle_costs_no_episode(make, fork_turn):
    """A6: what it held is played again on the one that lives; nothing is scored 0, nothing is lost."""
    apps = [create_app([StairsService()]) for _ in range(2)]
    async with apps[0].router.lifespan_context(apps[0]), apps[1].router.lifespan_context(apps[1]):
        transports = [Mortal(httpx.ASGITransport(apps[0]), 20), httpx.ASGITransport(apps[1])]
        clients = [EnvClient(f"http://server{n}", transport=t) for n, t in enumerate(transports)]
        async with EnvPool(clients) as pool:
            plans = [plan(n, fork_turn=fork_turn) for n in range(8)]
            player = make(turns(UP), envs=pool)
            found = [g async for g in collect(player, plans, concurrency=12)]
    assert transports[0].left < 0
    played = [t for g in found for t in g.trajectories]
    assert [len(g.trajectories) for g in found] == [4] * 8
    assert all(t.success for t in played)
    assert any(t.attempt for t in played)


async def test_a_fork_that_fails_is_tried_again(make, stairs, monkeypatch):
    snapshot, failures = EnvSession.snapshot, [TransportError("reset by peer")]

    async def failing(self):
        if failures:
            raise failures.pop()
        return await snapshot(self)

    monkeypatch.setattr(EnvSession, "snapshot", failing)
    group = await collect_group(make(turns(UP)), plan(5, fork_turn=2))
    assert [(t.attempt, t.fork_turn, t.success) for t in group.trajectories] == [
        (1, None, True),
        (0, 2, True),
        (0, 2, True),
        (0, 2, True),
    ]
    await stairs.empty()


@pytest.mark.parametrize("concurrency", [1, 3, 5])
@pytest.mark.parametrize("fork_turn", [None, 1])
async def test_no_more_episodes_play_than_allowed(make, stairs, concurrency, fork_turn):
    worlds = []

    def script(request):
        worlds.append(make.client.open_sessions)
        return UP

    player = make(script, latency_s=[0.001] * 4)
    plans = [plan(n, size=3, fork_turn=fork_turn) for n in range(3)]
    found = [g async for g in collect(player, plans, concurrency=concurrency)]
    assert sum(len(g.trajectories) for g in found) == 9
    assert make.engine.most_playing <= concurrency
    assert max(worlds) <= concurrency
    await stairs.empty()


async def test_results_do_not_depend_on_concurrency_or_lock_step(make):
    plans = [plan(n, size=3) for n in range(5)]

    async def play(**options):
        found = [g async for g in collect(make(wandering), plans, **options)]
        return {g.group_id: [facts(t) for t in g.trajectories] for g in found}

    one = await play(concurrency=1)
    assert await play(concurrency=64) == one
    assert await play(concurrency=64, deterministic=True) == one


async def test_one_failing_group_does_not_wedge_the_rest(make, stairs):
    def script(request):
        return EngineError("lost") if "step 3" in text(request) else UP

    def text(request):
        return make.renderer.tokenizer.decode(request.ids)

    plans = [plan(0), plan(1, init={"steps": 3}), plan(2, init={"steps": 4})]
    for deterministic in (False, True):
        found = [g async for g in collect(make(script), plans, concurrency=8, deterministic=deterministic)]
        assert {g.task: g.dropped for g in found} == {"stairs_0": 4, "stairs_1": 4, "stairs_2": 0}
    await stairs.empty()


@pytest.mark.parametrize("deterministic", [False, True])
async def test_what_the_user_must_mend_ends_it_all_and_closes_everything(make, stairs, deterministic):
    player = make(turns("Action: say hi"))
    plans = [plan(0, horizon=100_000), plan(999), plan(1, horizon=100_000)]
    with pytest.raises(UnknownTask):
        async for _ in collect(player, plans, concurrency=64, deterministic=deterministic):
            pass
    await stairs.empty()


async def test_groups_that_fail_at_the_same_time_are_told_once(make, monkeypatch):
    """Nobody would ask for the other errors: asyncio complains of them when their tasks are let go."""
    barrier, complaints = asyncio.Event(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    waiting = []

    async def refuse(*_, **__):
        waiting.append(None)
        if len(waiting) == 3:
            barrier.set()
        await barrier.wait()
        raise InvalidInit("no such world")

    monkeypatch.setattr("sojourn.rollout.group.run_episode", refuse)
    with pytest.raises(InvalidInit):
        [group async for group in collect(make(wandering), [plan(i, size=1) for i in range(3)], concurrency=3)]
    gc.collect()
    assert not complaints


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("fork_turn", [None, 1])
async def test_cancelling_closes_every_session(make, stairs, deterministic, fork_turn):
    player = make(turns("Action: say hi"))
    plans = [plan(n, horizon=100_000, fork_turn=fork_turn) for n in range(4)]

    async def consume():
        async for _ in collect(player, plans, concurrency=16, deterministic=deterministic):
            raise AssertionError("nothing can have finished")

    task = asyncio.create_task(consume())
    await make.engine.busy.wait()
    assert stairs.live >= 4
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stairs.empty()
    assert make.client.open_sessions == 0


@pytest.mark.parametrize("deterministic", [False, True])
async def test_leaving_early_closes_every_session(make, stairs, deterministic):
    plans = [plan(0, horizon=1), plan(1, horizon=100_000)]
    groups = collect(make(turns("Action: say hi")), plans, concurrency=8, deterministic=deterministic)
    assert (await anext(groups)).task == "stairs_0"
    await groups.aclose()
    await stairs.empty()
    assert make.client.open_sessions == 0


async def test_a_fork_shares_tokens_and_world_and_trains_the_prefix_once(make, stairs):
    def script(request):
        turn, sibling = request.key[-1], request.key[3]
        return UP if turn < 2 else f"Thought: I am {sibling}\nAction: {'up' if sibling != 2 else 'leave'}"

    group = await collect_group(make(script), plan(5, fork_turn=2))
    trunk, *others = group.trajectories
    assert (trunk.parent_id, trunk.fork_turn) == (None, None)
    shared = 5  # prompt, completion, observation, completion, observation
    for t in others:
        assert (t.parent_id, t.fork_turn) == ("s0/5/0", 2)
        assert [s.ids for s in t.segments[:shared]] == [s.ids for s in trunk.segments[:shared]]
        assert not any(m for s in t.segments[:shared] for m in s.mask)
        assert not any(p for s in t.segments[:shared] for p in s.logprobs)
        assert any(t.segments[shared].mask)
        assert [turn.reward for turn in t.turns[:2]] == [0.2, 0.2]
        assert t.snapshots == trunk.snapshots
        assert len(t.snapshots) == 1
    assert all(all(trunk.segments[i].mask) for i in (1, 3))
    assert [t.stop for t in group.trajectories] == [
        StopReason.COMPLETED,
        StopReason.COMPLETED,
        StopReason.ENV_TRUNCATED,
        StopReason.COMPLETED,
    ]
    assert [len(t.turns) for t in group.trajectories] == [5, 5, 3, 5]
    assert others[1].score == 0.4
    first = [r for r in make.engine.requests if r.key[-1] < 2]
    assert len(first) == 2
    assert len({r.key for r in make.engine.requests}) == len(make.engine.requests)
    await stairs.empty()


async def test_a_trunk_that_ends_before_the_fork_leaves_the_others_to_play_themselves(make, stairs):
    def script(request):
        return "Action: leave" if request.key[3] == 0 else UP

    for deterministic in (False, True):
        (group,) = [
            g async for g in collect(make(script), [plan(fork_turn=3)], concurrency=8, deterministic=deterministic)
        ]
        assert [t.stop is StopReason.ENV_TRUNCATED for t in group.trajectories] == [True, False, False, False]
        assert all(t.parent_id is None and len(t.turns) == 5 for t in group.trajectories[1:])
    await stairs.empty()


async def test_a_forked_sibling_is_tried_again_from_the_fork(make, stairs):
    failures = {1: 2}

    def script(request):
        sibling, turn = request.key[3], request.key[-1]
        if turn == 3 and failures.get(sibling, 0):
            failures[sibling] -= 1
            return EngineError("lost")
        return UP

    group = await collect_group(make(script), plan(5, fork_turn=2))
    assert [t.attempt for t in group.trajectories] == [0, 2, 0, 0]
    assert all(t.success and len(t.turns) == 5 for t in group.trajectories)
    assert sum(r.key[-1] < 2 for r in make.engine.requests) == 2
    await stairs.empty()


async def test_a_trunk_that_fails_before_the_fork_forks_on_its_next_attempt(make, stairs):
    stairs.broken = ["up"]
    group = await collect_group(make(turns(UP)), plan(5, fork_turn=2))
    assert [t.attempt for t in group.trajectories] == [1, 0, 0, 0]
    assert all(t.success for t in group.trajectories)
    await stairs.empty()


async def test_a_group_of_one_does_not_fork(make, stairs):
    group = await collect_group(make(turns(UP)), plan(5, fork_turn=2, size=1))
    assert group.trajectories[0].snapshots == []


@pytest.mark.parametrize("fork_turn", [None, 2])
async def test_lock_step_draws_the_same_batches_whatever_the_timing(make, stairs, fork_turn, monkeypatch):
    plans = [plan(n, size=3, fork_turn=fork_turn) for n in range(5)]

    async def play(seed):
        dice, step = random.Random(seed), EnvSession.step

        async def slow(self, action):
            await asyncio.sleep(dice.random() * 0.004)
            return await step(self, action)

        with monkeypatch.context() as patch:
            patch.setattr(EnvSession, "step", slow)
            player = make(wandering)
            found = [g async for g in collect(player, plans, concurrency=7, deterministic=True)]
        return make.engine.batches, [[facts(t) for t in g.trajectories] for g in found], [g.group_id for g in found]

    first = await play(1)
    assert await play(2) == first
    batches, _, order = first
    assert order == [p.group_id for p in plans]
    assert max(map(len, batches)) <= 7
    waves = [{key[2] for key in batch} for batch in batches]
    assert max(map(len, waves)) == 2
    await stairs.empty()


async def test_a_wave_holds_at_least_one_group(make):
    found = [g async for g in collect(make(turns(UP)), [plan(0), plan(1)], concurrency=1, deterministic=True)]
    assert [len(g.trajectories) for g in found] == [4, 4]


def test_impossible_plans_are_refused():
    with pytest.raises(ValueError, match="group of 0"):
        plan(size=0)
    with pytest.raises(ValueError, match="group of 4 episodes cannot branch into 6"):
        GroupPlan("stairs", "stairs_0", "odd", "full", 8, "s0/0", 4, branching=Branching(trees=3))


async def test_no_concurrency_is_refused(make):
    with pytest.raises(ValueError, match="concurrency of 0"):
        await anext(collect(make(turns(UP)), [plan()], concurrency=0))


async def test_nothing_to_play_is_nothing(make):
    for deterministic in (False, True):
        assert [g async for g in collect(make(turns(UP)), [], concurrency=1, deterministic=deterministic)] == []
