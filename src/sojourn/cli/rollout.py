"""`sojourn rollout`: play episodes and keep them as recordings, with a model or with the scripted oracle."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.environments import EnvDialect, EnvUrl, TokenFile, environments
from sojourn.cli.evaluate import (
    EnvName,
    Families,
    FewShotFile,
    Format,
    Horizon,
    Init,
    Prompt,
    View,
    spoken,
)
from sojourn.cli.extras import needs
from sojourn.protocol.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sojourn.cli.policy import Policy
    from sojourn.client.interface import Envs
    from sojourn.evaluation.tasks import EvalTask
    from sojourn.protocol.trajectory import TrajectoryGroup


def rollout(
    env: EnvName,
    out: Annotated[
        Path, typer.Option(help="Directory of the recordings; a new shard is added to those that are there.")
    ],
    model: Annotated[
        str, typer.Option("--model", help="Who plays; with --oracle, whose tokens the demonstrations are in.")
    ] = "sojourn-tiny",
    oracle: Annotated[bool, typer.Option("--oracle", help="Play the environment's scripted solutions.")] = False,
    split: Annotated[str, typer.Option(help="Split of the tasks.")] = "train",
    family: Families = None,
    episodes: Annotated[int, typer.Option(min=1, help="Tasks to play.")] = 64,
    group_size: Annotated[int, typer.Option(min=1, help="Episodes of each task.")] = 1,
    fork_turn: Annotated[int | None, typer.Option(min=1, help="Siblings share this many turns.")] = None,
    horizon: Horizon = None,
    view: View = None,
    prompt: Prompt = None,
    action_format: Format = None,
    few_shot: FewShotFile = None,
    init: Init = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 is greedy; the run's, or 1.")] = None,
    seed: Annotated[int, typer.Option(help="Decides tasks and draws.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes in flight.")] = 256,
    env_url: EnvUrl = None,
    env_dialect: EnvDialect = "native",
    token_file: TokenFile = None,
) -> None:
    """Collect recordings: JSONL shards with every token, log-probability and turn."""
    with needs("train"):
        from sojourn.cli.policy import Policy, adjusted, find_policy, tasks_for
    from sojourn.rollout.recorder import Recorder, header, shards

    if oracle and (group_size > 1 or fork_turn is not None):
        raise UsageError("--oracle plays each task once: leave out --group-size and --fork-turn")
    found = find_policy(model)
    said = spoken(env, view, prompt, action_format, few_shot, init)
    manners = adjusted(found.manners, env, **said, temperature=temperature)
    policy = Policy(found.model, manners)
    recorder = Recorder(out)
    step = max((header(path).step + 1 for path in shards(out)), default=0)

    async def run() -> list[TrajectoryGroup]:
        async with environments([env], env_url, token_file, env_dialect) as envs:
            tasks = await tasks_for(manners, envs, env, split=split, episodes=episodes, families=family, seed=seed)
            spec = await envs.spec(env)
            turns = horizon or spec.default_horizon
            if oracle:
                if not spec.solvable:
                    raise UsageError(f"{env} has no scripted solutions there: leave out --oracle")
                return await _demonstrate(envs, policy, tasks, turns, seed)
            return await _play(envs, policy, tasks, turns, seed, group_size, fork_turn, concurrency)

    groups = asyncio.run(run())
    # A file's name: a range of indices is a split, too.
    path = recorder.write(step, groups, split=re.sub("[^a-z0-9_]", "_", split.lower()))
    played = [trajectory for group in groups for trajectory in group.trajectories]
    won = sum(trajectory.success for trajectory in played)
    lost = sum(group.dropped for group in groups)
    print(f"{len(played)} episodes, {won} successful{f', {lost} lost to infrastructure' if lost else ''}: {path}")


async def _play(
    envs: Envs,
    policy: Policy,
    tasks: Sequence[EvalTask],
    horizon: int,
    seed: int,
    group_size: int,
    fork_turn: int | None,
    concurrency: int,
) -> list[TrajectoryGroup]:
    from sojourn.cli.policy import make_player
    from sojourn.rollout.branching import Branching
    from sojourn.rollout.group import GroupPlan, collect

    branching = None if fork_turn is None else Branching.at(fork_turn, group_size)
    player = make_player(policy, envs, temperature=policy.manners.temperature, seed=seed)
    plans = [
        GroupPlan(
            t.env, t.task, t.family, t.view, horizon, f"rollout/{t.key}", group_size, branching=branching, init=t.init
        )
        for t in tasks
    ]
    try:
        return [group async for group in collect(player, plans, concurrency=concurrency)]
    finally:
        await player.engine.close()


async def _demonstrate(
    envs: Envs, policy: Policy, tasks: Sequence[EvalTask], horizon: int, seed: int
) -> list[TrajectoryGroup]:
    with needs("train"):
        from sojourn.engines.models import load_tokenizer
    from sojourn.protocol.trajectory import TrajectoryGroup
    from sojourn.rollout.agent import FORMATS
    from sojourn.rollout.demonstration import demonstrate
    from sojourn.rollout.renderer import Renderer

    renderer, action_format = Renderer(load_tokenizer(policy.model)), FORMATS[policy.manners.format]()
    groups = []
    for task in tasks:
        trajectory = await demonstrate(
            envs,
            renderer,
            action_format,
            task.env,
            task.task,
            view=task.view,
            horizon=horizon,
            rng=random.Random(f"{seed}/{task.key}"),
            prompt=policy.manners.prompt,
            system_prompt=policy.manners.system_prompt,
            few_shot=policy.manners.few_shot.get(task.env, ()),
            init=task.init,
            limits=policy.manners.limits,
        )
        if trajectory is not None:
            groups.append(TrajectoryGroup(trajectory.group_id, task.task, [trajectory]))
    return groups
