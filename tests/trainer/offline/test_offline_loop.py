"""Runs on fixed data, end to end on a tiny model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sojourn.protocol.errors import UsageError
from sojourn.protocol.trajectory import StopReason, Trajectory, TrajectoryGroup
from sojourn.rollout.recorder import Recorder
from sojourn.rollout.renderer import Renderer
from sojourn.trainer.config_reading import parse_offline
from sojourn.trainer.metrics import read_metrics
from sojourn.trainer.offline.config import OfflineConfig
from sojourn.trainer.offline_loop import OfflineTrainer
from sojourn.trainer.replaying import Nowhere
from tests.models import byte_tokenizer
from tests.trainer.episodes import said, segment
from tests.trainer.runs import Notes, save_model, serving


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def config(start: Path, data: list[dict], **sections) -> OfflineConfig:
    values = {
        "name": "tiny",
        "model": {"name": str(start)},
        "algorithm": {"name": "sft"},
        "data": data,
        "optim": {"lr": 3e-3, "warmup_steps": 2},
        "trainer": {"epochs": 4, "batch_size": 4, "save_every": 3},
        "rollout": {"prompt": "none", "deterministic": True},
        "sampling": {"max_tokens": 6},
        "eval": {"episodes": 3, "horizon": 2},
        "logging": {"tensorboard": False},
    }
    for section, given in sections.items():
        values[section] = {**values.get(section, {}), **given} if isinstance(given, dict) else given
    return parse_offline(values)


async def play(settings: OfflineConfig, run_dir: Path, envs=None, *, resume=False, die_at: int | None = None) -> Notes:
    notes = Notes()
    trainer = OfflineTrainer(settings, envs or Nowhere(), run_dir=run_dir, resume=resume, observer=notes)
    if die_at is not None:
        update = trainer.update

        def killed():
            if trainer.progress.step == die_at:
                raise KeyboardInterrupt
            update()

        trainer.update = killed
    await trainer.run()
    return notes


def metrics(run: Path) -> list[dict]:
    return [
        {k: v for k, v in line.items() if not k.startswith("time/")} for line in read_metrics(run / "metrics.jsonl")
    ]


def conversations(path: Path, count: int = 12) -> Path:
    """Adding numbers."""
    with path.open("w") as file:
        for i in range(count):
            said = [("human", f"add {i} and 1"), ("gpt", "wait"), ("human", "now"), ("gpt", f"it is {i + 1}, I think")]
            turns = [{"from": who, "value": text, "loss": who == "gpt" and text != "wait"} for who, text in said]
            file.write(json.dumps({"item_id": f"add_{i}", "conversations": turns}) + "\n")
    return path


def recorded(directory: Path, tasks: int = 8) -> Path:
    """Groups of a good and a bad episode each: what was good says `a`, what was bad says `b`."""
    renderer, rng = Renderer(byte_tokenizer()), random.Random(0)
    groups = []
    for g in range(tasks):
        opening = segment(None, 6, 0, rng, said=False)
        played = []
        for sibling, (text, score) in enumerate((("Action: a", 1.0), ("Action: b b", 0.0))):
            ids = renderer.complete(text)
            answer = segment(0, len(ids), 0, rng, said=True)
            answer.ids = ids
            turn = said(score, 1)
            turn.text = text
            played.append(
                Trajectory(
                    f"g{g}/{sibling}", f"g{g}", f"t{g}", "easy", 0, 1, "textcraft", "1", "scripted", "full",
                    [opening, answer], [turn], stop=StopReason.COMPLETED, score=score, success=score == 1.0,
                )
            )  # fmt: skip
        groups.append(TrajectoryGroup(f"g{g}", f"t{g}", played))
    Recorder(directory).write(0, groups)
    return directory


async def test_the_loss_falls_and_only_successes_are_learnt(model, tmp_path):
    data = [
        {"type": "conversations", "path": str(conversations(tmp_path / "a.jsonl"))},
        {"type": "recordings", "path": str(recorded(tmp_path / "rec"))},
    ]
    notes = await play(config(model, data, trainer={"epochs": 8, "held_out": 4}), tmp_path / "run")
    lines = metrics(tmp_path / "run")
    assert notes.notes[-2:] == ["data.0 (conversations): 12 examples", "data.1 (recordings): 8 examples"]
    assert [line["step"] for line in lines] == list(range(33))
    assert lines[-1]["sft/loss"] < 0.5 * lines[1]["sft/loss"]
    assert lines[-1]["held_out/sft/loss"] < 0.6 * lines[0]["held_out/sft/loss"]
    assert lines[-1]["train/epoch"] == 8
    assert lines[-1]["train/lr"] < 0.1 * 3e-3, "the learning rate decays"
    assert (tmp_path / "run/checkpoints/step_000032/model/tokenizer.json").exists()


@pytest.mark.parametrize("algorithm", ["sft", "dpo"])
@pytest.mark.parametrize("lora", [None, {"r": 2}])
async def test_a_killed_and_resumed_run_is_the_uninterrupted_one(model, tmp_path, algorithm, lora):
    data = [{"type": "recordings", "path": str(recorded(tmp_path / "rec"))}]
    settings = config(model, data, model={"lora": lora}, algorithm={"name": algorithm}, trainer={"held_out": 1})
    await play(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        await play(settings, tmp_path / "parts", die_at=5)
    notes = await play(settings, tmp_path / "parts", resume=True)
    assert "resuming after step 3" in notes.notes
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    weights = [
        load_file(tmp_path / run / "checkpoints/step_000008/model/model.safetensors") for run in ("whole", "parts")
    ]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    longer = settings.model_copy(update={"trainer": settings.trainer.model_copy(update={"epochs": 9})})
    with pytest.raises(UsageError, match=r"trainer\.epochs"):
        await play(longer, tmp_path / "parts", resume=True)


async def test_preferences_are_learnt(model, tmp_path):
    data = [{"type": "recordings", "path": str(recorded(tmp_path / "rec"))}]
    await play(config(model, data, algorithm={"name": "dpo", "beta": 0.2}), tmp_path / "run")
    lines = metrics(tmp_path / "run")
    assert lines[0]["dpo/margin"] == pytest.approx(0, abs=1e-4), "the start is its own reference"
    assert lines[0]["dpo/loss"] == pytest.approx(0.6931, abs=1e-3)
    assert lines[-1]["dpo/margin"] > 0.5
    assert lines[-1]["dpo/accuracy"] == 1
    assert lines[-1]["dpo/chosen_reward"] > lines[-1]["dpo/rejected_reward"]


async def test_demonstrations_are_played_once_and_evaluated(model, tmp_path):
    data = [{"type": "oracle", "env": "textcraft", "families": ["depth1"], "episodes": 4, "horizon": 10}]
    sections = {
        "envs": [{"name": "textcraft", "view": "compact"}],
        "trainer": {"epochs": 2, "batch_size": 2, "eval_every": 2},
    }
    async with serving() as envs:
        notes = await play(config(model, data, **sections), tmp_path / "run", envs)
        shard = tmp_path / "run/demonstrations/data0-000000.jsonl"
        before = shard.read_bytes()
        with pytest.raises(KeyboardInterrupt):
            await play(config(model, data, **sections), tmp_path / "again", envs, die_at=1)
        kept = (tmp_path / "again/demonstrations/data0-000000.jsonl").read_bytes()
        await play(config(model, data, **sections), tmp_path / "again", envs, resume=True)
    assert (tmp_path / "again/demonstrations/data0-000000.jsonl").read_bytes() == kept
    assert before
    assert notes.evals == [0, 2, 4]
    assert "eval/success_rate" in metrics(tmp_path / "run")[-1]
    assert sorted(path.name for path in (tmp_path / "run/evaluations").iterdir()) == [
        f"step_00000{i}.json" for i in (0, 2, 4)
    ]


async def test_rows_that_are_too_long_are_left_out_and_told(model, tmp_path):
    data = [{"type": "conversations", "path": str(conversations(tmp_path / "a.jsonl"))}]
    with pytest.raises(UsageError, match="nothing to learn from"):
        await play(config(model, data, trainer={"max_tokens": 20}), tmp_path / "run")


async def test_another_tokenizer_is_noticed(model, tmp_path):
    rec = recorded(tmp_path / "rec")
    shard = next(rec.iterdir())
    shard.write_text(shard.read_text().replace("Action: a", "Action: x"))
    with pytest.raises(UsageError, match="recorded with another tokenizer"):
        await play(config(model, [{"type": "recordings", "path": str(rec)}]), tmp_path / "run")


async def test_no_pairs_says_what_to_do(model, tmp_path):
    data = [{"type": "recordings", "path": str(recorded(tmp_path / "rec"))}]
    settings = config(model, data, algorithm={"name": "dpo"}, pairs={"min_gap": 2.0})
    with pytest.raises(UsageError, match=r"no pairs in 8 groups: .*pairs.min_gap"):
        await play(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists(), "the name is still free once the data is mended"


async def test_a_run_that_diverges_ends(model, tmp_path, monkeypatch):
    data = [{"type": "recordings", "path": str(recorded(tmp_path / "rec"))}]
    settings = config(model, data, trainer={"max_skipped_steps": 3})
    trainer = OfflineTrainer(settings, Nowhere(), run_dir=tmp_path / "run", resume=False, observer=Notes())
    with torch.no_grad():
        next(trainer.policy.model.parameters()).fill_(float("nan"))
    with pytest.raises(UsageError, match=r"stopped after 3 steps in a row .* step 3: .* and 3 more is not finite"):
        await trainer.run()


@pytest.mark.parametrize(("algorithm", "name"), [("sft", "g3/0"), ("dpo", "g3/0 against g3/1")])
async def test_a_skipped_step_names_the_episode(model, tmp_path, monkeypatch, algorithm, name):
    data = [{"type": "recordings", "path": str(recorded(tmp_path / "rec"))}]
    notes = Notes()
    settings = config(model, data, algorithm={"name": algorithm}, trainer={"epochs": 2})
    trainer = OfflineTrainer(settings, Nowhere(), run_dir=tmp_path / "run", resume=False, observer=notes)
    score, start = trainer.policy.score, None

    def poisoned(micro, **options):
        scores = score(micro, **options)
        bad = start is not None and any(line.tolist()[:6] == start for line in micro.inputs)
        return scores._replace(logprobs=scores.logprobs * float("nan")) if bad else scores

    async def started(begin=trainer.start):
        nonlocal start
        await begin()
        start = next(e.rows[0].ids.tolist()[:6] for e in trainer.examples if e.name == name)

    trainer.start = started
    trainer.learner.packing = False
    monkeypatch.setattr(trainer.policy, "score", poisoned)
    await trainer.run()
    said = [note for note in notes.notes if "skipped" in note]
    assert [note.partition(": ")[2] for note in said] == [
        f"1 optimiser step was skipped; the gradient of episode {name} is not finite"
    ] * 2
    assert sum(line["train/skipped_steps"] for line in metrics(tmp_path / "run") if line["step"]) == 2
