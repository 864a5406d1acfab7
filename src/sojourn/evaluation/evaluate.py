"""Play a fixed set of episodes at a fixed horizon. The same seed gives the same episodes and the same random draws, so
that two policies are compared episode by episode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sojourn.evaluation.report import EpisodeResult, Evaluation
from sojourn.evaluation.tasks import EvalTask
from sojourn.protocol.errors import TransportError
from sojourn.protocol.trajectory import Trajectory, TrajectoryGroup
from sojourn.rollout.group import GroupPlan, collect
from sojourn.rollout.player import Player
from sojourn.rollout.recorder import Recorder


async def evaluate(
    player: Player,
    tasks: Sequence[EvalTask],
    *,
    horizon: int | Mapping[str, int] | None = None,
    concurrency: int = 256,
    deterministic: bool = False,
    seed: int = 0,
    record: Path | None = None,
    before_again: Callable[[], Awaitable[object]] | None = None,
) -> Evaluation:
    """Play `tasks` once each; those lost to infrastructure are played once more, with the same draws.

    Args:
        player: who plays; its `run_seed` is replaced by `seed`.
        horizon: turns of an episode (by environment); None: the environments' published ones.
        concurrency: episodes in flight.
        deterministic: fixed batches in a fixed order.
        seed: of the random draws.
        record: a directory to record the episodes in.
        before_again: awaited before lost episodes are played once more; where a caller waits for servers.

    Raises:
        TransportError: every episode was lost to infrastructure, twice.
    """
    player = replace(player, run_seed=seed)
    version = player.engine.policy_version
    turns = await _horizons(player, tasks, horizon)
    plans = [GroupPlan(t.env, t.task, t.family, t.view, turns[t.env], f"eval/{t.key}", 1, init=t.init) for t in tasks]
    groups: dict[str, TrajectoryGroup] = {}
    left = plans
    for again in (False, True):
        if again and left and before_again is not None:
            await before_again()
        async for group in collect(player, left, concurrency=concurrency, deterministic=deterministic):
            groups[group.group_id] = group
        left = [plan for plan in left if not groups[plan.group_id].trajectories]
    if plans and len(left) == len(plans):
        raise TransportError("every episode of the evaluation was lost to infrastructure, twice")
    ordered = [groups[plan.group_id] for plan in plans]
    if record is not None:
        Recorder(record).write(version, ordered, split="eval")
    return Evaluation(
        engine=player.engine.name,
        policy_version=version,
        horizon=turns,
        seed=seed,
        results=[_result(task, group.trajectories) for task, group in zip(tasks, ordered, strict=True)],
    )


async def _horizons(
    player: Player, tasks: Sequence[EvalTask], horizon: int | Mapping[str, int] | None
) -> dict[str, int]:
    turns: dict[str, int] = {}
    for env in dict.fromkeys(task.env for task in tasks):
        if isinstance(horizon, int):
            turns[env] = horizon
        elif horizon is not None and env in horizon:
            turns[env] = horizon[env]
        else:
            turns[env] = (await player.envs.spec(env)).default_horizon
    return turns


def _result(task: EvalTask, played: Sequence[Trajectory]) -> EpisodeResult:
    asked = EpisodeResult(
        key=task.key, env=task.env, task=task.task, family=task.family, init=task.init or None, stop="error", error=True
    )
    if not played:
        return asked
    episode = played[0]
    return EpisodeResult(
        key=task.key,
        env=task.env,
        task=episode.task,
        family=episode.family,
        init=asked.init,
        success=episode.success,
        score=episode.score,
        turns=len(episode.turns),
        stop=episode.stop.value,
    )
