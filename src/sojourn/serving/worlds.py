"""Worlds on their own, without sessions: found by name, opened, restored, run under a deadline, let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sojourn.envs.base import Env, EnvService
from sojourn.protocol.env import Observation, TaskRef
from sojourn.protocol.errors import (
    BadRequest,
    EnvironmentFailed,
    NotFound,
    NotSupported,
    ReplayDiverged,
    SnapshotInvalid,
    UnknownTask,
)
from sojourn.serving.config import ServingConfig
from sojourn.serving.execution import Executor, NotStarted, StillRunning
from sojourn.serving.idempotency import spawn
from sojourn.serving.process_env import ProcessService
from sojourn.serving.snapshots import Stored, unseal

T = TypeVar("T")


class Opened(NamedTuple):
    """A world at its first observation."""

    world: Env
    task: TaskRef
    ended: bool
    observation: Observation


class Worlds:
    """The environments of one worker and where their worlds run."""

    def __init__(self, services: Sequence[EnvService], config: ServingConfig) -> None:
        self.services: Mapping[str, EnvService] = {
            service.spec.name: ProcessService(service) if service.spec.execution == "process" else service
            for service in services
        }
        self._drain_s = config.drain_s
        self._executor = Executor(config.deadline_s, config.threads)
        self._disposals: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Open every service; those already open are closed again when one fails."""
        opened: list[EnvService] = []
        try:
            for service in self.services.values():
                await service.open()
                opened.append(service)
        except BaseException:
            for service in opened:
                await service.close()
            raise

    async def close(self) -> None:
        """Wait for worlds that are being closed, then close every service."""
        if self._disposals:
            await asyncio.wait(self._disposals, timeout=self._drain_s)
        for service in self.services.values():
            await service.close()
        self._executor.close()

    def service(self, env: str) -> EnvService:
        """The environment of a name; raises `NotFound`."""
        found = self.services.get(env)
        if found is None:
            raise NotFound(f"no environment {env[:80]!r} here (known: {', '.join(self.services)})")
        return found

    def view(self, service: EnvService, view: str | None) -> str:
        """A view that the environment has, its first for None; raises `BadRequest`."""
        views = service.spec.views
        if view is not None and view not in views:
            raise BadRequest(f"view: {service.spec.name} has no view {view!r} (known: {', '.join(views)})")
        return views[0] if view is None else view

    def resolve(self, service: EnvService, text: str) -> TaskRef:
        """The canonical task that a text names; raises `UnknownTask`."""
        try:
            task = TaskRef.parse(text)
            if task.env != service.spec.name:
                raise UnknownTask(f"{text!r} is not a task of {service.spec.name}")
            return service.tasks().resolve(task)
        except ValueError as error:
            raise UnknownTask(str(error)) from error

    async def run(self, service: EnvService, operation: Coroutine[Any, Any, T], *, slow: bool = False) -> T:
        """One operation of a world; raises as `Executor.run`."""
        return await self._executor.run(service.spec, operation, slow=slow)

    async def begin(
        self, service: EnvService, view: str, first: Callable[[Env], Coroutine[Any, Any, Observation]]
    ) -> tuple[Env, Observation]:
        """A fresh world after its first operation; it is let go when that fails."""
        made: list[Env] = []

        async def opening() -> Observation:
            made.append(service.create(view))
            return await first(made[0])

        try:
            observation = await self.run(service, opening())
        except BaseException as error:
            if made:
                self.dispose(service, made[0], error)
            raise
        return made[0], observation

    async def restored(self, service: EnvService, view: str, stored: Stored) -> Opened:
        """A fresh world that continues a stored snapshot; raises `SnapshotInvalid`."""
        label, inner = unseal(stored.snapshot.data)
        if label.env != service.spec.name:
            raise SnapshotInvalid(f"the snapshot is of {label.env}, not of {service.spec.name}")
        task = self.resolve(service, label.task)
        try:
            world, observation = await self.begin(service, view, lambda made: made.restore(inner))
        except (EnvironmentFailed, ReplayDiverged, NotSupported) as error:
            if stored.trusted:
                raise
            raise SnapshotInvalid(f"the environment cannot read the snapshot: {error.detail}") from error
        return Opened(world, task, label.ended, observation)

    def dispose(self, service: EnvService, world: Env, error: BaseException | None = None) -> None:
        """Close a world in the background; one that a thread still works on, when that thread is done."""
        loop = asyncio.get_running_loop()

        def close() -> None:
            task = spawn(self._close(service, world))
            self._disposals.add(task)
            task.add_done_callback(self._disposals.discard)

        if isinstance(error, StillRunning):
            error.work.add_done_callback(lambda _: loop.call_soon_threadsafe(close))
        else:
            close()

    async def _close(self, service: EnvService, world: Env) -> None:
        """Close a world, however long all threads are taken: what it holds is its server's to give back."""
        while True:
            try:
                return await self.run(service, world.close())
            except NotStarted:
                continue
