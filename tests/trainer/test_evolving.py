"""AgentEvol and rejection-sampling fine-tuning, end to end on a tiny model: what is kept, and what it is learnt from.

Nothing is ever solved, so that short answers are what is paid for.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sojourn.protocol.errors import UsageError
from sojourn.rollout.recorder import read, shards
from sojourn.trainer.config_reading import parse_config
from sojourn.trainer.loop import Trainer
from sojourn.trainer.metrics import read_metrics
from sojourn.trainer.rewards import episode_return
from tests.models import tiny_llama
from tests.trainer.runs import Notes, config, save_model, serving

SHORT = {"name": "textcraft", "view": "compact", "reward": [{"name": "length_cost", "per": "token"}]}
THRESHOLD = -79.5
"""Tokens of an episode of one turn of at most 80: those pass that ended by themselves."""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def settings(model: Path, name: str = "agentevol", *, lr: float = 3e-3, **sections):
    values = {
        **config(model).dump(),
        "envs": [SHORT],
        "horizon": {"type": "fixed", "turns": 1},
        "algorithm": {"name": name, "threshold": THRESHOLD, **sections.pop("algorithm", {})},
        "rollout": {"group_size": 4, "groups_per_step": 6, "prompt": "none", "deterministic": True},
        "sampling": {"max_tokens": 80},
        "optim": {"lr": lr},
        "trainer": {"num_steps": 2, "epochs": 3, "save_every": 1},
    }
    return parse_config({**values, **sections})


async def play(chosen, run: Path, *, resume: bool = False) -> Trainer:
    async with serving() as envs:
        trainer = Trainer(chosen, envs, run_dir=run, resume=resume, observer=Notes())
        await trainer.run()
        return trainer


def metrics(run: Path) -> list[dict]:
    timed = ("time/", "rollout/tokens_per_s")
    return [{k: v for k, v in line.items() if not k.startswith(timed)} for line in read_metrics(run / "metrics.jsonl")]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / f"checkpoints/step_{step:06d}/model/model.safetensors")


def good(run: Path, rewards) -> list[int]:
    """Episodes of each step that are paid more than the threshold."""
    return [
        sum(episode_return(t, rewards) > THRESHOLD for group in read(path) for t in group.trajectories)
        for path in shards(run / "trajectories")
    ]


async def test_two_iterations_learn_from_the_base_on_the_union(model, tmp_path):
    chosen = settings(model, algorithm={"batch_size": 8}, lr=1e-2)
    trainer = await play(chosen, tmp_path / "run")
    first, second = metrics(tmp_path / "run")
    kept = good(tmp_path / "run", chosen.rewards()["textcraft"])
    assert kept[0] > 0
    assert [first["filter/kept"], second["filter/kept"]] == kept
    assert (first["filter/union"], second["filter/union"]) == (kept[0], sum(kept))
    assert second["train/optimizer_steps"] == 3 * -(-sum(kept) // 8)
    assert second["reward/mean"] > first["reward/mean"], "short answers have become likelier"
    # From the base: learning on the union alone, from the start weights, gives the same policy.
    again = await play(chosen.model_copy(update={"name": "again"}), tmp_path / "again")
    learner = again.parts.learner
    learner.update(1, learner.prepare([]))
    for name, weight in learner.policy.named_weights():
        assert torch.equal(weight, weights(tmp_path / "run", 2)[name])
    assert trainer.progress.step == 2


async def test_a_resumed_run_still_has_what_was_kept(model, tmp_path):
    longer = settings(model, trainer={"num_steps": 3, "epochs": 1, "save_every": 1})
    shorter = longer.model_copy(update={"trainer": longer.trainer.model_copy(update={"num_steps": 2})})
    await play(longer, tmp_path / "whole")
    await play(shorter, tmp_path / "parts")
    await play(longer, tmp_path / "parts", resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    whole, parts = weights(tmp_path / "whole", 3), weights(tmp_path / "parts", 3)
    assert all(torch.equal(weight, parts[name]) for name, weight in whole.items())


async def test_nothing_good_enough_changes_nothing(model, tmp_path):
    await play(settings(model, algorithm={"threshold": 1.0}, trainer={"num_steps": 1}), tmp_path / "run")
    start = tiny_llama(context=4096)
    assert metrics(tmp_path / "run")[0]["train/optimizer_steps"] == 0
    for name, weight in weights(tmp_path / "run", 1).items():
        assert torch.equal(weight, dict(start.named_parameters())[name])


async def test_another_base_and_demonstrations(model, tmp_path):
    """The first iteration explores with the model and learns from the base; demonstrations are there from the start."""
    await play(settings(model, trainer={"num_steps": 1}), tmp_path / "before")
    base = tiny_llama(context=4096, seed=7)
    base.save_pretrained(tmp_path / "base")
    options = {"base": str(tmp_path / "base"), "demonstrations": [str(tmp_path / "before/trajectories")]}
    chosen = settings(model, algorithm=options, trainer={"num_steps": 1})
    await play(chosen, tmp_path / "run")
    [line] = metrics(tmp_path / "run")
    assert line["filter/union"] == 2 * line["filter/kept"], "the demonstrations are the same episodes once more"
    near, far = dict(base.named_parameters()), dict(tiny_llama(context=4096).named_parameters())
    for name, weight in weights(tmp_path / "run", 1).items():
        if weight.dim() == 2:
            assert (weight - near[name]).norm() < 0.5 * (weight - far[name]).norm()


async def test_what_cannot_be_is_one_line(model, tmp_path):
    with pytest.raises(UsageError, match=r"agentevol resumes from its recordings.*logging.trajectories"):
        settings(model, logging={"trajectories": False, "tensorboard": False})
    tiny_llama(hidden=16).save_pretrained(tmp_path / "other")
    async with serving() as envs:
        for options, said in (
            ({"base": str(tmp_path / "other")}, "not of the same architecture"),
            ({"demonstrations": [str(tmp_path)]}, "no recordings in"),
        ):
            chosen = settings(model, algorithm=options)
            with pytest.raises(UsageError, match=said):
                Trainer(chosen, envs, run_dir=tmp_path / "run", resume=False, observer=Notes())


async def test_rft_goes_on_from_where_it_is(model, tmp_path):
    chosen = settings(model, "rft", trainer={"num_steps": 4, "epochs": 2, "minibatches": 2})
    await play(chosen, tmp_path / "run")
    lines = metrics(tmp_path / "run")
    kept = good(tmp_path / "run", chosen.rewards()["textcraft"])
    assert [line["filter/kept"] for line in lines] == kept
    assert [line["train/rows"] for line in lines] == kept
    assert not any("policy/kl" in line for line in lines), "it takes no ratio: there is nothing to measure"
    assert lines[-1]["reward/mean"] > lines[0]["reward/mean"] + 0.2
    assert lines[-1]["filter/kept_share"] > lines[0]["filter/kept_share"]
