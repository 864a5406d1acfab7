"""The random policy plays the very episodes of an evaluation, by listed actions alone, the same for the same seed."""

from __future__ import annotations

import pytest
from benchmarks.random_policy import play

from sojourn.envs import registry
from sojourn.evaluation.report import EpisodeResult, Evaluation
from sojourn.protocol.errors import UsageError
from tests.rollout.world import StairsService

VIEW = {"babyai": "compact", "stairs": "full"}


def asked(env: str, *tasks: str, horizon: int = 4) -> Evaluation:
    results = [
        EpisodeResult(key=f"{env}/{VIEW[env]}/{task}/0", env=env, task=task, family="f", stop="error", error=True)
        for task in tasks
    ]
    return Evaluation(engine="e", policy_version=3, horizon={env: horizon}, seed=0, results=results)


async def test_the_same_episodes_the_same_seed_and_no_refused_action() -> None:
    tasks = [f"babyai:GoToObjS4/{i}" for i in range(24)]
    found = await play(asked("babyai", *tasks), seed=0)
    assert [r.key for r in found.results] == [f"babyai/compact/{task}/0" for task in tasks]
    assert found == await play(asked("babyai", *tasks), seed=0)
    assert found != await play(asked("babyai", *tasks), seed=1)
    assert 0 < found.overall.success < 1
    assert found.overall.errors == 0
    assert all((r.stop == "completed") == r.success and 1 <= r.turns <= 4 for r in found.results)


async def test_drawing_among_some_of_the_actions() -> None:
    # A level of one object: going to whatever can be gone to is right wherever something is in view.
    tasks = [f"babyai:GoToObjS4/{i}" for i in range(24)]
    aimed = await play(asked("babyai", *tasks, horizon=1), seed=0, only="go to")
    chance = await play(asked("babyai", *tasks, horizon=1), seed=0)
    assert aimed.overall.success > chance.overall.success


async def test_a_world_that_lists_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda name: StairsService)
    with pytest.raises(UsageError, match="stairs lists no actions"):
        await play(asked("stairs", "stairs_0"), seed=0)


async def test_worlds_begin_as_those_of_the_evaluation() -> None:
    """BabyAI's `play_on` goes on after the goal: no episode is over before the horizon."""
    plain = asked("babyai", *(f"babyai:GoToObjS4/{i}" for i in range(8)))
    results = [r.model_copy(update={"init": {"play_on": True}}) for r in plain.results]
    played = await play(plain.model_copy(update={"results": results}), seed=0)
    assert played.results != (await play(plain, seed=0)).results
    assert all(r.init == {"play_on": True} for r in played.results)


async def test_an_evaluation_without_a_horizon() -> None:
    with pytest.raises(UsageError, match="the horizon of babyai"):
        await play(asked("babyai", "babyai:GoToObjS4/0").model_copy(update={"horizon": {}}), seed=0)
