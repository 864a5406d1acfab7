"""The configs that come with the package are valid and say what the documents promise."""

from __future__ import annotations

from importlib import resources

import pytest

from sojourn.trainer.config import load_config

FILES = sorted(path.name for path in resources.files("sojourn").joinpath("configs").iterdir())


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_each_loads(name):
    config = load_config(str(resources.files("sojourn").joinpath("configs", name)))
    assert config.name == name.removesuffix(".yaml")
    assert config.trainer.eval_every


def test_all_are_there():
    assert {"demo.yaml", "babyai_grpo.yaml", "textcraft_grpo.yaml"} <= set(FILES)
