"""The command line in this process, and a model of a few thousand parameters to run it with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from sojourn.cli.main import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("train", config)`: exit code, stdout, stderr; in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("SOJOURN_DEBUG", raising=False)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a tokenizer, as a directory."""
    from tests.models import byte_tokenizer, tiny_llama

    directory = tmp_path_factory.mktemp("model")
    tiny_llama(context=1024).save_pretrained(directory)
    byte_tokenizer().save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def config(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps of four episodes."""
    path = tmp_path_factory.mktemp("config") / "small.yaml"
    values = {
        "name": "small",
        "model": {"name": str(model)},
        "envs": [{"name": "textcraft", "view": "compact", "families": ["depth1"]}],
        "rollout": {"group_size": 2, "groups_per_step": 2, "prompt": "none", "deterministic": True},
        "sampling": {"max_tokens": 4},
        "horizon": {"type": "scaling_inter", "stages": [1, 2], "steps_per_stage": 1},
        "trainer": {"num_steps": 2, "save_every": 1, "eval_every": 2},
        "eval": {"episodes": 4, "horizon": 2},
        "logging": {"tensorboard": False},
    }
    path.write_text(yaml.safe_dump(values))
    return path
