"""What an agent is told about its actions, and what `init` and `inject` may say."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sojourn.protocol.errors import InvalidInit
from sojourn.protocol.validation import first_problem

VIEW = "agentgym"
LOOK = "look"
"""The view that also shows what is in a room when the agent arrives there."""
VIEWS = (VIEW, LOOK)
_HELP = (
    "You are in a building full of things, with a science task to do. Each turn you take one action and read what "
    "comes of it. OBJECT is a thing that you can see, named as you see it; LOCATION is a room that a door leads to. "
    "Where a name fits several things, say which (`apple in bowl`).\n"
    "Actions:\n"
    "- `open OBJECT`, `close OBJECT`: a door or a container\n"
    "- `activate OBJECT`, `deactivate OBJECT`: a device\n"
    "- `connect OBJECT to OBJECT`, `disconnect OBJECT`: electrical parts\n"
    "- `use OBJECT`, `use OBJECT on OBJECT`\n"
    "- `look around`, `look at OBJECT`, `look in OBJECT`, `examine OBJECT`, `read OBJECT`\n"
    "- `move OBJECT to OBJECT`, `pick up OBJECT`, `put down OBJECT`\n"
    "- `pour OBJECT into OBJECT`, `dunk OBJECT into OBJECT`, `mix OBJECT` (what a container holds)\n"
    "- `go to LOCATION`: to a room next to this one, through an open door\n"
    "- `eat OBJECT`, `flush OBJECT`\n"
    "- `focus on OBJECT`: show the object that the task asks for. Focus only on what the task names: a wrong focus "
    "ends the episode, and it is lost.\n"
    "- `inventory`, `task`\n"
    "- `wait` for ten steps, `wait1` for one\n"
    "When a request is ambiguous you are shown numbered choices: answer with the number."
)
ACTION_HELP = {VIEW: _HELP, LOOK: f"{_HELP}\nWhen you arrive in a room you are shown what is in it."}
SIMPLIFICATIONS = (
    "easy",
    "teleportAction",
    "openDoors",
    "openContainers",
    "selfWateringFlowerPots",
    "noElectricalAction",
)
_Model = TypeVar("_Model", bound=BaseModel)


class SciWorldInit(BaseModel):
    """How an episode starts otherwise than the task says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    simplifications: str = Field(default="", max_length=200)
    """The simulator's own, with commas between: `easy` (all that suit the task), `openDoors,teleportAction`."""

    @field_validator("simplifications")
    @classmethod
    def _known(cls, value: str) -> str:
        names = [name for name in value.split(",") if name]
        for name in names:
            if name not in SIMPLIFICATIONS:
                raise ValueError(f"no simplification {name[:40]!r} (known: {', '.join(SIMPLIFICATIONS)})")
        return ",".join(sorted(set(names)))


class SciWorldInject(BaseModel):
    """A change in the middle of an episode."""

    model_config = ConfigDict(extra="forbid", strict=True)

    location: str = Field(min_length=1, max_length=80)
    """The room to put the agent into; no time passes."""


def parse_init(task: str, value: dict[str, Any] | None) -> SciWorldInit:
    """Raises `InvalidInit` for anything that this task cannot start with."""
    init = _parse(SciWorldInit, value or {})
    electrical = "power-component" in task or "conductivity" in task
    if electrical and "noElectricalAction" in init.simplifications:
        raise InvalidInit(f"simplifications: {task} cannot be done with noElectricalAction")
    return init


def parse_inject(value: dict[str, Any]) -> SciWorldInject:
    """Raises `InvalidInit`."""
    return _parse(SciWorldInject, value)


def _parse(model: type[_Model], value: dict[str, Any]) -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInit(first_problem(error)[:500]) from error
