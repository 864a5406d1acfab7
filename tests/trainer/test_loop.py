from __future__ import annotations

import math

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from sojourn.evaluation.report import paired_gain
from sojourn.protocol.errors import EngineError, TransportError, UsageError
from sojourn.rollout.recorder import read
from sojourn.trainer.config_reading import parse_config
from sojourn.trainer.loop import Trainer
from sojourn.trainer.metrics import read_metrics
from tests.trainer.runs import Notes, config, save_model, serving


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


async def test_a_whole_run(model, tmp_path):
    settings, run, observer = config(model, trainer={"eval_every": 2, "save_every": 2}), tmp_path / "run", Notes()
    async with serving() as envs:
        summary = await Trainer(settings, envs, run_dir=run, resume=False, observer=observer).run()
    assert observer.steps == [(1, 3), (2, 3), (3, 3)]
    assert observer.evals == [0, 2, 3]
    switches = [note for note in observer.notes if "stage" in note]
    assert switches == [
        "step 1: horizon of textcraft: 1 turns (stage 1)",
        "step 3: horizon of textcraft: 1 to 2 turns (stage 2)",
    ]
    assert "median solution of depth4" in " ".join(observer.notes), "the curriculum says what it puts out of reach"
    assert parse_config(yaml.safe_load((run / "config.yaml").read_text())) == settings
    lines = list(read_metrics(run / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    last = lines[-1]
    assert {"success_rate", "reward/mean", "stop/max_turns", "policy/kl", "policy/entropy", "time/rollout"} <= set(last)
    assert last["train/optimizer_steps"] == 2
    assert last["horizon/max_turns"] == 2
    assert last["policy/engine_gap"] < 1e-4, "the engine has the trainer's weights"
    assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in last.values())
    shards = sorted((run / "trajectories").iterdir())
    assert len(shards) == 3
    for version, shard in enumerate(shards):
        groups = list(read(shard))
        assert [len(group.trajectories) for group in groups] == [2] * 4
        sampled = {s.policy_version for g in groups for t in g.trajectories for s in t.segments if any(s.mask)}
        assert sampled == {version}, "synchronous: each step plays the weights of the one before"
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step_000002", "step_000003"]
    assert summary.steps == 3
    assert set(summary.evaluations) == {0, 2, 3}
    assert paired_gain(summary.evaluations[0], summary.evaluations[3]).gain == 0.0
    saved = AutoModelForCausalLM.from_pretrained(run / "checkpoints/step_000003/model")
    AutoTokenizer.from_pretrained(run / "checkpoints/step_000003/model")
    start = AutoModelForCausalLM.from_pretrained(model)
    assert not torch.equal(saved.model.norm.weight, start.model.norm.weight)


async def test_no_task_comes_twice_in_an_epoch_and_weights_share_the_groups(model, tmp_path):
    settings = config(
        model,
        envs=[
            {"name": "textcraft", "view": "compact", "families": ["depth4"], "weight": 1},
            {"name": "babyai", "view": "compact", "families": ["UnlockLocal"], "weight": 3},
        ],
        trainer={"num_steps": 2},
    )
    async with serving("textcraft", "babyai") as envs:
        trainer = Trainer(settings, envs, run_dir=tmp_path / "run", resume=False, observer=Notes())
        await trainer.run()
    groups = [g for shard in sorted((tmp_path / "run/trajectories").iterdir()) for g in read(shard)]
    tasks = [group.task for group in groups]
    assert len(set(tasks)) == len(tasks) == 8
    assert sum(task.startswith("babyai") for task in tasks) == 6
    assert {t.family for g in groups for t in g.trajectories} == {"depth4", "UnlockLocal"}
    assert {"horizon/textcraft", "horizon/babyai", "success_rate/babyai/UnlockLocal"} <= set(trainer.metrics)


async def test_a_staleness_bound_lets_collection_run_ahead(model, tmp_path):
    settings = config(model, trainer={"num_steps": 4, "max_staleness": 1}, rollout={"deterministic": False})
    async with serving() as envs:
        await Trainer(settings, envs, run_dir=tmp_path / "run", resume=False, observer=Notes()).run()
    lines = list(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    assert [line["train/staleness"] for line in lines] == [0, 1, 1, 1]
    for step, shard in enumerate(sorted((tmp_path / "run/trajectories").iterdir()), start=1):
        versions = {s.policy_version for g in read(shard) for t in g.trajectories for s in t.segments if any(s.mask)}
        assert min(versions) >= step - 2, "no token is more than one update older than the weights it trains"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"envs": [{"name": "nowhere"}]}, r"envs\.0\.name: no server offers 'nowhere' \(offered: textcraft\)"),
        ({"envs": [{"name": "textcraft", "view": "x"}]}, r"envs\.0\.view: textcraft has no view 'x'"),
        ({"envs": [{"name": "textcraft", "families": ["depth9"]}]}, r"envs\.0: .*depth9"),
        ({"envs": [{"name": "textcraft", "split": "dev"}]}, r"envs\.0: .*'dev'"),
    ],
)
async def test_what_the_servers_do_not_have(model, tmp_path, sections, message):
    async with serving() as envs:
        trainer = Trainer(config(model, **sections), envs, run_dir=tmp_path / "run", resume=False, observer=Notes())
        with pytest.raises(UsageError, match=message):
            await trainer.run()
    assert not (tmp_path / "run").exists(), "nothing stands in the way of the next attempt"


async def test_an_unknown_model_leaves_no_directory(tmp_path):
    async with serving() as envs:
        with pytest.raises(UsageError, match="no such model"):
            Trainer(config("no/such/model"), envs, run_dir=tmp_path / "run", resume=False, observer=Notes())
    assert not (tmp_path / "run").exists()


async def test_a_directory_that_cannot_be_made(model, tmp_path):
    (tmp_path / "file").write_text("")
    async with serving() as envs:
        trainer = Trainer(config(model), envs, run_dir=tmp_path / "file" / "run", resume=False, observer=Notes())
        with pytest.raises(UsageError, match="cannot write the run directory"):
            await trainer.run()


async def test_when_every_episode_is_lost(model, tmp_path, monkeypatch):
    """Infrastructure is never reward 0: nothing is trained, the run stops and says why."""

    async def broken(request):
        raise EngineError("out of memory")

    settings = config(model, rollout={"limits": {"attempts": 1}, "deterministic": False})
    async with serving() as envs:
        trainer = Trainer(settings, envs, run_dir=tmp_path / "run", resume=False, observer=Notes())
        monkeypatch.setattr(trainer.parts.engine, "generate", broken)
        with pytest.raises(TransportError, match="every episode of step 1 was lost"):
            await trainer.run()
    assert not list(read_metrics(tmp_path / "run" / "metrics.jsonl"))


async def test_lost_episodes_are_dropped_and_counted(model, tmp_path, monkeypatch):
    settings = config(model, rollout={"limits": {"attempts": 1}, "deterministic": False}, trainer={"num_steps": 1})
    async with serving() as envs:
        trainer = Trainer(settings, envs, run_dir=tmp_path / "run", resume=False, observer=Notes())
        generate, calls = trainer.parts.engine.generate, iter(range(1000))

        async def flaky(request):
            if next(calls) % 3 == 0:
                raise EngineError("out of memory")
            return await generate(request)

        monkeypatch.setattr(trainer.parts.engine, "generate", flaky)
        await trainer.run()
    assert trainer.metrics["rollout/dropped"] == 3
    assert trainer.metrics["rollout/episodes"] == 5
    assert trainer.metrics["train/rows"] == 5
