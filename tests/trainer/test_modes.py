"""Rollout only, training on recordings, and runs that diverge."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file

from sojourn.algorithms.rft import RFTConfig
from sojourn.protocol.errors import UsageError
from sojourn.rollout.recorder import read
from sojourn.trainer.config_reading import parse_config
from sojourn.trainer.divergence import in_a_row, stop_if_lost
from sojourn.trainer.loop import Trainer
from sojourn.trainer.metrics import read_metrics
from sojourn.trainer.replaying import Nowhere
from tests.trainer.runs import Notes, config, save_model, serving


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


async def run(settings, path, *, resume=False, notes=None, envs=None):
    if envs is not None:
        return await Trainer(settings, envs, run_dir=path, resume=resume, observer=notes or Notes()).run()
    async with serving() as pool:
        return await Trainer(settings, pool, run_dir=path, resume=resume, observer=notes or Notes()).run()


def weights(run, step):
    return load_file(run / f"checkpoints/step_{step:06d}/model/model.safetensors")


async def test_rollout_only_plays_and_records_and_leaves_the_weights(model, tmp_path):
    await run(config(model, trainer={"mode": "rollout"}), tmp_path / "run")
    start = load_file(model / "model.safetensors")
    assert all(torch.equal(tensor, start[name]) for name, tensor in weights(tmp_path / "run", 3).items())
    shards = sorted((tmp_path / "run/trajectories").iterdir())
    assert [len(list(read(shard))) for shard in shards] == [4, 4, 4]
    last = list(read_metrics(tmp_path / "run/metrics.jsonl"))[-1]
    assert "rollout/invalid" in last
    assert not [name for name in last if name.startswith(("policy/", "train/lr"))]


async def test_training_on_a_run_s_recordings_is_that_run_again(model, tmp_path):
    """The same weights to the bit, with no environment and no engine at work."""
    await run(config(model), tmp_path / "played")
    replay = {"mode": "replay", "replay": str(tmp_path / "played/trajectories")}
    await run(config(model, trainer=replay), tmp_path / "replayed", envs=Nowhere())
    ours, theirs = weights(tmp_path / "replayed", 3), weights(tmp_path / "played", 3)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    played, replayed = (list(read_metrics(tmp_path / name / "metrics.jsonl")) for name in ("played", "replayed"))
    for before, after in zip(played, replayed, strict=True):
        assert before["policy/entropy"] == after["policy/entropy"]
        assert before["horizon/max_turns"] == after["horizon/max_turns"]
    assert not (tmp_path / "replayed/trajectories").exists(), "they lie where they were taken from"


async def test_one_step_may_be_trained_again_and_again(model, tmp_path):
    await run(config(model, trainer={"num_steps": 1}), tmp_path / "played")
    shard = next((tmp_path / "played/trajectories").iterdir())
    settings = config(model, trainer={"num_steps": 4, "mode": "replay", "replay": str(shard)})
    assert (await run(settings, tmp_path / "again", envs=Nowhere())).steps == 4


async def test_recordings_of_another_world_are_refused(model, tmp_path):
    await run(config(model, trainer={"num_steps": 1}), tmp_path / "played")
    replay = {"mode": "replay", "replay": str(tmp_path / "played/trajectories")}
    settings = config(model, envs=[{"name": "babyai"}], trainer=replay)
    with pytest.raises(UsageError, match=r"holds episodes of textcraft, which envs: does not name"):
        await run(settings, tmp_path / "other", envs=Nowhere())
    missing = config(model, trainer={"mode": "replay", "replay": str(tmp_path / "nothing")})
    with pytest.raises(UsageError, match=r"no recordings at .*nothing"):
        await run(missing, tmp_path / "another", envs=Nowhere())


async def test_a_replay_that_evaluates_needs_a_world(model, tmp_path):
    await run(config(model, trainer={"num_steps": 1}), tmp_path / "played")
    replay = {"mode": "replay", "replay": str(tmp_path / "played/trajectories"), "eval_every": 1}
    with pytest.raises(UsageError, match="reaches no environment"):
        await run(config(model, trainer=replay), tmp_path / "other", envs=Nowhere())


@pytest.mark.parametrize("trainer", [{"mode": "replay"}, {"replay": "somewhere"}, {"mode": "rolout"}])
def test_modes_that_make_no_sense(trainer):
    with pytest.raises(UsageError, match=r"trainer\.(mode|replay)"):
        parse_config({"envs": [{"name": "a"}], "horizon": {"type": "fixed", "turns": 1}, "trainer": trainer})


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"rollout": {"refill_rounds": 1, "deterministic": False}, "trainer": {"max_staleness": 1}}, "refill_rounds"),
        ({"curriculum": {"type": "difficulty", "weight": 1}}, "unknown key 'curriculum.weight'"),
    ],
)
def test_wrong_configs(sections, message):
    with pytest.raises(UsageError, match=message):
        config("none", **sections)


def poison(monkeypatch, trainer, chosen):
    """The loss of one episode is not a number, whenever `chosen(step, row)` says so."""
    learner = trainer.parts.learner
    score = learner.policy.score

    def poisoned(micro, **options):
        scores = score(micro, **options)
        ids = {tuple(t.tolist()) for t in micro.inputs[:, :8]}
        bad = any(chosen(row) for row in ids)
        return scores._replace(logprobs=scores.logprobs * math.nan) if bad else scores

    monkeypatch.setattr(learner.policy, "score", poisoned)


async def test_a_divergence_needs_a_policy_before_the_step(model, tmp_path):
    settings = config(model, trainer={"target_kl": 0.1}).model_copy(update={"algorithm": RFTConfig()})
    with pytest.raises(UsageError, match=r"trainer\.target_kl: rft"):
        await run(settings, tmp_path / "run")


async def test_a_run_whose_gradients_fail_stops_and_names_the_episode(model, tmp_path, monkeypatch):
    notes, path = Notes(), tmp_path / "run"
    settings = config(model, trainer={"num_steps": 9, "max_skipped_steps": 4, "token_budget": 1})
    async with serving() as envs:
        trainer = Trainer(settings, envs, run_dir=path, resume=False, observer=notes)
        poison(monkeypatch, trainer, lambda row: sum(row) % 2)
        with pytest.raises(UsageError, match=r"stopped at step \d: \d optimiser steps in a row") as caught:
            await trainer.run()
    said = [note for note in notes.notes if "skipped; " in note]
    assert said
    assert "is not finite" in said[0]
    step = int(str(caught.value).split("step ")[1].split(":")[0])
    name = str(caught.value).split("look at episode ")[1].split()[0]
    shard = path / f"trajectories/train-{step:06d}.jsonl"
    assert f" in {shard}; " in str(caught.value)
    episodes = {t.episode_id: t for group in read(shard) for t in group.trajectories}
    ids = [i for segment in episodes[name].segments for i in segment.ids]
    assert sum(ids[:8]) % 2, "the episode that was poisoned"
    kept = sorted((path / "checkpoints").iterdir())
    assert all(torch.isfinite(t).all() for p in kept for t in load_file(p / "model/model.safetensors").values())


async def test_a_replay_that_fails_names_the_recording(model, tmp_path, monkeypatch):
    await run(config(model, trainer={"num_steps": 2}), tmp_path / "played")
    recordings = tmp_path / "played/trajectories"
    replay = {"num_steps": 9, "mode": "replay", "replay": str(recordings), "max_skipped_steps": 4, "token_budget": 1}
    trainer = Trainer(
        config(model, trainer=replay), Nowhere(), run_dir=tmp_path / "run", resume=False, observer=Notes()
    )
    poison(monkeypatch, trainer, lambda row: True)
    with pytest.raises(UsageError, match=rf"stopped at step 2: 4 .* in {recordings}/train-000002\.jsonl; "):
        await trainer.run()


def test_an_episode_that_was_not_recorded_has_no_file(tmp_path):
    stop_if_lost(5, 1, 2, ["g0/1"])
    with pytest.raises(UsageError, match=r"stopped at step 5: 2 .*; look at episode g0/1 and 1 more; resume"):
        stop_if_lost(5, 2, 2, ["g0/1", "g0/2"], [tmp_path, tmp_path / "nothing"])


@pytest.mark.parametrize(
    ("before", "taken", "last", "after"),
    [(3, 0, 2, 5), (3, 1, 0, 0), (3, 4, 2, 2), (3, 0, 0, 3)],
    ids=["none was taken", "the last was taken", "the last two were not", "nothing to learn from"],
)
def test_steps_are_skipped_in_a_row_until_one_is_taken(before, taken, last, after):
    assert in_a_row(before, {"train/optimizer_steps": float(taken), "train/skipped_last": float(last)}) == after
    assert in_a_row(before, {}) == before


@pytest.mark.parametrize("minibatches", [1, 2])
async def test_a_skip_now_and_then_ends_nothing(model, tmp_path, monkeypatch, minibatches):
    """Every second optimiser step is skipped: never two in a row, however many a training step has."""
    steps = 6 // minibatches
    settings = config(model, trainer={"num_steps": steps, "max_skipped_steps": 2, "minibatches": minibatches})
    async with serving() as envs:
        trainer = Trainer(settings, envs, run_dir=tmp_path / "run", resume=False, observer=Notes())
        calls = iter(range(1000))
        step = trainer.parts.policy.step

        def sometimes():
            if next(calls) % 2:
                return step()
            trainer.parts.policy.drop_gradient()
            return step()._replace(grad_norm=math.nan, skipped=True)

        monkeypatch.setattr(trainer.parts.policy, "step", sometimes)
        await trainer.run()
    skipped = [line["train/skipped_steps"] for line in read_metrics(tmp_path / "run/metrics.jsonl")]
    assert skipped == ([1, 0, 1, 0, 1, 0] if minibatches == 1 else [1, 1, 1])
    assert trainer.progress.skipped == 0
