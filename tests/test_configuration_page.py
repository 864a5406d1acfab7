"""The tables of configuration keys name keys as a config and an override spell them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[1] / "docs" / "hooks" / "configuration.py"


@pytest.fixture(scope="module")
def page() -> str:
    spec = importlib.util.spec_from_file_location("configuration_page", HOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return f"{module.tables()}\n{module.offline_tables()}"


def _section(page: str, title: str) -> str:
    return re.split(r"^#+ ", page.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_items_of_lists_and_mappings_have_a_path_of_their_own(page):
    assert re.findall(r"^\| `(reward[^`]*)`", _section(page, "envs[]"), re.MULTILINE) == [
        "reward[].name",
        "reward[].weight",
    ]
    assert re.findall(r"^\| `(by_env[^`]*)`", _section(page, "horizon (adaptive)"), re.MULTILINE) == [
        "by_env.ENV.start",
        "by_env.ENV.max_turns",
    ]
    assert "| `lora.r` |" in _section(page, "model")


def test_what_a_key_is_for_is_found_at_every_depth(page):
    assert "| `reward[].weight` | float | `1.0` | Factor of what it pays" in page
    assert "| `critic.loss_coef` | float | `0.1` | Weight of the value loss" in page
    assert "unknown keys are errors" not in page, "a section tells of itself, not of all sections"
