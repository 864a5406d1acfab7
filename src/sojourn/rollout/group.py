"""Groups: G trajectories of one task, and many groups at once without a barrier between turns.

A group may be a tree (`tree`): some of its episodes then go on from the middle of others, share their tokens and train
only their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from sojourn.protocol.trajectory import Trajectory, TrajectoryGroup
from sojourn.rollout.branching import Branching
from sojourn.rollout.episode import run_episode
from sojourn.rollout.lockstep import Lockstep
from sojourn.rollout.player import Player, stable_hash
from sojourn.rollout.tree import Node, Scout, Start, Tree, branch

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupPlan:
    """What one group is to play."""

    env: str
    task: str
    family: str
    view: str
    horizon: int
    group_id: str
    """Unique in the run and the same in a resumed one: random draws depend on it."""
    size: int
    env_seed: int | None = None
    init: dict[str, Any] | None = None
    branching: Branching | None = None
    """How the group is a tree; None: each episode plays from the start."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a group of {self.size} episodes is none")
        if self.branching and self.branching.size != self.size:
            raise ValueError(f"a group of {self.size} episodes cannot branch into {self.branching.size}")


async def collect_group(player: Player, plan: GroupPlan) -> TrajectoryGroup:
    """Play one group to its end; episodes lost to infrastructure are dropped and counted."""
    return await _Group(plan, _Free(player)).run()


async def collect(
    player: Player, plans: Sequence[GroupPlan], *, concurrency: int, deterministic: bool = False
) -> AsyncIterator[TrajectoryGroup]:
    """Play groups, at most `concurrency` episodes at a time.

    Groups come as they finish. With `deterministic`, waves of plans (as many as fit `concurrency`, at least one) play
    in lock-step through `Engine.generate_batch`, and groups come in the order of their plans.
    Leaving the iteration early cancels what still plays and closes its sessions.
    """
    if concurrency < 1:
        raise ValueError(f"a concurrency of {concurrency} plays nothing")
    if deterministic:
        for wave in _waves(list(enumerate(plans)), concurrency):
            async for group in _play_wave(player, wave):
                yield group
        return
    slots = asyncio.Semaphore(concurrency)
    async with _Tasks() as tasks:
        for plan in plans:
            tasks.start(_Group(plan, _Free(player, slots)).run())
        while tasks.running:
            for group in await tasks.finished():
                yield group


def _waves(plans: Sequence[tuple[int, GroupPlan]], concurrency: int) -> list[list[tuple[int, GroupPlan]]]:
    """Consecutive plans whose episodes fit together."""
    waves: list[list[tuple[int, GroupPlan]]] = []
    room = 0
    for place, plan in plans:
        if not waves or plan.size > room:
            waves.append([])
            room = concurrency
        waves[-1].append((place, plan))
        room -= plan.size
    return waves


async def _play_wave(player: Player, wave: Sequence[tuple[int, GroupPlan]]) -> AsyncIterator[TrajectoryGroup]:
    table = Lockstep(player.engine, deadline_s=player.limits.generate_deadline_s)
    groups = [_Group(plan, _Seated(player, table, place)) for place, plan in wave]
    try:
        async with _Tasks() as tasks:
            running = [tasks.start(group.run()) for group in groups]
            for task in running:
                yield await tasks.result(task)
    finally:
        await table.aclose()


class _Seating(Protocol):
    """How the episodes of a group come by their engine, and when they may play."""

    def take(self, sibling: int) -> Player:
        """At once: lock-step counts who is live."""
        ...

    def leave(self, player: Player) -> None: ...

    def slot(self) -> AbstractAsyncContextManager[Any]: ...


class _Free:
    """Everybody draws when they are ready, bounded by slots, given out first come, first served."""

    def __init__(self, player: Player, slots: asyncio.Semaphore | None = None) -> None:
        self._player, self._slots = player, slots

    def take(self, sibling: int) -> Player:
        return self._player

    def leave(self, player: Player) -> None:
        """Nobody waits for anybody."""

    def slot(self) -> AbstractAsyncContextManager[Any]:
        return self._slots or nullcontext()


class _Seated:
    """Everybody sits at one table of a wave."""

    def __init__(self, player: Player, table: Lockstep, place: int) -> None:
        # the table has its own deadline: waiting for the others is not the engine's slowness
        self._player = replace(player, limits=player.limits.model_copy(update={"generate_deadline_s": None}))
        self._table, self._place = table, place

    def take(self, sibling: int) -> Player:
        return replace(self._player, engine=self._table.seat((self._place, sibling)))

    def leave(self, player: Player) -> None:
        player.engine.leave()  # type: ignore[attr-defined]

    def slot(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext()


class _Group:
    """One group in play. Seats are taken at construction, so that a wave is complete before its first batch."""

    def __init__(self, plan: GroupPlan, seating: _Seating) -> None:
        self.plan, self._seating = plan, seating
        self._done: list[Trajectory] = []
        first = plan.size if plan.branching is None else plan.branching.trees
        self._players = [seating.take(sibling) for sibling in range(first)]

    async def run(self) -> TrajectoryGroup:
        branching = self.plan.branching
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for sibling, player in enumerate(self._players):
                    tree = Tree(branching, sibling) if branching else None
                    tasks.create_task(self._episode(player, sibling, tree))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        played = sorted(self._done, key=lambda t: t.sibling)
        kept = [t for t in played if not t.stop.is_error]
        for lost in played:
            if lost.stop.is_error:
                _log.warning("%s dropped after %d attempts: %s", lost.episode_id, lost.attempt + 1, lost.error)
        return TrajectoryGroup(self.plan.group_id, self.plan.task, kept, dropped=len(played) - len(kept))

    async def _episode(self, player: Player, sibling: int, tree: Tree | None, node: Node | None = None) -> None:
        plan = self.plan
        scout = self._scout(player, sibling, tree) if tree else None
        try:
            async with self._seating.slot():
                trajectory = await run_episode(
                    player,
                    plan.env,
                    plan.task,
                    horizon=plan.horizon,
                    group_id=plan.group_id,
                    sibling=sibling,
                    view=plan.view,
                    env_seed=plan.env_seed,
                    init=plan.init,
                    prefix=branch(node) if node else None,
                    snapshot=node.snapshot if node else None,
                    after_turn=scout,
                )
            self._done.append(trajectory)
            if tree:
                self._begin(tree, tree.ended(scout.nodes if scout else ()))
        finally:
            self._seating.leave(player)

    def _scout(self, player: Player, sibling: int, tree: Tree) -> Scout | None:
        plan = self.plan

        def chance(turns: int) -> float:
            key = player.key(plan.env, plan.task, plan.group_id, sibling, turns)
            return stable_hash(f"branch/{key}") / 2**63

        def decided(scout: Scout) -> None:
            self._begin(tree, tree.decided(scout.nodes))
            scout.nodes = []

        return tree.scout(chance, decided)

    def _begin(self, tree: Tree, starts: Sequence[Start]) -> None:
        """Begin episodes of a tree, before whoever caused it leaves: lock-step must not draw without them."""
        for sibling, node in starts:
            self._tasks.create_task(self._episode(self._seating.take(sibling), sibling, tree, node))


class _Tasks:
    """Tasks that never outlive their block."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self.running.add(task)
        return task

    async def finished(self) -> list[Any]:
        """Results of the tasks that end next; raises what one of them raised."""
        done, others = await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
        found = [task.result() for task in done]
        self.running = others  # not before: what failed beside the first is then heard of in the end
        return found

    async def result(self, task: asyncio.Task[T]) -> T:
        """The result of one task, or what another raised meanwhile."""
        while not task.done():
            done, _ = await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
            for other in done:
                other.result()
            self.running -= done
        return task.result()

    async def __aenter__(self) -> _Tasks:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
