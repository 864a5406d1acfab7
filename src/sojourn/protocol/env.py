"""The words that an environment and its user share: tasks, observations, results, snapshots, specifications."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field

_TASK = re.compile(r"(?P<env>[a-z][a-z0-9]{0,63})(?::(?P<name>\S{1,512})|_(?P<index>[0-9]{1,18}))")


@dataclass(frozen=True, slots=True)
class TaskRef:
    """One task of one environment: by index (`textcraft_17`) or by name (`babyai:FindObjS7/3`)."""

    env: str
    key: str
    """Either decimal digits (an index) or the environment's own name of the task."""

    @classmethod
    def parse(cls, text: str) -> TaskRef:
        """Read `env_INDEX` or `env:NAME`; raises `ValueError` with the offending text otherwise."""
        match = _TASK.fullmatch(text)
        if not match:
            raise ValueError(f"not a task: {text!r} (expected env_INDEX or env:NAME)")
        return cls(match["env"], match["name"] or match["index"])

    @property
    def index(self) -> int | None:
        """The index, when the task is addressed by one."""
        return int(self.key) if self.key.isascii() and self.key.isdigit() and len(self.key) <= 18 else None

    def __str__(self) -> str:
        return f"{self.env}_{self.key}" if self.index is not None else f"{self.env}:{self.key}"


class Info(TypedDict, total=False):
    """What travels beside an observation. `score`, `success` and `state_key` are always present."""

    score: float
    """Sum of the episode's rewards so far, in [0, 1]."""
    success: bool
    state_key: str
    """Digest of the world's state (step-level credit groups by it)."""
    invalid: bool
    """The last action was refused; the observation says why."""
    raw: dict[str, Any]
    """The world's own numbers, unscaled."""
    view: dict[str, Any]
    """What the replay page draws."""


@dataclass(slots=True)
class Observation:
    """What `reset`, `restore` and `inject` return."""

    text: str
    info: Info


@dataclass(slots=True)
class StepResult:
    """What `step` returns: Gymnasium's five values, the observation as text."""

    observation: str
    reward: float
    terminated: bool
    """The world's verdict."""
    truncated: bool
    """A cap of the world's own."""
    info: Info

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


@dataclass(slots=True)
class Solution:
    """A scripted way to success from the present state, one action a turn."""

    actions: list[str]
    thoughts: list[str] | None = None
    """A reason for each action, when the oracle can give one (same length)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A world frozen at one step: portable bytes (JSON or msgpack, never pickle) and their SHA-256."""

    env: str
    data: bytes
    digest: str = field(default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha256(self.env.encode() + b"\0" + self.data).hexdigest())


class EnvSpec(BaseModel):
    """What an environment tells about itself at `GET /v1/envs`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9]*$")
    version: str
    """Changes whenever the same task and actions may give another transcript."""
    snapshot: Literal["state", "replay"]
    execution: Literal["inline", "thread", "process"] = "inline"
    views: tuple[str, ...] = ("full",)
    """Renderings of one world; the first is the default. A session keeps its view for life."""
    action_help: dict[str, str]
    """For each view: the rules and the action grammar, for the prompt of a model that reads it."""
    default_horizon: int
    """Turns of the published protocol."""
    init_schema: dict[str, Any] = Field(default_factory=dict)
    """JSON schema of `init`."""
    inject_schema: dict[str, Any] = Field(default_factory=dict)
    solvable: bool = True
    """Whether `solve` exists for at least some tasks."""
    splits: dict[str, int] = Field(default_factory=dict)
    """Tasks by split."""
    families: tuple[str, ...] = ()
