"""A run that was killed and resumed is the run that was not, to the bit (time fields aside)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from sojourn.protocol.errors import UsageError
from sojourn.rollout.recorder import read
from sojourn.trainer.config_reading import parse_config
from sojourn.trainer.metrics import read_metrics
from tests.trainer.resumable import play, resumable
from tests.trainer.runs import config, save_model

ROOT = Path(__file__).parents[2]


def _metrics(run: Path) -> list[dict]:
    timed = ("time/", "rollout/tokens_per_s")
    return [{k: v for k, v in line.items() if not k.startswith(timed)} for line in read_metrics(run / "metrics.jsonl")]


def _episodes(run: Path) -> dict[str, list]:
    """Every recorded episode without its clocks."""

    def timeless(trajectory):
        turns = [replace(turn, generate_s=0.0, step_s=0.0) for turn in trajectory.turns]
        return replace(trajectory, turns=turns, started=0.0, seconds=0.0)

    return {
        path.name: [timeless(t) for group in read(path) for t in group.trajectories]
        for path in sorted((run / "trajectories").iterdir())
    }


def _evaluations(run: Path) -> dict[str, dict]:
    return {path.name: json.loads(path.read_text()) for path in sorted((run / "evaluations").iterdir())}


def _kill_after_step(step: int, model: Path, run: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.trainer.resumable", str(model), str(run)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == f"step {step}\n":
                process.kill()
                break
        assert process.wait() == -9, "it ended before it could be killed"


async def test_killed_and_resumed_is_uninterrupted(tmp_path):
    model = save_model(tmp_path / "model")
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    threads = torch.get_num_threads()
    try:
        await play(resumable(model), straight)
        _kill_after_step(4, model, killed)
        assert [p.name for p in (killed / "checkpoints").iterdir()] == ["step_000003"]
        assert len(_metrics(killed)) >= 4, "what the fourth step left must be dropped and made again"
        with pytest.raises(UsageError, match="holds a run already: continue it with --resume"):
            await play(resumable(model), killed)
        summary = await play(resumable(model), killed, resume=True)
    finally:
        torch.set_num_threads(threads)
    assert summary.steps == 6
    ours, theirs = (load_file(run / "checkpoints/step_000006/model/model.safetensors") for run in (killed, straight))
    assert ours.keys() == theirs.keys()
    start = load_file(model / "model.safetensors")
    assert any(not torch.equal(weight, start[name]) for name, weight in theirs.items()), "nothing was learnt"
    for name, weight in theirs.items():
        assert torch.equal(ours[name], weight), name
    assert _metrics(killed) == _metrics(straight)
    assert [line["step"] for line in _metrics(straight)] == [0, 1, 2, 3, 4, 5, 6]
    assert [line["horizon/max_turns"] for line in _metrics(straight)[1:]] == [1, 1, 2, 2, 2, 2]
    assert _episodes(killed) == _episodes(straight)
    assert len(_episodes(straight)) == 6
    assert _evaluations(killed) == _evaluations(straight)
    assert sorted(_evaluations(straight)) == [f"step_{step:06d}.json" for step in (0, 2, 4, 6)]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The run that nothing interrupts, and the model that it begins with."""
    directory = tmp_path_factory.mktemp("straight")
    model, run = save_model(directory / "model"), directory / "run"
    assert _child(model, run) == 0
    return model, run


def _child(*arguments: object) -> int:
    command = [sys.executable, "-W", "error", "-m", "tests.trainer.resumable", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode


@pytest.mark.parametrize("moment", ["rollout", "update", "checkpoint"])
async def test_killed_at_any_moment_and_resumed_is_uninterrupted(straight, tmp_path, moment):
    model, whole = straight
    run = tmp_path / "run"
    assert _child(model, run, moment) == -9
    left = sorted(path.name for path in (run / "checkpoints").iterdir())
    expected = ["step_000003"]
    assert left == ([".writing_step_000006", *expected] if moment == "checkpoint" else expected)
    threads = torch.get_num_threads()
    try:
        await play(resumable(model), run, resume=True)
    finally:
        torch.set_num_threads(threads)
    for name in ("model/model.safetensors", "optimizer.safetensors"):
        ours, theirs = (load_file(where / "checkpoints/step_000006" / name) for where in (run, whole))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in ours.items()), name
    assert _metrics(run) == _metrics(whole)
    assert _episodes(run) == _episodes(whole)
    assert _evaluations(run) == _evaluations(whole)
    assert (run / "horizon.jsonl").read_text() == (whole / "horizon.jsonl").read_text()
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step_000003", "step_000006"]


async def test_rules_of_resuming(tmp_path):
    model = save_model(tmp_path / "model")
    run = tmp_path / "run"
    settings = resumable(model).model_copy(update={"eval": resumable(model).eval})
    short = settings.model_copy(update={"trainer": settings.trainer.model_copy(update={"num_steps": 1})})
    with pytest.raises(UsageError, match="nothing to resume: there is no run in"):
        await play(short, run, resume=True)
    assert not run.exists()
    await play(short, run)
    changed = short.model_copy(update={"optim": short.optim.model_copy(update={"lr": 5e-4}), "seed": 1})
    with pytest.raises(UsageError, match=r"cannot resume with a changed config: optim\.lr, seed; "):
        await play(changed, run, resume=True)
    longer = short.model_copy(update={"trainer": short.trainer.model_copy(update={"num_steps": 2})})
    assert (await play(longer, run, resume=True)).steps == 2
    assert yaml.safe_load((run / "config.yaml").read_text())["trainer"]["num_steps"] == 2
    weights = run / "checkpoints/step_000002/model/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(UsageError, match=r"checkpoint .*step_000002 is corrupted: model/model\.safetensors"):
        await play(longer, run, resume=True)
    patient = longer.model_copy(update={"trainer": longer.trainer.model_copy(update={"resume_fallback": True})})
    assert (await play(patient, run, resume=True)).steps == 2


async def test_a_run_without_a_checkpoint_starts_again(tmp_path):
    model = save_model(tmp_path / "model")
    run = tmp_path / "run"
    settings = resumable(model)
    settings = settings.model_copy(update={"trainer": settings.trainer.model_copy(update={"num_steps": 1})})
    await play(settings, tmp_path / "other")
    run.mkdir()
    (run / "config.yaml").write_text((tmp_path / "other" / "config.yaml").read_text())
    (run / "metrics.jsonl").write_text('{"step": 0}\n{"st')
    assert (await play(settings, run, resume=True)).steps == 1
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == [0, 1]
    assert _metrics(run) == _metrics(tmp_path / "other")


async def test_adapters_and_the_reference_resume_exactly(tmp_path):
    """Adapters are saved beside the merged model; the reference is the model that the run began with."""
    model = save_model(tmp_path / "model")
    options = {
        "model": {"lora": {"r": 2}},
        "algorithm": {"name": "grpo", "preset": "agentgym_rl", "kl_coef": 0.5, "entropy_coef": 0.1},
    }

    def steps(count: int):
        return config(model, trainer={"num_steps": count}, **options)

    await play(steps(4), tmp_path / "straight")
    await play(steps(2), tmp_path / "halved")
    await play(steps(4), tmp_path / "halved", resume=True)
    for name in ("trained.safetensors", "model/model.safetensors", "optimizer.safetensors"):
        ours, theirs = (load_file(tmp_path / run / "checkpoints/step_000004" / name) for run in ("halved", "straight"))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in ours.items()), name
    assert _metrics(tmp_path / "halved") == _metrics(tmp_path / "straight")
    assert _metrics(tmp_path / "straight")[-1]["policy/ref_kl"] > 0


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "ppo", "critic": {"kind": "head", "lr": 1e-2, "warmup_steps": 1}},
        {"name": "ppo", "critic": {"kind": "separate", "lr": 1e-2}, "step": "turn"},
        {
            "name": "reinforce_pp",
            "kl_coef": 0.1,
            "kl_in": "reward",
            "kl_estimator": "k1",
            "kl_target": 1e-5,
            "kl_horizon": 8,
        },
    ],
    ids=["head", "separate", "adaptive-kl"],
)
async def test_what_an_algorithm_learnt_resumes_exactly(tmp_path, algorithm):
    """The critic, its optimiser, and the price of divergence."""
    model = save_model(tmp_path / "model")

    def steps(count: int):
        settings = config(model, trainer={"num_steps": count, "epochs": 2}, horizon={"stages": [2, 2]})
        data = {**settings.dump(), "algorithm": {**algorithm, "truncated": "fail"}}
        data["envs"][0]["reward"] = [{"name": "length_cost", "per": "token", "weight": 0.1}]
        return parse_config(data)

    await play(steps(4), tmp_path / "straight")
    await play(steps(2), tmp_path / "halved")
    await play(steps(4), tmp_path / "halved", resume=True)
    end = tmp_path / "straight" / "checkpoints" / "step_000004"
    files = [str(path.relative_to(end)) for path in end.rglob("*.safetensors")]
    assert ("critic.safetensors" in files) == (algorithm["name"] == "ppo")
    for name in files:
        ours, theirs = (load_file(tmp_path / run / "checkpoints/step_000004" / name) for run in ("halved", "straight"))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in ours.items()), name
    metrics = _metrics(tmp_path / "straight")
    assert _metrics(tmp_path / "halved") == metrics
    learnt = "critic/value" if algorithm["name"] == "ppo" else "policy/kl_coef"
    assert len({line[learnt] for line in metrics if learnt in line}) == 4, "it changed at every step"
