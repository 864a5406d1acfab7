"""train, eval, rollout and demo from end to end, on a model of a few thousand parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sojourn.cli.extras import find_config
from sojourn.protocol.errors import UsageError
from sojourn.rollout.recorder import read, shards
from sojourn.trainer.config_reading import load_run_config
from tests.cli.conftest import Run

PNG = b"\x89PNG\r\n\x1a\n"


def test_train_then_resume_then_eval(run: Run, config: Path, tmp_path: Path) -> None:
    outcome = run("train", config)
    assert outcome.code == 0, outcome
    assert "step 1/2" in outcome.err
    assert "horizon of textcraft: 1 to 2 turns" in outcome.err
    assert "2 steps in" in outcome.out
    run_dir = tmp_path / "runs" / "small"
    assert {"config.yaml", "metrics.jsonl", "trajectories", "evaluations", "checkpoints"} <= {
        path.name for path in run_dir.iterdir()
    }

    again = run("train", config)
    assert again.code == 2
    assert "--resume" in again.err
    changed = run("train", config, "optim.lr=0.5", "--resume")
    assert changed.code == 2
    assert "optim.lr" in changed.err
    assert changed.err.count("\n") == 1
    longer = run("train", config, "trainer.num_steps=3", "--resume", "--quiet")
    assert (longer.code, longer.out, longer.err) == (0, "", "")
    assert [json.loads(line)["step"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()][-1] == 3

    wanted = ("--env", "textcraft", "--family", "depth1", "--episodes", 3, "--horizon", 2, "--seed", 1)
    said = run("eval", "--model", run_dir, *wanted, "--json", "--out", "all.json", "--record", "played")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert found["overall"]["episodes"] == 3
    assert found["engine"].endswith("step_000003/model")
    # The run's own manners: its view, and no instructions in the prompt.
    (episode, *_) = [t for path in shards("played") for group in read(path) for t in group.trajectories]
    assert episode.view == "compact"
    assert len(json.loads(Path("all.json").read_text())["results"]) == 3
    assert run("eval", "--model", run_dir, *wanted).out.startswith("family")


def test_rollout_adds_shards(run: Run, model: Path) -> None:
    common = ("--env", "textcraft", "--model", model, "--out", "rec", "--view", "compact", "--family", "depth1")
    assert run("rollout", "--oracle", *common, "--episodes", 2).out.startswith("2 episodes, 2 successful")
    assert run("rollout", *common, "--episodes", 1, "--group-size", 2, "--horizon", 1, "--prompt", "none").code == 0
    first, second = shards("rec")
    assert all(t.success and t.engine == "oracle" for group in read(first) for t in group.trajectories)
    assert [len(group.trajectories) for group in read(second)] == [2]


def test_fine_tuning_on_demonstrations_then_eval(run: Run, model: Path, tmp_path: Path) -> None:
    values = {
        "name": "tuned",
        "model": {"name": str(model)},
        "algorithm": {"name": "sft"},
        "data": [{"type": "oracle", "env": "textcraft", "episodes": 4, "horizon": 12}],
        "envs": [{"name": "textcraft", "view": "compact", "families": ["depth1"]}],
        "rollout": {"prompt": "none"},
        "sampling": {"max_tokens": 4},
        "trainer": {"batch_size": 2, "eval_every": 2},
        "eval": {"episodes": 2, "horizon": 2},
        "logging": {"tensorboard": False},
    }
    (tmp_path / "tuned.yaml").write_text(yaml.safe_dump(values))
    outcome = run("train", "tuned.yaml")
    assert outcome.code == 0, outcome
    assert "data.0 (oracle): 4 examples" in outcome.err
    assert "step 2/2  loss" in outcome.err
    assert "2 steps in" in outcome.out
    changed = run("train", "tuned.yaml", "data.0.episodes=5", "--resume")
    assert changed.code == 2
    assert "data.0.episodes" in changed.err
    said = run("eval", "--model", "runs/tuned", "--env", "textcraft", "--episodes", 1, "--horizon", 1, "--json")
    assert json.loads(said.out)["engine"].endswith("step_000002/model")


def small_demo(run: Run, model: Path, *more: str) -> tuple[int, str, str]:
    changes = [
        f"model.name={model}",
        "envs.0.families=[UnlockLocal]",
        "rollout={group_size: 2, groups_per_step: 2, prompt: none}",
        "sampling.max_tokens=4",
        "horizon={type: scaling_inter, stages: [1, 2], steps_per_stage: 1}",
        "trainer={num_steps: 2, eval_every: 1}",
        "eval={episodes: 4, horizon: 2}",
        "logging.tensorboard=false",
    ]
    return run("demo", *changes, *more)


def test_demo(run: Run, model: Path, tmp_path: Path) -> None:
    code, out, err = small_demo(run, model, "--seed", "7")
    assert code == 0, err
    run_dir = tmp_path / "runs" / "demo"
    summary = json.loads((run_dir / "summary.json").read_text())
    for name in ("start", "end"):
        assert {"success", "low", "high", "episodes"} <= summary[name].keys()
        assert summary[name]["episodes"] == 4
    assert summary["gain"].keys() == {"value", "low", "high"}
    assert summary["horizon"] == {"1": 1, "2": 2}
    assert summary["seed"] == 7
    assert summary["seconds"] > 0
    assert (run_dir / "curve.png").read_bytes().startswith(PNG)
    assert "babyai/UnlockLocal" in out
    assert "runs/demo/trajectories" in out
    assert "horizon, turns" in out

    code, out, err = small_demo(run, model, "--quiet")
    assert (code, err) == (0, "")
    assert "replacing the earlier demo in runs/demo" in out
    assert json.loads((run_dir / "summary.json").read_text())["seed"] == 0


def test_demo_spares_what_it_did_not_make(run: Run, model: Path, tmp_path: Path) -> None:
    mine = tmp_path / "runs" / "demo" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    code, _, err = small_demo(run, model)
    assert code == 2
    assert "was not made by a demo" in err
    assert mine.read_text() == "years of work"


@pytest.mark.parametrize("path", sorted(find_config("demo").parent.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs_are_valid(path: Path) -> None:
    assert load_run_config(path).name == path.stem


def test_configs_are_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config("demo") == find_config("configs/demo.yaml") == find_config("demo.yaml")
    own = tmp_path / "demo.yaml"
    own.write_text("")
    assert find_config("demo.yaml") == Path("demo.yaml")
    with pytest.raises(UsageError, match="babyai_grpo"):
        find_config("elsewhere/demo.yaml")
