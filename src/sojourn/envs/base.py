"""The contract of an environment: Gymnasium's words, asynchronous, text in and text out.

What a server shares between episodes (recipes, an index, a JVM pool) is an `EnvService`; one episode is an `Env`.
Whoever writes an environment subclasses both; on `ReplayEnv` snapshot and restore come for free, by verified replay.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import NoneType
from typing import Any, ClassVar, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict

from sojourn.protocol.env import EnvSpec, Observation, Snapshot, Solution, StepResult, TaskRef
from sojourn.protocol.errors import BadRequest, NotFound, NotSupported, ReplayDiverged, SnapshotInvalid


class EnvConfig(BaseModel):
    """Options of one environment on one server."""

    model_config = ConfigDict(extra="forbid")


class TaskIndex(ABC):
    """The tasks of an environment: how they are addressed, split and grouped into families."""

    @abstractmethod
    def resolve(self, task: TaskRef) -> TaskRef:
        """The canonical name of a task; raises `UnknownTask`."""

    @abstractmethod
    def family(self, task: TaskRef) -> str:
        """The label by which success is reported (a level, a depth)."""

    @abstractmethod
    def select(self, split: str, families: Sequence[str] | None = None) -> Sequence[TaskRef]:
        """The tasks of a split, in a fixed order, perhaps of some families only. Lazy where it is long."""


class Env(ABC):
    """One episode at a time. Not safe for concurrent calls: the service holds a lock for each session."""

    @abstractmethod
    async def reset(self, task: TaskRef, *, seed: int | None = None, init: dict[str, Any] | None = None) -> Observation:
        """Start `task` from nothing: whatever came before leaves no trace."""

    @abstractmethod
    async def step(self, action: str) -> StepResult:
        """Act. A refused action is an observation that says why, with `info["invalid"]`, never an exception."""

    async def available_actions(self) -> list[str] | None:
        """Actions that the world would take now, or None when it cannot list them."""
        return None

    async def inject(self, change: dict[str, Any]) -> Observation:
        """Change the state in the middle of an episode; raises `InvalidInit`."""
        raise NotSupported("this environment takes no injection")

    async def solve(self) -> Solution:
        """The scripted solution from the present state; raises `NotSupported` where there is none."""
        raise NotSupported("no scripted solution")

    async def tell(self, what: str) -> Any:
        """Something that only this kind of world can tell (a picture, its goals), as JSON values; changes nothing.

        Raises:
            NotSupported: it cannot tell that.
        """
        raise NotSupported(f"this environment cannot tell {what[:80]!r}")

    @abstractmethod
    async def snapshot(self) -> Snapshot:
        """The present state as portable bytes."""

    @abstractmethod
    async def restore(self, snapshot: Snapshot) -> Observation:
        """Continue from a snapshot, taken here or on another server; raises `SnapshotInvalid`."""

    async def close(self) -> None:  # noqa: B027 - most worlds hold nothing
        """Let go of what the episode holds."""


class EnvService(ABC):
    """What one server process shares between the episodes of an environment."""

    spec: EnvSpec
    Config: ClassVar[type[EnvConfig]] = EnvConfig

    def __init__(self, config: EnvConfig | None = None) -> None:
        self.config = config or self.Config()

    @classmethod
    def lack(cls) -> str | None:
        """What is not installed here without which nothing can be opened, in one line; None when nothing is amiss."""
        return None

    async def open(self) -> None:  # noqa: B027 - most worlds need nothing
        """Acquire what is shared; called once, before the first episode."""

    async def close(self) -> None:  # noqa: B027
        """Release it."""

    @abstractmethod
    def tasks(self) -> TaskIndex: ...

    @abstractmethod
    def create(self, view: str | None = None) -> Env:
        """A fresh episode that renders `view` (None: the first of `spec.views`)."""


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of a value (hex, 64 characters)."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def pack_state(env: str, version: str, kind: str, state: dict[str, Any]) -> Snapshot:
    """A snapshot of JSON state, marked with the environment and version that can read it."""
    return Snapshot(env, orjson.dumps({"v": 1, "env": env, "version": version, "kind": kind, "state": state}))


def unpack_state(snapshot: Snapshot, env: str, version: str, kind: str) -> dict[str, Any]:
    """The state inside a snapshot; raises `SnapshotInvalid` for bytes that this environment did not write."""
    try:
        document = orjson.loads(snapshot.data)
        found = (document["v"], document["env"], document["version"], document["kind"])
        state = document["state"]
    except (orjson.JSONDecodeError, TypeError, KeyError) as error:
        raise SnapshotInvalid("the snapshot is corrupted") from error
    if found != (1, env, version, kind):
        raise SnapshotInvalid(
            f"the snapshot is of {found[1]} {found[2]} ({found[3]}), this is {env} {version} ({kind})"
        )
    if not isinstance(state, dict):
        raise SnapshotInvalid("the snapshot is corrupted")
    return state


class _Entry(NamedTuple):
    """One mutating operation of an episode and the digest of what it led to."""

    operation: str
    arguments: list[Any]
    seen: str


_ARGUMENTS: dict[str, tuple[tuple[type, ...], ...]] = {
    "reset": ((str,), (int, NoneType), (dict, NoneType)),
    "step": ((str,),),
    "inject": ((dict,),),
}


def _read_log(state: dict[str, Any]) -> list[_Entry]:
    """The operations in a replay snapshot: a reset and what came after it; raises `SnapshotInvalid`."""
    log = state.get("log")
    if not isinstance(log, list) or not log:
        raise SnapshotInvalid("the snapshot holds no episode")
    entries = [_read_entry(entry) for entry in log]
    if [entry.operation == "reset" for entry in entries] != [True] + [False] * (len(entries) - 1):
        raise SnapshotInvalid("the snapshot's episode must begin with its only reset")
    try:
        TaskRef.parse(entries[0].arguments[0])
    except ValueError as error:
        raise SnapshotInvalid(f"the snapshot is corrupted: {error}") from error
    return entries


def _read_entry(entry: Any) -> _Entry:
    if isinstance(entry, dict) and entry.keys() == {"op", "args", "seen"} and isinstance(entry["op"], str):
        shape, arguments = _ARGUMENTS.get(entry["op"], ()), entry["args"]
        fits = shape and isinstance(arguments, list) and len(arguments) == len(shape)
        if fits and all(map(isinstance, arguments, shape)):
            return _Entry(entry["op"], arguments, entry["seen"])
    raise SnapshotInvalid("the snapshot is corrupted")


class ReplayEnv(Env):
    """Snapshot and restore by replay of every mutating operation, with the digest of each observation.

    Subclasses implement `_reset`, `_step` and, if they take injections, `_inject`; the public methods keep the log.
    One with several views says in `_in_every_view` what they have in common.
    """

    spec: EnvSpec

    def __init__(self) -> None:
        self._log: list[dict[str, Any]] = []

    @abstractmethod
    async def _reset(self, task: TaskRef, seed: int | None, init: dict[str, Any] | None) -> Observation: ...

    @abstractmethod
    async def _step(self, action: str) -> StepResult: ...

    async def _inject(self, change: dict[str, Any]) -> Observation:
        raise NotSupported("this environment takes no injection")

    def _in_every_view(self, text: str) -> str:
        """What of the latest observation, `text`, all views have: it alone is compared when a snapshot is replayed."""
        return text

    async def reset(self, task: TaskRef, *, seed: int | None = None, init: dict[str, Any] | None = None) -> Observation:
        self._log = []
        observation = await self._reset(task, seed, init)
        self._record("reset", [str(task), seed, init], observation.text)
        return observation

    async def step(self, action: str) -> StepResult:
        result = await self._step(action)
        self._record("step", [action], result.observation)
        return result

    async def inject(self, change: dict[str, Any]) -> Observation:
        observation = await self._inject(change)
        self._record("inject", [change], observation.text)
        return observation

    async def snapshot(self) -> Snapshot:
        return pack_state(self.spec.name, self.spec.version, "replay", {"log": self._log})

    async def restore(self, snapshot: Snapshot) -> Observation:
        log = _read_log(unpack_state(snapshot, self.spec.name, self.spec.version, "replay"))
        try:
            return await self._replay(log)
        except (BadRequest, NotFound, NotSupported) as error:
            raise SnapshotInvalid(f"the snapshot's episode is refused: {error.detail}") from error

    async def _replay(self, log: list[_Entry]) -> Observation:
        observation: Observation
        for operation, arguments, seen in log:
            if operation == "reset":
                task, seed, init = arguments
                observation = await self.reset(TaskRef.parse(task), seed=seed, init=init)
            elif operation == "step":
                result = await self.step(*arguments)
                observation = Observation(result.observation, result.info)
            else:
                observation = await self.inject(*arguments)
            if digest(self._in_every_view(observation.text)) != seen:
                raise ReplayDiverged(f"replay of {operation} gave another observation than was recorded")
        return observation

    def _record(self, operation: str, arguments: list[Any], text: str) -> None:
        self._log.append({"op": operation, "args": arguments, "seen": digest(self._in_every_view(text))})
