"""Scripted trajectories and groups, shaped as the rollout makes them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sojourn.protocol.trajectory import Segment, StopReason, Trajectory, TrajectoryGroup, Turn


def segment(parent: int | None, length: int, turn: int, rng: random.Random, *, said: bool, vocab: int = 271) -> Segment:
    """Random ids; `said` marks them as sampled, with plausible log-probabilities."""
    return Segment(
        parent=parent,
        ids=[rng.randrange(vocab) for _ in range(length)],
        mask=[int(said)] * length,
        logprobs=[-6 * rng.random() if said else 0.0 for _ in range(length)],
        turn=turn,
        policy_version=0 if said else None,
    )


def said(reward: float, at: int) -> Turn:
    """A turn that was paid `reward`, its completion in segment `at`."""
    return Turn(text="Action: go", thought="", action="go", observation="ok", reward=reward, invalid=False, segment=at)


def episode(
    turns: int,
    reward: float,
    rng: random.Random,
    *,
    group: str = "g0",
    sibling: int = 0,
    stop: StopReason = StopReason.COMPLETED,
    family: str = "easy",
    env: str = "textcraft",
) -> Trajectory:
    """A chain: prompt, then a completion and an observation for each turn; the reward comes with the last turn."""
    trajectory = Trajectory(
        episode_id=f"{group}/{sibling}",
        group_id=group,
        task=f"{env}_{group}",
        family=family,
        seed=0,
        horizon=turns,
        env=env,
        env_version="1",
        engine="scripted",
        view="full",
        stop=stop,
        score=reward,
        success=reward >= 1.0,
        sibling=sibling,
    )
    trajectory.segments.append(segment(None, rng.randint(3, 8), 0, rng, said=False))
    for turn in range(turns):
        last = len(trajectory.segments) - 1
        trajectory.segments.append(segment(last, rng.randint(1, 5), turn, rng, said=True))
        trajectory.turns.append(said(reward if turn == turns - 1 else 0.0, last + 1))
        trajectory.segments.append(segment(last + 1, rng.randint(1, 6), turn + 1, rng, said=False))
    return trajectory


def groups(rewards: Sequence[Sequence[float]], seed: int = 0, turns: int = 4) -> list[TrajectoryGroup]:
    """One group for each list of rewards; a failed episode is cut by the horizon."""
    rng = random.Random(seed)
    result = []
    for g, row in enumerate(rewards):
        trajectories = [
            episode(
                rng.randint(1, turns),
                reward,
                rng,
                group=f"g{g}",
                sibling=i,
                stop=StopReason.COMPLETED if reward >= 1 else StopReason.MAX_TURNS,
            )
            for i, reward in enumerate(row)
        ]
        result.append(TrajectoryGroup(f"g{g}", f"textcraft_g{g}", trajectories))
    return result
