"""A cell: one arm of one environment under one seed, and the file that holds what came of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field

from sojourn.files import write_whole
from sojourn.protocol.errors import UsageError


class Cell(NamedTuple):
    """One training run."""

    env: str
    arm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.env}/{self.arm}/{self.seed}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Read what `str` gives; raises `UsageError`."""
        env, _, rest = text.partition("/")
        arm, _, seed = rest.partition("/")
        if not (env and arm and seed.isascii() and seed.isdigit()):
            raise UsageError(f"not a cell: {text!r} (expected ENVIRONMENT/ARM/SEED)")
        return cls(env, arm, int(seed))

    def path(self, folder: Path) -> Path:
        """Where its result lies."""
        return folder / self.env / f"{self.arm}-{self.seed}.json"


class Evaluated(BaseModel):
    """The policy on the held-out episodes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    tokens: int
    """Of all training episodes so far, the world's words included."""
    cpu_s: float
    """Of the cell's process and its environment server in training so far; evaluations and start-up are not counted."""
    success: float
    episodes: int
    families: dict[str, float]
    """Success by family."""
    turns: float


class Result(BaseModel):
    """What came of a cell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: str
    arm: str
    seed: int
    key: str
    """Of its plan and arm."""
    start: str
    """Digest of the weights that it started from."""
    version: str
    """Of the code."""
    machine: dict[str, Any]
    evaluations: list[Evaluated]
    """The start is not among them: it is an arm of its own."""
    steps: dict[str, list[float | None]] = Field(default_factory=dict)
    """Metrics by name, one value a training step."""
    notes: list[str] = Field(default_factory=list)
    """Why the horizon changed."""
    wall_s: float
    peak_mb: float
    """Largest resident memory of the cell's process, in MiB."""

    @property
    def cell(self) -> Cell:
        return Cell(self.env, self.arm, self.seed)


def write(result: Result, folder: Path) -> Path:
    """Keep a result, whole or not at all."""
    path = result.cell.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, orjson.dumps(result.model_dump(), option=orjson.OPT_APPEND_NEWLINE))
    return path


def read(cell: Cell, folder: Path) -> Result | None:
    """The result of a cell, if there is one; raises `UsageError` for a file that is none."""
    path = cell.path(folder)
    if not path.exists():
        return None
    try:
        return Result.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{path} is no result of a cell: remove it, and the cell is run again") from error


def code_version() -> str:
    """The commit of the code, marked when files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
