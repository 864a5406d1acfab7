"""The file that says which TextCraft goal another server has under which index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sojourn.files import write_whole
from sojourn.protocol.errors import UsageError
from sojourn.protocol.validation import first_problem


class GoalMap(BaseModel):
    """Goals by AgentGym's `data_idx`."""

    model_config = ConfigDict(extra="forbid")

    env: str = Field(default="textcraft", pattern="^textcraft$")
    goals: list[str] = Field(min_length=1)
    """Tasks by our name for them (`acacia_planks`)."""


def read_goals(path: Path) -> list[str]:
    """The goals in a map; raises `UsageError` for a file that is none."""
    try:
        return GoalMap.model_validate_json(path.read_bytes()).goals
    except OSError as error:
        raise UsageError(f"cannot read the goal map {str(path)!r}: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(f"{str(path)!r} is not a goal map: {first_problem(error)}") from error


def write_goals(path: Path, goals: Sequence[str]) -> None:
    """Write a map, whole or not at all; raises `UsageError` when the file cannot be written."""
    document = GoalMap(goals=list(goals)).model_dump()
    try:
        write_whole(path, orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write the goal map {str(path)!r}: {error.strerror}") from error
