"""Replies of the native API, as the OpenAPI document shows them. The service writes them as plain dictionaries."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, Field

from sojourn.protocol.env import EnvSpec, Observation
from sojourn.protocol.errors import EnvironmentFailed


class ObservationReply(BaseModel):
    text: str
    info: dict[str, Any]


class SessionState(BaseModel):
    id: str
    env: str
    task: str
    family: str
    view: str
    revision: int
    """Rises with every mutation; the next one must carry it."""
    ended: bool
    lease_s: float
    expires_in_s: float


class SessionReply(SessionState):
    observation: ObservationReply


class ForkReply(BaseModel):
    sessions: list[SessionReply]


class StepReply(BaseModel):
    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    revision: int


class SeenReply(BaseModel):
    """Of reset, inject and restore."""

    observation: ObservationReply
    task: str
    family: str
    ended: bool
    revision: int


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str


class StepLine(BaseModel):
    """One line of a batch's reply: a result or a problem."""

    index: int
    id: str
    status: int
    result: StepReply | None = None
    problem: Problem | None = None


class SnapshotReply(BaseModel):
    digest: str
    env: str
    bytes: int


class RenewReply(BaseModel):
    id: str
    lease_s: float


class ActionsReply(BaseModel):
    actions: list[str] | None


class SolutionReply(BaseModel):
    actions: list[str]
    thoughts: list[str] | None


class EnvsReply(BaseModel):
    envs: list[EnvSpec]


class TaskLine(BaseModel):
    task: str
    family: str


class TasksReply(BaseModel):
    total: int
    offset: int
    tasks: list[TaskLine]


class Worker(BaseModel):
    id: str
    url: str
    alive: bool
    sessions: int
    max_sessions: int


class WorkersReply(BaseModel):
    workers: list[Worker] = Field(min_length=1)


class StatusReply(BaseModel):
    status: str


def as_dict(observation: Observation) -> dict[str, Any]:
    """An observation as it stands in a reply."""
    return {"text": observation.text, "info": observation.info}


def encode(value: Any) -> bytes:
    """JSON bytes; raises `EnvironmentFailed` for what an environment should not have put into a reply."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise EnvironmentFailed(f"the environment's reply is not JSON: {error}") from error
