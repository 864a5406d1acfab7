"""Episodes of the scripted oracle as trajectories: what supervised fine-tuning and warm starts learn from."""

from __future__ import annotations

import random
import time
from typing import Any, Literal

from sojourn.client.interface import Envs, Session
from sojourn.protocol.env import EnvSpec, Solution, StepResult
from sojourn.protocol.errors import NotSupported, UsageError
from sojourn.protocol.trajectory import Segment, StopReason, Trajectory, Turn
from sojourn.rollout.agent import ActionFormat, Parsed
from sojourn.rollout.failures import persistently
from sojourn.rollout.few_shot import FewShot
from sojourn.rollout.player import Limits, opening
from sojourn.rollout.renderer import Renderer


async def demonstrate(
    envs: Envs,
    renderer: Renderer,
    action_format: ActionFormat,
    env: str,
    task: str,
    *,
    view: str,
    horizon: int,
    rng: random.Random,
    noise: float = 0.0,
    thoughts: bool = True,
    env_seed: int | None = None,
    prompt: Literal["full", "none"] = "none",
    system_prompt: bool = False,
    few_shot: FewShot = (),
    init: dict[str, Any] | None = None,
    limits: Limits | None = None,
) -> Trajectory | None:
    """Play the oracle through one task; anew, with the same draws, when infrastructure fails.

    Args:
        noise: chance at each turn of acting wrongly instead. A wrong turn is played, so that recovery is shown, but its
            tokens are not learnt from.
        thoughts: whether the oracle's reasons are written before its actions.
        horizon: turns after which the demonstration is given up.
        prompt: what precedes the first observation, as for the player that is to learn from it.
        system_prompt: put it in a system message.
        few_shot: example turns before the first observation, behind the instructions.
        init: what the world begins with.
        limits: attempts, and the pauses between them; None: the defaults.

    Returns:
        The successful episode, its oracle turns masked 1; None when there is no solution or it does not fit.

    Raises:
        SojournError: what ended the last attempt, or what no other attempt would mend, such as a format that cannot
            write the world's actions.
    """
    drawn = rng.getstate()

    async def attempt() -> Trajectory | None:
        rng.setstate(drawn)
        spec = await envs.spec(env)
        async with await envs.create(env, task, seed=env_seed, init=init, view=view) as session:
            trajectory = _begin(session, spec, env_seed, horizon, f"{session.task}#{rng.getrandbits(48):012x}")
            messages = opening(
                action_format,
                spec,
                view,
                trajectory.opening,
                prompt=prompt,
                system_prompt=system_prompt,
                few_shot=few_shot,
            )
            _append(trajectory, renderer.open(messages), 0, 0)
            try:
                success = await _play(trajectory, session, renderer, action_format, rng, noise, thoughts)
            except NotSupported:
                return None
        return trajectory if success else None

    return await persistently(limits or Limits(), attempt)


def _begin(session: Session, spec: EnvSpec, env_seed: int | None, horizon: int, name: str) -> Trajectory:
    return Trajectory(
        episode_id=name,
        group_id=session.task,
        task=session.task,
        family=session.family,
        seed=env_seed,
        horizon=horizon,
        env=session.env,
        env_version=spec.version,
        engine="oracle",
        view=session.view,
        opening=session.observation.text,
        started=time.time(),
        extra={"opening_info": dict(session.observation.info)},
    )


async def _play(
    trajectory: Trajectory,
    session: Session,
    renderer: Renderer,
    action_format: ActionFormat,
    rng: random.Random,
    noise: float,
    thoughts: bool,
) -> bool:
    plan = await session.solution()
    position = 0
    for turn in range(trajectory.horizon):
        wrong = await _wrong_action(session, plan, position, rng) if rng.random() < noise else None
        action = wrong or plan.actions[position]
        thought = plan.thoughts[position] if plan.thoughts and thoughts else ""
        text = written(action_format, session.env, thought, action)
        _append(trajectory, renderer.complete(text), turn, 0 if wrong else 1)
        parsed = action_format.parse(text)  # what a policy that wrote this would have done
        assert parsed.action is not None
        result = await session.step(parsed.action)
        trajectory.turns.append(_turn(result, text, parsed, len(trajectory.segments) - 1))
        if result.done:
            trajectory.score = result.info["score"]
            trajectory.success = result.info["success"]
            trajectory.stop = StopReason.COMPLETED
            return trajectory.success
        _append(trajectory, renderer.extend(result.observation, finish="stop"), turn + 1, 0)
        if wrong:
            plan, position = await session.solution(), 0
        else:
            position += 1
    return False


def written(action_format: ActionFormat, env: str, thought: str, action: str) -> str:
    """What a policy would say to act so; raises `UsageError` where the format cannot write the world's actions."""
    try:
        return action_format.render(thought or None, action)
    except ValueError as error:
        raise UsageError(f"solutions of {env} cannot be written in this action format: {error}") from error


async def _wrong_action(session: Session, plan: Solution, position: int, rng: random.Random) -> str | None:
    """Something the agent might do by mistake: a listed action, or a later step of the plan too early."""
    candidates = await session.actions() or plan.actions[position + 1 :]
    candidates = [action for action in candidates if action != plan.actions[position]]
    return rng.choice(candidates) if candidates else None


def _append(trajectory: Trajectory, ids: list[int], turn: int, mask: int) -> None:
    parent = len(trajectory.segments) - 1 if trajectory.segments else None
    trajectory.segments.append(Segment(parent, ids, [mask] * len(ids), [0.0] * len(ids), turn))


def _turn(result: StepResult, text: str, parsed: Parsed, segment: int) -> Turn:
    return Turn(
        text=text,
        thought=parsed.thought,
        action=parsed.action,
        observation=result.observation,
        reward=result.reward,
        invalid=bool(result.info.get("invalid")),
        segment=segment,
        info={"score": result.info["score"], "success": result.info["success"]},
    )
