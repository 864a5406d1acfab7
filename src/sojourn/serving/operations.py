"""What the verbs do: each takes a checked request and returns the reply's bytes, or raises a `ServiceError`.

Every mutation of a session holds its lock and carries its revision, so that a retry acts once. Whatever leaves a world
in an unknown state (an exception, a missed deadline) closes its session: a wrong world is never shown.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from sojourn.envs.base import EnvService
from sojourn.protocol.env import Observation, Snapshot
from sojourn.protocol.errors import (
    BadRequest,
    Conflict,
    DeadlineExceeded,
    EnvironmentFailed,
    NotFound,
    ServiceError,
    SnapshotInvalid,
    TooMany,
)
from sojourn.serving.config import ServingConfig
from sojourn.serving.metrics import Metrics
from sojourn.serving.replies import as_dict, encode
from sojourn.serving.requests import (
    CreateBody,
    ForkBody,
    InjectBody,
    RenewBody,
    ResetBody,
    RestoreBody,
    TasksQuery,
    brief,
    canonical,
)
from sojourn.serving.sessions import Forget, MutationKey, Session, SessionTable
from sojourn.serving.snapshots import Label, SnapshotStore, Stored, seal, unseal
from sojourn.serving.worlds import Opened, Worlds

T = TypeVar("T")
Reply = dict[str, Any]
logger = logging.getLogger("sojourn.serving")


class _Unharmed(Exception):
    """An environment failed, but not the session's own world."""

    def __init__(self, error: ServiceError) -> None:
        super().__init__()
        self.error = error


class Operations:
    """The environment service without HTTP: the native API and the dialects stand on it."""

    def __init__(
        self, services: Sequence[EnvService], config: ServingConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.config = config
        self.worlds = Worlds(services, config)
        self.metrics = Metrics(config.worker)
        self.sessions = SessionTable(config, clock)
        self.snapshots = SnapshotStore(config.snapshot_store_bytes, config.max_snapshot_bytes)

    # -- opening ---------------------------------------------------------------------------------------------------

    async def create(self, body: CreateBody, forget: Forget | None = None) -> bytes:
        """Open a session on a task or from a snapshot; the first observation is part of the reply.

        Whoever keeps the reply is told by `forget` when the session is gone.
        """
        service = self.worlds.service(body.env)
        view = self.worlds.view(service, body.view)
        if (body.task is None) == (body.snapshot is None):
            raise BadRequest("task: give either a task or a snapshot")
        if body.snapshot is not None and (body.seed is not None or body.init is not None):
            raise BadRequest("snapshot: a snapshot takes no seed and no init")
        with self.sessions.reserve(1):
            if body.snapshot is not None:
                opened = await self.worlds.restored(service, view, self.snapshots.get(body.snapshot))
            else:
                assert body.task is not None
                task = self.worlds.resolve(service, body.task)
                world, seen = await self.worlds.begin(
                    service, view, lambda made: made.reset(task, seed=body.seed, init=body.init)
                )
                opened = Opened(world, task, False, seen)
            return self._enter(service, view, opened, body.lease_s, forget)

    async def fork(self, session_id: str, body: ForkBody, forget: Forget | None = None) -> bytes:
        """Open `count` sessions that stand where this one stands; all of them or none. `forget`: as in `create`."""
        if body.count > self.config.max_fork:
            raise BadRequest(f"count: at most {self.config.max_fork} children at once")
        parent = self.sessions.find(session_id)
        with self.sessions.reserve(body.count):
            sealed = await self._read(parent, self._sealed)
            stored = Stored(sealed, trusted=True)
            made = await asyncio.gather(
                *(self.worlds.restored(parent.service, parent.view, stored) for _ in range(body.count)),
                return_exceptions=True,
            )
            failures = [item for item in made if isinstance(item, BaseException)]
            worlds = [item for item in made if not isinstance(item, BaseException)]
            if failures:
                for opened in worlds:
                    self.worlds.dispose(parent.service, opened.world)
                raise failures[0]
            children = [self._enter(parent.service, parent.view, opened, parent.lease_s, forget) for opened in worlds]
        return b'{"sessions":[' + b",".join(children) + b"]}"

    # -- mutations -------------------------------------------------------------------------------------------------

    async def reset(self, session_id: str, body: ResetBody) -> bytes:
        key = ("reset", body.revision, brief(canonical([body.task, body.seed, body.init])))
        return await self._mutate(session_id, key, partial(self._reset, body))

    async def step(self, session_id: str, revision: int, action: str) -> bytes:
        """Act once in a session; a batch calls this for each of its items."""
        env = self.sessions.env_of(session_id)
        try:
            reply = await self._mutate(session_id, ("step", revision, brief(action)), partial(self._step, action))
        except ServiceError as error:
            self.metrics.step_status(env, error.status)
            raise
        self.metrics.step_status(env, 200)
        return reply

    async def inject(self, session_id: str, body: InjectBody) -> bytes:
        key = ("inject", body.revision, brief(canonical(body.change)))
        return await self._mutate(session_id, key, partial(self._inject, body.change))

    async def restore(self, session_id: str, body: RestoreBody) -> bytes:
        key = ("restore", body.revision, body.snapshot)
        return await self._mutate(session_id, key, partial(self._restore, body.snapshot))

    # -- reading ---------------------------------------------------------------------------------------------------

    async def snapshot(self, session_id: str) -> bytes:
        """Store the present state; replies with its digest and size."""
        sealed = await self._read(self.sessions.find(session_id), self._sealed)
        self.snapshots.put(sealed, trusted=True)
        self.metrics.snapshots(self.snapshots)
        return encode({"digest": sealed.digest, "env": sealed.env, "bytes": len(sealed.data)})

    async def actions(self, session_id: str) -> bytes:
        session = self.sessions.find(session_id)
        found = await self._read(session, lambda s: self.worlds.run(s.service, s.world.available_actions()))
        return encode({"actions": found})

    async def solution(self, session_id: str) -> bytes:
        session = self.sessions.find(session_id)
        solution = await self._read(session, lambda s: self.worlds.run(s.service, s.world.solve(), slow=True))
        return encode({"actions": solution.actions, "thoughts": solution.thoughts})

    async def tell(self, session_id: str, what: str) -> Any:
        """What only this kind of world can tell, for a dialect that asks; raises `NotSupported`."""
        session = self.sessions.find(session_id)
        return await self._read(session, lambda s: self.worlds.run(s.service, s.world.tell(what)))

    def describe(self, session_id: str) -> bytes:
        return encode(self._about(self.sessions.find(session_id)))

    def renew(self, session_id: str, body: RenewBody) -> bytes:
        session = self.sessions.find(session_id)
        self.sessions.touch(session, body.lease_s)
        return encode({"id": session.id, "lease_s": session.lease_s})

    def tasks(self, env: str, query: TasksQuery) -> bytes:
        """One page of a split, in the environment's fixed order."""
        service = self.worlds.service(env)
        if query.split not in service.spec.splits:
            raise NotFound(f"{env} has no split {query.split!r} (known: {', '.join(service.spec.splits)})")
        index = service.tasks()
        try:
            found = index.select(query.split, query.family or None)
        except (ValueError, LookupError) as error:
            raise BadRequest(f"family: {error}") from error
        total = len(found)
        page = [found[i] for i in range(query.offset, min(total, query.offset + query.limit))]
        tasks = [{"task": str(task), "family": index.family(task)} for task in page]
        return encode({"total": total, "offset": query.offset, "tasks": tasks})

    async def put_snapshot(self, digest: str, data: bytes) -> None:
        """Keep bytes from elsewhere; raises `SnapshotInvalid` when they are not those of the digest."""
        label, _ = unseal(data)
        snapshot = Snapshot(label.env, data)
        if snapshot.digest != digest:
            raise SnapshotInvalid("the bytes do not have this digest")
        self.snapshots.put(snapshot, trusted=False)
        self.metrics.snapshots(self.snapshots)

    # -- closing ---------------------------------------------------------------------------------------------------

    async def delete(self, session_id: str) -> None:
        """Close a session; closing it again is no error."""
        if self.sessions.is_tomb(session_id):
            return
        session = self.sessions.find(session_id)
        async with session.lock:
            if not session.closed:
                self._remove(session, "the session was closed")

    def sweep(self) -> int:
        """Reclaim sessions whose lease ran out; returns how many."""
        expired = self.sessions.expired()
        for session in expired:
            self._remove(session, "the session's lease expired")
            self.metrics.leases_expired.inc()
        return len(expired)

    async def open(self) -> None:
        """Open the services."""
        await self.worlds.open()

    async def close(self) -> None:
        """Let operations in flight finish, then close every world and every service."""
        until = asyncio.get_running_loop().time() + self.config.drain_s
        for session in self.sessions:
            try:
                async with asyncio.timeout_at(until), session.lock:
                    if not session.closed:
                        self._remove(session, "the server is shutting down")
            except TimeoutError:
                logger.error("session %s is still at work after %g s; left behind", session.id, self.config.drain_s)
        await self.worlds.close()

    # -- shared ----------------------------------------------------------------------------------------------------

    async def _mutate(self, session_id: str, key: MutationKey, act: Callable[[Session], Awaitable[Reply]]) -> bytes:
        session = self.sessions.find(session_id, key)
        async with session.lock:
            self.sessions.still_open(session, key)
            stored = session.repeated(key)
            if stored is not None:
                return stored
            try:
                reply = await act(session)
                reply["revision"] = session.revision + 1
                encoded = encode(reply)
            except _Unharmed as unharmed:
                raise unharmed.error from unharmed.error.__cause__
            except (EnvironmentFailed, DeadlineExceeded) as error:
                self._break(session, error, key)
                raise
            session.revision += 1
            session.last_key, session.last_reply = key, encoded
            self.sessions.touch(session)
            return encoded

    async def _read(self, session: Session, look: Callable[[Session], Awaitable[T]]) -> T:
        async with session.lock:
            self.sessions.still_open(session)
            self._ready(session)
            try:
                found = await look(session)
            except (EnvironmentFailed, DeadlineExceeded) as error:
                self._break(session, error)
                raise
            self.sessions.touch(session)
            return found

    async def _step(self, action: str, session: Session) -> Reply:
        self._ready(session)
        if session.ended:
            raise Conflict("the episode is over: reset or restore the session")
        started = time.perf_counter()
        result = await self.worlds.run(session.service, session.world.step(action))
        self.metrics.stepped(session.env, time.perf_counter() - started)
        if not math.isfinite(result.reward):
            raise EnvironmentFailed(f"{session.env} gave the reward {result.reward}")
        session.ended = result.done
        return {
            "observation": result.observation,
            "reward": result.reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
            "info": result.info,
        }

    async def _reset(self, body: ResetBody, session: Session) -> Reply:
        task = session.task if body.task is None else self.worlds.resolve(session.service, body.task)
        try:
            seen = await self.worlds.run(session.service, session.world.reset(task, seed=body.seed, init=body.init))
        except TooMany:
            raise
        except ServiceError:
            # Refused, but perhaps half done: until a reset succeeds, the world is not one that anybody asked for.
            session.unset = True
            raise
        session.stands_at(task, ended=False)
        return self._seen(session, seen)

    async def _inject(self, change: dict[str, Any], session: Session) -> Reply:
        self._ready(session)
        if session.ended:
            raise Conflict("the episode is over: reset or restore the session")
        return self._seen(session, await self.worlds.run(session.service, session.world.inject(change)))

    async def _restore(self, digest: str, session: Session) -> Reply:
        # A fresh world takes the snapshot, so that a refused one leaves the session as it was.
        stored = self.snapshots.get(digest)
        try:
            opened = await self.worlds.restored(session.service, session.view, stored)
        except (EnvironmentFailed, DeadlineExceeded) as error:
            raise _Unharmed(error) from error
        self.worlds.dispose(session.service, session.world)
        session.world = opened.world
        session.stands_at(opened.task, ended=opened.ended)
        return self._seen(session, opened.observation)

    async def _sealed(self, session: Session) -> Snapshot:
        inner = await self.worlds.run(session.service, session.world.snapshot())
        return seal(Label(env=session.env, task=str(session.task), ended=session.ended), inner)

    def _enter(
        self, service: EnvService, view: str, opened: Opened, lease_s: float | None, forget: Forget | None
    ) -> bytes:
        session = self.sessions.add(service, opened.world, view, opened.task, opened.ended, lease_s)
        session.forget = forget
        try:
            return encode({**self._about(session), "observation": as_dict(opened.observation)})
        except EnvironmentFailed as error:
            self._break(session, error)
            raise

    def _about(self, session: Session) -> Reply:
        return {
            "id": session.id,
            "env": session.env,
            "task": str(session.task),
            "family": session.family,
            "view": session.view,
            "revision": session.revision,
            "ended": session.ended,
            "lease_s": session.lease_s,
            "expires_in_s": round(self.sessions.left(session), 3),
        }

    def _seen(self, session: Session, observation: Observation) -> Reply:
        return {
            "observation": as_dict(observation),
            "task": str(session.task),
            "family": session.family,
            "ended": session.ended,
        }

    def _ready(self, session: Session) -> None:
        if session.unset:
            raise Conflict("the last reset was refused: reset or restore the session")

    def _break(self, session: Session, error: ServiceError, key: MutationKey | None = None) -> None:
        self._remove(session, f"the session broke: {error.detail}", key, error)

    def _remove(
        self, session: Session, reason: str, key: MutationKey | None = None, error: ServiceError | None = None
    ) -> None:
        self.sessions.remove(session, reason, key, error)
        self.worlds.dispose(session.service, session.world, error)
