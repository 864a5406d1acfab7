"""ScienceWorld's cells train as the shipped configuration does, from a start that is made once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.experiments.command import main
from benchmarks.experiments.plan import START, read_plans
from benchmarks.sciworld_rl import start as starts
from benchmarks.sciworld_rl.__main__ import SCIWORLD

from sojourn.cli.extras import find_config
from sojourn.trainer.config_reading import load_config, load_run_config

[PLAN] = read_plans(SCIWORLD.configs).values()


@pytest.mark.parametrize("section", ["envs", "rollout", "sampling", "algorithm", "optim", "horizon"])
def test_the_plan_says_what_the_shipped_configuration_says(section):
    shipped = load_config(find_config("sciworld_grpo")).dump()
    assert PLAN.config("fixed_long", 0, "m").dump()[section] == shipped[section]


def test_the_split_counts_for_every_arm_and_the_start_unless_it_is_the_usual_one():
    other = PLAN.model_copy(update={"split": "test"})
    assert PLAN.split == "dev"
    for arm in (START, *PLAN.arms):
        assert PLAN.key(arm) != other.key(arm)


def test_the_start_is_made_once(tmp_path, monkeypatch):
    ran: list[list[str]] = []

    def fake(module: str, arguments: list[str]) -> None:
        ran.append([module, *arguments])
        if "--run-dir" in arguments:
            (Path(arguments[-1]) / "checkpoints" / "step_000240" / "model").mkdir(parents=True)

    monkeypatch.setattr(starts, "MADE", tmp_path / "made")
    monkeypatch.setattr(starts, "_run", fake)
    made = asyncio.run(starts.start("sft-2"))
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["sft-2"]
    assert asyncio.run(starts.start("sft-2")) == made
    assert [words[:3] for words in ran] == [
        ["sojourn.cli.embedded", "untrained", "--env"],
        ["sojourn", "train", "sciworld_sft"],
    ]
    assert ran[0].count("--family") == 7
    assert ran[0][ran[0].index("--view") + 1] == "look"


def test_what_goes_on_from_the_cloned_model_is_told_the_same_and_finds_it():
    cloning, after = load_run_config(find_config("sciworld_sft")), load_config(find_config("sciworld_grpo"))
    [told], [later] = cloning.envs, after.envs
    assert (told.view, told.families) == (later.view, later.families)
    paths = sum(source.episodes for source in cloning.data) - cloning.trainer.held_out
    steps = cloning.trainer.epochs * paths // cloning.trainer.batch_size
    assert after.model.name == f"runs/{cloning.name}/checkpoints/step_{steps:06d}/model"


def test_a_start_that_cannot_be_made_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(starts, "MADE", tmp_path / "made")
    monkeypatch.setenv("PATH", str(tmp_path))  # no Java there
    monkeypatch.delenv("JAVA_HOME", raising=False)
    arguments = ["--results", str(tmp_path), "--only", "sciworld/start"]
    assert main(SCIWORLD, "about", arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("no start: python -m sojourn.cli.embedded")
