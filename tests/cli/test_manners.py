"""A run's directory is played as the run played: its worlds, its temperature; a person may say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sojourn.cli.policy import find_policy, manners_of
from sojourn.protocol.trajectory import StopReason
from sojourn.rollout.recorder import read, shards
from sojourn.trainer.config_reading import parse_config
from tests.cli.conftest import Run

EXCHANGE = '{"exchange_names": true}'


@pytest.fixture
def trained(run: Run, config: Path, tmp_path: Path) -> str:
    """A run on exchanged names, evaluated at another temperature than it is trained at."""
    values = yaml.safe_load(config.read_text())
    values["envs"][0]["init"] = {"exchange_names": True}
    values["sampling"]["temperature"] = 0.9
    values["eval"] = {**values.get("eval", {}), "temperature": 0.3}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    outcome = run("train", "run.yaml", "trainer.num_steps=1", "--quiet")
    assert outcome.code == 0, outcome
    return "runs/small"


def openings(directory: str) -> list[str]:
    return [t.opening for path in shards(directory) for group in read(path) for t in group.trajectories]


def test_a_run_knows_its_worlds_and_temperatures(run: Run, trained: str) -> None:
    manners = find_policy(trained).manners
    assert manners.inits == {"textcraft": {"exchange_names": True}}
    assert (manners.temperature, manners.eval_temperature) == (0.9, 0.3)
    common = ("--model", trained, "--env", "textcraft", "--episodes", 2, "--horizon", 1)
    assert run("eval", *common, "--record", "own").code == 0
    assert run("eval", *common, "--init", EXCHANGE, "--record", "said").code == 0
    assert run("eval", *common, "--init", "{}", "--record", "stock").code == 0
    assert openings("own") == openings("said")
    assert all(own != stock for own, stock in zip(openings("own"), openings("stock"), strict=True))


def test_rollouts_and_demonstrations_begin_in_the_runs_worlds(run: Run, trained: str) -> None:
    common = ("rollout", "--model", trained, "--env", "textcraft", "--family", "depth1", "--episodes", 1)
    for options in ((), ("--oracle",)):
        name = "".join(options) or "played"
        assert run(*common, *options, "--out", name).code == 0
        assert run(*common, *options, "--init", "{}", "--out", f"{name}-stock").code == 0
        [own], [stock] = openings(name), openings(f"{name}-stock")
        assert own != stock


@pytest.mark.parametrize(("text", "why"), [("{", "not JSON"), ("[1]", "expected a JSON object"), ('{"odd": 1}', "odd")])
def test_an_init_that_is_none(run: Run, model: Path, text: str, why: str) -> None:
    for command in (("eval",), ("rollout", "--out", "x")):
        outcome = run(*command, "--model", model, "--env", "textcraft", "--episodes", 1, "--init", text)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome
        assert why in outcome.err


def test_a_run_with_several_entries_of_one_environment(run: Run, config: Path, tmp_path: Path) -> None:
    values = yaml.safe_load(config.read_text())
    [entry] = values["envs"]
    values["envs"] = [entry, {**entry, "view": "full", "init": {"exchange_names": True}}, {**entry, "init": {}}]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    assert run("train", "run.yaml", "trainer.num_steps=1", "trainer.eval_every=0", "--quiet").code == 0
    for command in (("eval",), ("rollout", "--out", "x")):
        common = (*command, "--model", "runs/small", "--episodes", 1, "--horizon", 1, "--env")
        for options, asked in (((), "--view and --init"), (("--view", "full"), "with --init")):
            outcome = run(*common, "textcraft", *options)
            assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome
            assert asked in outcome.err
        assert run(*common, "textcraft", "--view", "compact", "--init", "{}").code == 0
        assert run(*common, "babyai").code == 0


def test_a_run_is_played_within_its_limits(run: Run, config: Path) -> None:
    assert run("train", config, "trainer.num_steps=1", "--quiet").code == 0
    kept = Path("runs/small/config.yaml")
    values = yaml.safe_load(kept.read_text())
    values["rollout"]["limits"] |= {"max_episode_tokens": 2, "max_context": 1000}
    values["engine"]["max_context"] = 900
    kept.write_text(yaml.safe_dump(values))
    limits = find_policy("runs/small").manners.limits
    assert limits is not None
    assert limits.max_context == 900
    common = ("--model", "runs/small", "--env", "textcraft", "--family", "depth1", "--episodes", 1, "--horizon", 2)
    assert run("eval", *common, "--record", "own").code == 0
    [episode] = [t for path in shards("own") for group in read(path) for t in group.trajectories]
    assert episode.stop is StopReason.MAX_TOKENS


def test_examples_of_another_environment_do_not_matter(run: Run, config: Path, tmp_path: Path) -> None:
    values = yaml.safe_load(config.read_text())
    values["envs"][0]["few_shot"] = [{"user": "goal", "assistant": "Action: inventory"}]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    assert run("train", "run.yaml", "trainer.num_steps=1", "--quiet").code == 0
    common = ("eval", "--model", "runs/small", "--episodes", 1, "--horizon", 1, "--format", "tagged", "--env")
    assert run(*common, "babyai").code == 0
    assert run(*common, "textcraft").code == 0


def test_a_run_on_an_agentgym_server_has_its_view(config: Path) -> None:
    values = yaml.safe_load(config.read_text())
    values["envs"] = [{"name": "textcraft", "dialect": "agentgym", "urls": ["http://localhost:1"], "split": "0:9"}]
    assert manners_of(parse_config(values)).views == {"textcraft": "agentgym"}
