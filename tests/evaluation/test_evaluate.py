from __future__ import annotations

import pytest

from sojourn.engines.hf import HFEngine
from sojourn.evaluation.evaluate import evaluate
from sojourn.evaluation.tasks import EvalTask, eval_tasks
from sojourn.protocol.errors import EngineError, TransportError, UsageError
from sojourn.protocol.messages import SamplingParams
from sojourn.rollout.agent import ReAct
from sojourn.rollout.player import Limits, Player
from sojourn.rollout.recorder import read
from sojourn.rollout.renderer import Renderer
from tests.models import byte_tokenizer, tiny_llama
from tests.trainer.runs import serving


@pytest.fixture
async def envs():
    async with serving() as pool:
        yield pool


@pytest.fixture
async def player(envs):
    engine = HFEngine(tiny_llama(context=4096), name="hf:tiny")
    await engine.start()
    yield Player(
        envs=envs,
        engine=engine,
        renderer=Renderer(byte_tokenizer()),
        format=ReAct(),
        sampling=SamplingParams(max_tokens=6),
        limits=Limits(attempts=1),
        prompt="none",
    )
    await engine.close()


async def test_tasks_come_once_before_any_comes_twice(envs):
    total = (await envs.tasks("textcraft", "test", families=["depth4"])).total
    tasks = await eval_tasks(envs, "textcraft", split="test", episodes=2 * total + 1, families=["depth4"], seed=1)
    assert len({task.key for task in tasks}) == len(tasks)
    assert len({task.task for task in tasks[:total]}) == total
    assert [task.sample for task in tasks] == [0] * total + [1] * total + [2]
    assert tasks == await eval_tasks(envs, "textcraft", split="test", episodes=len(tasks), families=["depth4"], seed=1)
    other = await eval_tasks(envs, "textcraft", split="test", episodes=20, seed=2)
    assert other != await eval_tasks(envs, "textcraft", split="test", episodes=20, seed=3)
    with pytest.raises(UsageError, match="no family 'depth9'"):
        await eval_tasks(envs, "textcraft", split="test", episodes=3, families=["depth9"])


async def test_the_same_seed_plays_the_same_episodes(envs, player, tmp_path):
    tasks = await eval_tasks(envs, "textcraft", split="test", episodes=5)
    first = await evaluate(player, tasks, horizon=2, deterministic=True, seed=4, record=tmp_path / "a")
    second = await evaluate(player, tasks, horizon=2, deterministic=True, seed=4, record=tmp_path / "b")
    assert first == second
    assert first.horizon == {"textcraft": 2}
    assert [result.key for result in first.results] == [task.key for task in tasks]
    assert {result.stop for result in first.results} == {"max_turns"}

    def said(directory):
        return [t.turns[0].text for shard in directory.iterdir() for g in read(shard) for t in g.trajectories]

    assert len(said(tmp_path / "a")) == 5
    assert said(tmp_path / "a") == said(tmp_path / "b")
    await evaluate(player, tasks, horizon=2, deterministic=True, seed=5, record=tmp_path / "c")
    assert said(tmp_path / "c") != said(tmp_path / "a")


async def test_the_published_horizon_is_the_default(envs, player):
    task = (await eval_tasks(envs, "textcraft", split="test", episodes=1))[0]
    assert (await evaluate(player, [task], horizon={"textcraft": 1})).horizon == {"textcraft": 1}
    assert (await evaluate(player, [], horizon=None)).horizon == {}
    spec = await envs.spec("textcraft")
    assert (await evaluate(player, [task])).horizon == {"textcraft": spec.default_horizon}


class Flaky:
    """An engine's `generate` that fails in these calls, counted from 0."""

    def __init__(self, player, monkeypatch, fails):
        self.generate, self.calls, self.fails = player.engine.generate, 0, fails
        monkeypatch.setattr(player.engine, "generate", self)

    async def __call__(self, request):
        self.calls += 1
        if self.fails(self.calls - 1):
            raise EngineError("broken")
        return await self.generate(request)


async def test_infrastructure_that_fails_is_an_error_not_a_failure(envs, player, monkeypatch):
    tasks = await eval_tasks(envs, "textcraft", split="test", episodes=4)
    Flaky(player, monkeypatch, lambda call: call in {1, 3} or call >= 4)
    evaluation = await evaluate(player, tasks, horizon=1)
    errors = [result for result in evaluation.results if result.error]
    assert len(errors) == 2
    assert evaluation.overall.errors == len(errors)
    assert evaluation.overall.episodes == 4 - len(errors)
    assert all(result.family for result in errors)


async def test_lost_episodes_are_played_once_more_with_the_same_draws(envs, player, monkeypatch, tmp_path):
    tasks = await eval_tasks(envs, "textcraft", split="test", episodes=4)
    undisturbed = await evaluate(player, tasks, horizon=2, record=tmp_path / "a")
    Flaky(player, monkeypatch, lambda call: call in {1, 3})
    waited = []

    async def servers():
        waited.append(True)

    again = await evaluate(player, tasks, horizon=2, record=tmp_path / "b", before_again=servers)
    assert again == undisturbed
    assert waited == [True]

    def said(directory):
        return [turn.text for shard in directory.iterdir() for g in read(shard) for turn in g.trajectories[0].turns]

    assert said(tmp_path / "a") == said(tmp_path / "b")


async def test_an_evaluation_of_nothing_is_none(envs, player, monkeypatch):
    tasks = await eval_tasks(envs, "textcraft", split="test", episodes=3)
    engine = Flaky(player, monkeypatch, lambda call: True)
    with pytest.raises(TransportError, match="every episode of the evaluation was lost to infrastructure, twice"):
        await evaluate(player, tasks, horizon=1)
    assert engine.calls == 6


def test_keys_name_the_episode():
    task = EvalTask(env="e", task="e_1", family="f", view="full", sample=2)
    assert task.key == "e/full/e_1/2"
    begun = task.model_copy(update={"init": {"b": 1, "a": [2]}})
    assert begun.key == task.model_copy(update={"init": {"a": [2], "b": 1}}).key == 'e/full/e_1/2/{"a": [2], "b": 1}'
    assert task.model_copy(update={"init": {}}).key == task.key


async def test_worlds_that_begin_otherwise_are_other_episodes(envs, player):
    one = {"split": "test", "families": ["depth1"], "episodes": 1}
    tasks = [
        *await eval_tasks(envs, "textcraft", **one),
        *await eval_tasks(envs, "textcraft", **one, init={"exchange_names": True}),
    ]
    found = await evaluate(player, tasks, horizon=1)
    assert [result.init for result in found.results] == [None, {"exchange_names": True}]
    assert len({result.key for result in found.results}) == 2
