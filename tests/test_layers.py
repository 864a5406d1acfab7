"""The picture of the house stays true: import direction, no cycles, no torch where none is needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "sojourn"


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter by this repository's contracts on the package under `directory`."""
    program = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command as c; c()"
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache", "--no-logo", str(ROOT / "pyproject.toml")],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(SOURCES, tmp_path / "sojourn", ignore=shutil.ignore_patterns("*.safetensors", "__pycache__"))
    return tmp_path


def test_contracts_hold(copy: Path) -> None:
    outcome = lint(copy)
    assert outcome.returncode == 0, outcome.stdout
    assert "0 broken" in outcome.stdout


@pytest.mark.parametrize(
    ("where", "line", "broken"),
    [
        ("client", "from sojourn.envs import registry", "training meets environments only over HTTP"),
        ("trainer", "import sojourn.serving", "training meets environments only over HTTP"),
        ("rollout", "import torch", "torch only in engines, algorithms and trainer"),
        ("cli", "import torch", "the command line leaves tensors to others"),
        ("protocol", "import httpx", "protocol is pydantic and dataclasses, nothing else"),
        ("protocol", "import sojourn.client", "imports only point down"),
        ("rollout", "import sojourn.trainer", "imports only point down"),
        ("engines", "import sojourn.client", "imports only point down"),
        ("algorithms", "import ray", "ray only in trainer/ray_*"),
        ("replay", "import playwright", "playwright only in envs/web"),
    ],
)
def test_contracts_bite(copy: Path, where: str, line: str, broken: str) -> None:
    (copy / "sojourn" / where / "intruder.py").write_text(f"def late() -> None:\n    {line}\n")
    outcome = lint(copy)
    assert outcome.returncode == 1
    assert f"{broken} BROKEN" in outcome.stdout


def test_cycles_are_found(copy: Path) -> None:
    (copy / "sojourn" / "rollout" / "one.py").write_text("from sojourn.rollout import two\n")
    (copy / "sojourn" / "rollout" / "two.py").write_text("from sojourn.rollout import one\n")
    assert "no cycles BROKEN" in lint(copy).stdout


def test_no_package_of_leftovers() -> None:
    names = {path.stem for path in SOURCES.rglob("*.py")} | {path.parent.name for path in SOURCES.rglob("*.py")}
    assert not names & {"utils", "util", "common", "helpers", "misc"}


@pytest.mark.parametrize(
    "program", ["sojourn.cli.main", "sojourn.serving.app", "sojourn.client.pool", "sojourn.rollout.group"]
)
def test_starts_without_torch(program: str) -> None:
    code = f"import sys, {program}; print(*(m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules))"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outcome.stdout.strip() == ""
