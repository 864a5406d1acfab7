"""What a clone promises: pins within the ranges, commands and pages that the texts name and that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sojourn.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
EXTRAS = PROJECT["project"]["optional-dependencies"]


def test_constraints_are_pins_and_nothing_else() -> None:
    for line in PINS:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line), line
    assert "torch==2.13.0" in PINS
    names = [canonicalize_name(Requirement(line).name) for line in PINS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("extra", ["base", *EXTRAS])
def test_every_requirement_is_pinned_within_its_range(extra: str) -> None:
    pins = {canonicalize_name(Requirement(line).name): line.partition("==")[2] for line in PINS}
    wanted = PROJECT["project"]["dependencies"] if extra == "base" else EXTRAS[extra]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


def test_base_install_needs_no_torch() -> None:
    base = {canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]}
    assert not base & {"torch", "transformers", "tokenizers", "safetensors", "peft", "scipy", "matplotlib"}


def test_commands_that_the_texts_name_exist() -> None:
    texts = [ROOT / "README.md", ROOT / "AGENTS.md", *(ROOT / "docs").rglob("*.md")]
    for path in texts:
        text = path.read_text()
        for command in re.findall(r"(?:`|\$ )sojourn (?:--debug )?([a-z][a-z-]*)", text):
            assert command in COMMANDS, f"{path.name} names sojourn {command}"
        for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", text):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), (
                f"{path.name}: make {target}"
            )


def test_every_command_is_documented() -> None:
    reference = (ROOT / "docs" / "cli.md").read_text()
    assert not [command for command in COMMANDS if f"sojourn {command}" not in reference]


def test_agents_page_is_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 60


def test_links_between_pages_lead_somewhere() -> None:
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+\.(?:md|py|yaml))\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} -> {target}"
