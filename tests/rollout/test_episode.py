"""One episode against the real service: sampled tokens, reasons to stop, failures that are nobody's reward."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from sojourn.client.session import EnvClient
from sojourn.protocol.errors import (
    BodyTooLarge,
    EngineError,
    Gone,
    InvalidInit,
    TooMany,
    TransportError,
    UnknownTask,
    UsageError,
)
from sojourn.protocol.messages import Completion
from sojourn.protocol.trajectory import StopReason
from sojourn.rollout.agent import MANY_ACTIONS, NO_ACTION
from sojourn.rollout.episode import run_episode
from sojourn.rollout.player import stable_hash
from sojourn.rollout.renderer import Renderer
from tests.models import QWEN3, TEMPLATES, byte_tokenizer
from tests.rollout.engine import turns

UP = "Thought: climb\nAction: up"


async def play(player, task="stairs_3", **options):
    ask = {"horizon": 8, "group_id": "g", "sibling": 0, "view": "full"} | options
    return await run_episode(player, "stairs", task, **ask)


async def test_success_is_recorded_turn_by_turn(make, stairs):
    t = await play(make(turns(UP)))
    assert (t.stop, t.success, t.score) == (StopReason.COMPLETED, True, 1.0)
    assert [turn.action for turn in t.turns] == ["up"] * 5
    assert [turn.thought for turn in t.turns] == ["climb"] * 5
    assert t.reward == pytest.approx(1.0)
    assert [turn.reward for turn in t.turns] == [0.2] * 5
    assert (t.family, t.env, t.env_version, t.engine, t.view) == ("odd", "stairs", "1", "scripted", "full")
    assert t.opening == "You stand on step 0."
    assert t.extra["opening_info"]["state_key"] != t.turns[0].info["state_key"]
    assert t.extra["entropy"] == [0.5] * 5
    assert (t.episode_id, t.attempt, t.error) == ("g/0", 0, None)
    assert t.started > 0
    assert t.seconds > 0
    await stairs.empty()


@pytest.mark.parametrize("template", sorted(TEMPLATES))
async def test_what_was_sampled_is_what_is_stored_and_prompted(make, template):
    """A8: sampled ids that their text would not encode to; each prompt is the ids before, the very same."""
    renderer = Renderer(byte_tokenizer(TEMPLATES[template]))
    odd = []
    for text in ("Action: up", " Action:  up\n", "Thought: in the 你好\nAction: up"):
        ids = [i for char in text for i in renderer.complete(char)[:-1]]
        odd.append([*ids, renderer.end_id])
    assert odd[2] != renderer.complete(renderer.decode(odd[2]))

    def script(request):
        ids = odd[request.key[-1] % 3]
        return Completion(ids, [-0.1 * (i + 1) for i in range(len(ids))], "stop", 7)

    player = make(script, renderer=renderer, max_tokens=96)
    t = await play(player)
    assert t.success
    sampled = [s for s in t.segments if any(s.mask)]
    assert [s.ids for s in sampled] == [odd[i % 3] for i in range(5)]
    assert all(s.policy_version == 7 and set(s.mask) == {1} for s in sampled)
    assert [s.logprobs for s in sampled] == [[-0.1 * (i + 1) for i in range(len(s.ids))] for s in sampled]
    given = [s for s in t.segments if not any(s.mask)]
    assert all(s.policy_version is None and not any(s.logprobs) for s in given)
    for turn, request in zip(t.turns, make.engine.requests, strict=True):
        path = t.chain(turn.segment)[:-1]
        assert list(request.ids) == [i for n in path for i in t.segments[n].ids]
    assert t.chain(len(t.segments) - 1) == list(range(10))
    assert [s.turn for s in t.segments] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


async def test_the_last_token_of_an_episode_was_sampled(make):
    """A2: nothing follows the last action, so a reward on it cannot fall on a masked token."""
    for script, horizon in ((turns(UP), 8), (turns("Action: say hi"), 3), (turns("Action: leave"), 8)):
        t = await play(make(script), horizon=horizon)
        assert t.segments[-1].mask[-1] == 1


async def test_the_prompt_holds_rules_unless_it_is_asked_to_be_bare(make):
    async def prompt(**options):
        player = make(turns(UP), **options)
        t = await play(player, horizon=1)
        return player.renderer.tokenizer.decode(t.segments[0].ids)

    full, system, bare = await prompt(), await prompt(system_prompt=True), await prompt(prompt="none")
    assert "user\nClimb the stairs with up." in full
    assert "Thought: why" in full
    assert full.index("Climb") < full.index("You stand on step 0.")
    assert "system\nClimb the stairs with up." in system
    assert "user\nYou stand on step 0." in system
    assert "Climb" not in bare
    assert "user\nYou stand on step 0." in bare


@pytest.mark.parametrize(("said", "why"), [("I wonder", NO_ACTION), ("Action: up\nAction: up", MANY_ACTIONS)])
async def test_an_unreadable_action_is_a_turn_with_feedback_and_no_request(make, stairs, said, why):
    t = await play(make(turns(UP, said, UP)), horizon=3)
    assert t.stop is StopReason.MAX_TURNS
    assert [turn.action for turn in t.turns] == ["up", None, "up"]
    assert (t.turns[1].observation, t.turns[1].reward, t.turns[1].invalid) == (why, 0.0, True)
    assert t.turns[1].info["state_key"] == t.turns[0].info["state_key"]
    assert stairs.actions == ["up", "up"]
    assert why in make.renderer.tokenizer.decode(t.segments[4].ids)


async def test_an_unreadable_last_turn_keeps_what_was_earned(make):
    """A7: the score is the world's, not the last turn's."""
    t = await play(make(turns(UP, UP, "garbled")), horizon=3)
    assert (t.stop, t.score, t.success) == (StopReason.MAX_TURNS, 0.4, False)
    assert t.reward == pytest.approx(0.4)


async def test_a_refused_action_is_marked(make):
    t = await play(make(turns("Action: fly", UP)), horizon=2)
    assert [turn.invalid for turn in t.turns] == [True, False]
    assert t.turns[0].observation == "You cannot fly."


async def test_a_completion_cut_by_its_length_gets_no_trained_end(make):
    """A9: the end of turn that nobody sampled is given, masked 0; what was said before it still counts."""
    player = make(turns("Action: up\nand so on and on"), max_tokens=12)
    t = await play(player, horizon=2)
    end = player.renderer.end_id
    cut = t.segments[1]
    assert len(cut.ids) == 12
    assert end not in cut.ids
    assert t.segments[2].ids[0] == end
    assert t.segments[2].mask[0] == 0
    assert t.turns[0].action == "up"


async def test_a_turn_ended_by_another_stop_token_is_closed_all_the_same(make):
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = "<|endoftext|>"
    renderer = Renderer(tokenizer)
    ids = [*renderer.complete("Action: up")[:-1], tokenizer.eos_token_id]
    t = await play(make(lambda request: Completion(ids, [-0.1] * len(ids), "stop", 0), renderer=renderer), horizon=2)
    assert [turn.action for turn in t.turns] == ["up", "up"]
    assert t.segments[1].ids == ids
    assert (t.segments[2].ids[0], t.segments[2].mask[0]) == (renderer.end_id, 0)


async def test_the_worlds_cap_and_the_horizon_are_told_apart(make):
    assert (await play(make(turns(UP, "Action: leave")))).stop is StopReason.ENV_TRUNCATED
    t = await play(make(turns("Action: say hi")), horizon=4)
    assert (t.stop, len(t.turns)) == (StopReason.MAX_TURNS, 4)
    won = await play(make(turns(UP)), horizon=5)
    assert won.stop is StopReason.COMPLETED


async def test_the_context_is_looked_at_before_generating(make):
    """A10: an observation that fills the context ends the episode; the engine is never asked for the impossible."""
    t = await play(make(turns(UP, "Action: talk 400"), max_context=700))
    assert t.stop is StopReason.CONTEXT_OVERFLOW
    assert (len(t.turns), t.score) == (2, 0.2)
    assert max(len(r.ids) for r in make.engine.requests) + 64 <= 700


@pytest.mark.parametrize("bound", ["engine", "limits"])
async def test_a_prompt_that_never_fits_is_an_overflow_without_a_turn(make, bound):
    options = {"max_context": 60} if bound == "engine" else {"limits": {"max_context": 60}}
    t = await play(make(turns(UP), **options))
    assert (t.stop, t.turns) == (StopReason.CONTEXT_OVERFLOW, [])
    assert make.engine.requests == []


async def test_an_episode_has_a_budget_of_tokens(make):
    t = await play(make(turns("Action: say hi"), limits={"max_episode_tokens": 400}), horizon=50)
    assert t.stop is StopReason.MAX_TOKENS
    assert sum(len(s.ids) for s in t.segments) <= 400


async def test_repeating_a_refused_action_ends_the_episode_when_asked(make):
    script = turns("Action: fly", "Action: fly", UP, "Action: fly", "Action: swim", "Action: swim", "Action: swim")
    t = await play(make(script, limits={"max_repeats": 3}), horizon=20)
    assert (t.stop, len(t.turns)) == (StopReason.EARLY_STOP, 7)
    assert len((await play(make(script), horizon=20)).turns) == 20


async def test_stripped_thinking_branches_the_trajectory(make):
    renderer = Renderer(byte_tokenizer(QWEN3))
    player = make(turns("<think>\nhm\n</think>\n\nAction: up", UP), renderer=renderer)
    t = await play(player)
    roots = [i for i, s in enumerate(t.segments) if s.parent is None]
    assert roots == [0, 2]
    assert "hm" not in renderer.tokenizer.decode(t.segments[2].ids)
    assert t.leaves() == [1, len(t.segments) - 1]
    assert t.success


async def test_a_window_branches_at_every_turn_past_it(make):
    renderer = Renderer(byte_tokenizer(), window=1)
    t = await play(make(turns(UP), renderer=renderer))
    assert [s.parent for s in t.segments] == [None, 0, 1, 2, None, 4, None, 6, None, 8]
    assert len(t.leaves()) == 4


async def test_keys_depend_on_seed_task_group_sibling_and_turn_alone(make):
    def keys(**options):
        return [r.key for r in make.engine.requests]

    await play(make(turns(UP), run_seed=5))
    first = keys()
    await play(make(turns(UP), run_seed=5))
    assert keys() == first
    assert [k[-1] for k in first] == [0, 1, 2, 3, 4]
    for change in ({"task": "stairs_4"}, {"group_id": "h"}, {"sibling": 1}):
        await play(make(turns(UP), run_seed=5), **change)
        assert not set(keys()) & set(first)
    await play(make(turns(UP), run_seed=6))
    assert not set(keys()) & set(first)


async def test_a_broken_world_is_played_again_with_the_same_draws(make, stairs):
    """A6: a world that raised gives no reward 0; the second attempt stands for the episode."""
    stairs.broken = ["up"]
    t = await play(make(turns(UP)))
    assert (t.success, t.attempt, t.error) == (True, 1, None)
    keys = [r.key for r in make.engine.requests]
    assert keys[0] == keys[1]
    await stairs.empty()


async def test_a_world_that_stays_broken_is_an_error_and_not_a_score(make, stairs):
    stairs.broken = ["up"] * 3
    t = await play(make(turns("Action: say hi", UP)))
    assert t.stop is StopReason.ENV_ERROR
    assert t.stop.is_error
    assert t.attempt == 2
    assert "collapsed" in t.error or "EnvironmentFailed" in t.error
    assert stairs.broken == []
    await stairs.empty()


async def test_a_failing_engine_is_tried_again_and_then_told(make, stairs):
    failures = [EngineError("out of memory")] * 2

    def script(request):
        return failures.pop() if failures else UP

    assert (await play(make(script))).attempt == 2
    lasting = await play(make(lambda request: EngineError("out of memory")))
    assert (lasting.stop, lasting.attempt) == (StopReason.ENGINE_ERROR, 2)
    assert "out of memory" in lasting.error
    await stairs.empty()


@pytest.mark.parametrize(
    "broken",
    [Completion([], [], "stop", 0), Completion([5, 2], [-0.1], "stop", 0), Completion([5], [float("nan")], "stop", 0)],
)
async def test_an_impossible_completion_is_the_engines_failure(make, broken):
    t = await play(make(lambda request: broken))
    assert t.stop is StopReason.ENGINE_ERROR


async def test_an_action_that_the_service_refuses_to_take_is_a_refused_action(make, client):
    sick = Sick(client, step=[BodyTooLarge("the body is longer than 1 MiB")])
    t = await play(make(turns(UP), envs=sick))
    assert (t.success, t.attempt, len(t.turns)) == (True, 0, 6)
    assert (t.turns[0].observation, t.turns[0].invalid) == ("the body is longer than 1 MiB", True)


def test_hashes_are_those_of_every_process():
    assert stable_hash("babyai:babyai_3") == 7447579805454306783


@pytest.mark.parametrize("limit", ["generate_deadline_s", "episode_deadline_s"])
async def test_an_engine_that_hangs_meets_a_deadline(make, stairs, limit):
    t = await play(make(turns(UP), latency_s=[1000.0], limits={limit: 0.05, "attempts": 2}))
    assert t.stop is StopReason.TIMEOUT
    assert t.attempt == (1 if limit == "generate_deadline_s" else 0)
    assert "longer than 0.05 s" in t.error or "deadline" in t.error
    await stairs.empty()


class Sick:
    """An environment client whose sessions fail as they are told, in front of the real one."""

    def __init__(self, client: EnvClient, *, create=(), step=()) -> None:
        self.client, self.failures, self.step_failures = client, list(create), list(step)
        self.created = self.closed = 0

    async def spec(self, env):
        return await self.client.spec(env)

    async def create(self, env, task, **options):
        if self.failures:
            raise self.failures.pop(0)
        session = await self.client.create(env, task, **options)
        self.created += 1
        step, close = session.step, session.close

        async def failing(action):
            if self.step_failures:
                failure = self.step_failures.pop(0)
                if failure == "hang":
                    await asyncio.Event().wait()
                raise failure
            return await step(action)

        async def counted():
            self.closed += 1
            await close()

        session.step, session.close = failing, counted
        return session


FAILURES = [TransportError("reset by peer"), Gone("lease expired"), TooMany("full", retry_after=0.001)]


@pytest.mark.parametrize(
    ("where", "failure"),
    [*(("create", error) for error in FAILURES), *(("step", error) for error in [*FAILURES, "hang"])],
)
async def test_infrastructure_that_fails_is_tried_again_on_a_fresh_session(make, client, stairs, failure, where):
    sick = Sick(client, **{where: [failure]})
    t = await play(make(turns(UP), envs=sick, limits={"step_deadline_s": 0.2 if failure == "hang" else 60}))
    assert (t.success, t.attempt) == (True, 1)
    assert sick.created == sick.closed == (1 if where == "create" else 2)
    await stairs.empty()


async def test_a_dead_server_is_an_error(make):
    def refuse(request):
        raise httpx.ConnectError("refused")

    async with EnvClient("http://nowhere", transport=httpx.MockTransport(refuse)) as dead:
        t = await play(make(turns(UP), envs=dead, limits={"attempts": 1}))
    assert t.stop is StopReason.ENV_ERROR
    assert (t.turns, t.segments) == ([], [])


async def test_what_the_user_must_mend_is_raised_at_once(make, client, stairs):
    with pytest.raises(UnknownTask):
        await play(make(turns(UP)), task="stairs_999")
    with pytest.raises(UsageError, match="no view 'colourful'"):
        await play(make(turns(UP)), view="colourful", session=await client.create("stairs", "stairs_1"))
    with pytest.raises(UsageError, match="no environment 'moon'"):
        await run_episode(make(turns(UP)), "moon", "moon_1", horizon=1, group_id="g", sibling=0, view="full")
    with pytest.raises(ValueError, match="horizon of 0"):
        await play(make(turns(UP)), horizon=0)
    with pytest.raises(InvalidInit):
        await play(make(turns(UP), envs=Sick(client, create=[InvalidInit("init")])))
    await stairs.empty()


async def test_a_bug_in_the_engine_is_not_hidden(make, stairs):
    def script(request):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await play(make(script))
    await stairs.empty()


async def test_cancelling_closes_the_session(make, stairs):
    player = make(turns(UP), latency_s=[1000.0])
    task = asyncio.create_task(play(player))
    await make.engine.begun.wait()
    assert stairs.live == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stairs.empty()


async def test_a_lease_is_renewed_while_the_policy_thinks(make, client, stairs):
    session = await client.create("stairs", "stairs_3", lease_s=0.3)
    t = await play(make(turns(UP), latency_s=[0.5], limits={"attempts": 1}), session=session, horizon=2)
    assert (t.stop, len(t.turns)) == (StopReason.MAX_TURNS, 2)
    await stairs.empty()


async def test_a_given_session_is_played_and_closed(make, client, stairs):
    session = await client.create("stairs", "stairs_3", init={"steps": 3})
    t = await play(make(turns(UP)), session=session)
    assert (t.opening, len(t.turns), t.success) == ("You stand on step 3.", 2, True)
    await stairs.empty()
