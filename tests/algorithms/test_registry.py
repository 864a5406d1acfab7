from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from sojourn.algorithms.base import Algorithm
from sojourn.algorithms.grpo import GRPO
from sojourn.algorithms.registry import BUILTIN, load, names
from sojourn.protocol.errors import UsageError
from sojourn.trainer.config_reading import parse_config
from sojourn.trainer.learner import Learner
from sojourn.trainer.optimizer import OptimConfig
from sojourn.trainer.policy import TrainPolicy
from sojourn.trainer.rewards import Score
from tests.algorithms.tables import Played, table
from tests.models import tiny_llama
from tests.trainer.episodes import groups


def test_builtin():
    assert load("grpo") is GRPO
    assert set(BUILTIN) <= set(names())
    for name in BUILTIN:
        assert load(name).Config.model_fields["name"].default == name


def test_unknown_name_is_told_the_nearest():
    with pytest.raises(UsageError, match=r"no algorithm 'grpoo', did you mean 'grpo'\?"):
        load("grpoo")


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """An installed distribution with one algorithm in one file, found by its entry point."""
    (tmp_path / "plain_pg.py").write_text(
        dedent(
            """
            from typing import Literal
            import torch
            from sojourn.algorithms.base import Advantages, Algorithm, AlgorithmConfig, LossOutput
            from sojourn.algorithms.losses import token_weights

            class Config(AlgorithmConfig):
                name: Literal["plain_pg"] = "plain_pg"
                baseline: float = 0.5

            class PlainPG(Algorithm[Config]):
                Config = Config

                def advantages(self, episodes):
                    returns = (episodes.returns - self.config.baseline).float()
                    return Advantages(returns[episodes.trajectory], torch.ones_like(episodes.truncated))

                def weights(self, trajectory):
                    return token_weights(trajectory, "token_mean", constant=1)

                def loss(self, tokens):
                    return LossOutput(-(tokens.logprobs * tokens.advantages * tokens.weights).sum())
            """
        )
    )
    info = tmp_path / "plain_pg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plain-pg\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[sojourn.algorithms]\nplain_pg = plain_pg:PlainPG\nbroken = plain_pg:Config\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("plain_pg", None)


@pytest.mark.usefixtures("third_party")
def test_a_third_party_algorithm_is_one_file_and_one_entry_point():
    assert "plain_pg" in names()
    found = load("plain_pg")
    assert issubclass(found, Algorithm)
    assert found(found.Config(name="plain_pg")).config.baseline == 0.5
    with pytest.raises(UsageError, match="'broken' does not lead to an Algorithm"):
        load("broken")


@pytest.mark.usefixtures("third_party")
def test_it_is_configured_and_trained_like_ours():
    settings = {"envs": [{"name": "textcraft"}], "horizon": {"type": "fixed", "turns": 3}}
    config = parse_config({**settings, "algorithm": {"name": "plain_pg", "baseline": 0.25}})
    assert parse_config(config.dump()) == config
    with pytest.raises(UsageError, match=r"unknown key 'algorithm\.basline', did you mean 'algorithm\.baseline'\?"):
        parse_config({**settings, "algorithm": {"name": "plain_pg", "basline": 1}})
    algorithm = load("plain_pg")(config.algorithm)
    learner = Learner(TrainPolicy(tiny_llama(), OptimConfig(lr=3e-3)), algorithm, {"textcraft": (Score(),)})
    played = groups([[1.0, 0.0]])
    before = learner.prepare(played)
    assert before.advantages.unique().tolist() == [-0.25, 0.75]
    start = learner.policy.logprobs(before.batch, before.rows, 5000)
    assert learner.update(0, before)["train/optimizer_steps"] == 1
    rise = learner.policy.logprobs(before.batch, before.rows, 5000) - start
    assert rise[before.advantages > 0].mean() > 0.01


def test_the_example_of_the_documentation_runs():
    page = (Path(__file__).parents[2] / "docs" / "add-algorithm.md").read_text()
    written = {"__name__": "example"}
    exec(compile(page.split("```python\n")[1].split("```")[0], "add-algorithm.md", "exec", dont_inherit=True), written)
    algorithm = written["MaxRL"](written["MaxRLConfig"]())
    episodes = table(Played([(2, 1.0)]), Played([(1, 0.0)]), Played([(1, 0.5)], group=1))
    assert algorithm.advantages(episodes).tokens.tolist() == [1.0, 1.0, -1.0, 0.0]
