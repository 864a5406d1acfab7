"""The session table: who holds which world, until when, and what became of those that are gone."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sojourn.envs.base import Env, EnvService
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import Conflict, Gone, NotFound, ServiceError, TooMany, from_problem
from sojourn.serving.config import ServingConfig

MutationKey = tuple[str, int, str]
"""Operation, revision and canonical body: what makes two requests the same one."""
Forget = Callable[[], None]

_TOMBS = 16
"""Gone sessions that are remembered, for each one that may be open."""


@dataclass(slots=True, eq=False)
class Session:
    """One client's world."""

    id: str
    service: EnvService
    world: Env
    view: str
    task: TaskRef
    family: str
    ended: bool
    """The world has given its verdict: only reset and restore are taken."""
    lease_s: float
    expires: float
    revision: int = 0
    unset: bool = False
    """A reset was refused half-way: nothing but reset and restore is taken."""
    closed: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_key: MutationKey | None = None
    last_reply: bytes = b""
    """Reply of the latest mutation, given again when the same request comes again."""
    forget: Forget | None = None
    """Called when the session goes: the reply that told of it is of no more use."""

    @property
    def env(self) -> str:
        return self.service.spec.name

    def stands_at(self, task: TaskRef, *, ended: bool) -> None:
        """The world was reset or restored."""
        self.task, self.family = task, self.service.tasks().family(task)
        self.ended, self.unset = ended, False

    def repeated(self, key: MutationKey) -> bytes | None:
        """The stored reply if `key` is the latest mutation, else None once the revision is the present one.

        Raises:
            Conflict: the revision is not the session's.
        """
        if key == self.last_key:
            return self.last_reply
        if key[1] != self.revision:
            which = "stale" if key[1] < self.revision else "of no mutation yet"
            raise Conflict(f"revision {key[1]} is {which}, the session is at {self.revision}", revision=self.revision)
        return None


@dataclass(frozen=True, slots=True)
class _Tomb:
    reason: str
    key: MutationKey | None = None
    problem: dict[str, Any] | None = None
    """What `key` was answered. Not the exception itself, whose frames would keep the world."""


class SessionTable:
    """Open sessions of one worker, bounded in number, each on a lease."""

    def __init__(self, config: ServingConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._tombs: OrderedDict[str, _Tomb] = OrderedDict()
        self._reserved = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Hold room for sessions that are being made; raises `TooMany` when there is not enough."""
        free = self._config.max_sessions - len(self._sessions) - self._reserved
        if count > free:
            raise TooMany(
                f"{count} more sessions would pass the bound of {self._config.max_sessions}",
                retry_after=self._config.retry_after_s,
            )
        self._reserved += count
        try:
            yield
        finally:
            self._reserved -= count

    def add(
        self, service: EnvService, world: Env, view: str, task: TaskRef, ended: bool, lease_s: float | None
    ) -> Session:
        """Enter a world that stands at its first observation."""
        lease_s = self._lease(lease_s)
        session = Session(
            id=f"{self._config.worker}.{secrets.token_urlsafe(18)}",
            service=service,
            world=world,
            view=view,
            task=task,
            family=service.tasks().family(task),
            ended=ended,
            lease_s=lease_s,
            expires=self._clock() + lease_s,
        )
        self._sessions[session.id] = session
        return session

    def find(self, session_id: str, key: MutationKey | None = None) -> Session:
        """An open session, its lease extended.

        Args:
            session_id: as `add` gave it.
            key: the mutation about to be made; if it is the one that broke the session, its error is raised again.

        Raises:
            Gone: it was closed, broke, or its lease expired.
            NotFound: no such session.
        """
        session = self._sessions.get(session_id)
        if session is not None and (session.expires > self._clock() or session.lock.locked()):
            self.touch(session)
            return session
        if session is not None:
            raise Gone("the session's lease expired")
        raise self._missing(session_id, key)

    def still_open(self, session: Session, key: MutationKey | None = None) -> None:
        """Raises as `find` does if the session went away while its lock was awaited."""
        if session.closed:
            raise self._missing(session.id, key)

    def touch(self, session: Session, lease_s: float | None = None) -> None:
        """Extend the lease from now, perhaps by another length."""
        if lease_s is not None:
            session.lease_s = self._lease(lease_s)
        session.expires = self._clock() + session.lease_s

    def left(self, session: Session) -> float:
        """Seconds until the lease expires."""
        return max(0.0, session.expires - self._clock())

    def remaining(self, session_id: str) -> float | None:
        """Seconds left of a session's lease, which this does not extend; None when it is not open."""
        session = self._sessions.get(session_id)
        return None if session is None else self.left(session)

    def remove(
        self, session: Session, reason: str, key: MutationKey | None = None, error: ServiceError | None = None
    ) -> None:
        """Take a session out; later requests are told why."""
        session.closed = True
        self._sessions.pop(session.id, None)
        if session.forget is not None:
            session.forget()
        self._tombs[session.id] = _Tomb(reason, key, None if error is None else error.problem())
        while len(self._tombs) > _TOMBS * self._config.max_sessions:
            self._tombs.popitem(last=False)

    def env_of(self, session_id: str) -> str:
        """The environment of an open session, or an empty string."""
        session = self._sessions.get(session_id)
        return "" if session is None else session.env

    def is_tomb(self, session_id: str) -> bool:
        return session_id in self._tombs

    def expired(self) -> list[Session]:
        """Sessions whose lease ran out and that nobody is using."""
        now = self._clock()
        return [s for s in self._sessions.values() if s.expires <= now and not s.lock.locked()]

    def _missing(self, session_id: str, key: MutationKey | None) -> ServiceError:
        tomb = self._tombs.get(session_id)
        if tomb is not None:
            repeated = key is not None and tomb.key == key
            return from_problem(tomb.problem) if repeated and tomb.problem is not None else Gone(tomb.reason)
        prefix, _, _ = session_id.partition(".")
        name, _, generation = self._config.worker.rpartition("-")
        if name and prefix != self._config.worker and prefix.rpartition("-")[0] == name and generation.isdigit():
            return Gone("the session's worker was restarted")
        return NotFound("no such session")

    def _lease(self, lease_s: float | None) -> float:
        return self._config.lease_s if lease_s is None else min(lease_s, self._config.max_lease_s)
