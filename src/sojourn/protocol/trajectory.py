"""Episodes as data: why they stopped, the tree of token segments, turns, and groups of one task.

A trajectory is a tree of `Segment`s: usually one chain that only ever grows, and a branch where history was rewritten
(stripped thinking, a bounded window) or the world was forked. Training rows are derived from it when batching.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1


class StopReason(StrEnum):
    """Why an episode ended."""

    COMPLETED = "completed"
    ENV_TRUNCATED = "env_truncated"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    CONTEXT_OVERFLOW = "context_overflow"
    EARLY_STOP = "early_stop"
    ENV_ERROR = "env_error"
    ENGINE_ERROR = "engine_error"
    TIMEOUT = "timeout"

    @property
    def is_error(self) -> bool:
        """An infrastructure failure: never trained, never scored."""
        return self in {StopReason.ENV_ERROR, StopReason.ENGINE_ERROR, StopReason.TIMEOUT}

    @property
    def is_cut_by_horizon(self) -> bool:
        """The curriculum's cap ended it."""
        return self is StopReason.MAX_TURNS

    @property
    def is_cut_by_tokens(self) -> bool:
        """A budget of tokens ended it."""
        return self in {StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW}

    @property
    def is_truncated(self) -> bool:
        """A bound ended it before the world had given its verdict.

        Not what the policy ended itself by saying again what was refused (`EARLY_STOP`): that has failed.
        """
        return self in {
            StopReason.ENV_TRUNCATED,
            StopReason.MAX_TURNS,
            StopReason.MAX_TOKENS,
            StopReason.CONTEXT_OVERFLOW,
        }


@dataclass(slots=True)
class Segment:
    """Tokens appended in one piece: a prompt, an observation or a completion."""

    parent: int | None
    """Index of the segment before it in the trajectory; None for a root."""
    ids: list[int]
    mask: list[int]
    """1 where the token was sampled by the policy.  # [T]"""
    logprobs: list[float]
    """Behaviour log-probability; 0 where the mask is 0.  # [T]"""
    turn: int
    """The turn it belongs to; an opening prompt and observation have turn 0."""
    policy_version: int | None = None
    """Version of the weights that sampled it; None for text that was given."""


@dataclass(slots=True)
class Turn:
    """One exchange: what the policy said, what was done, what the world answered."""

    text: str
    """The completion, decoded for people."""
    thought: str
    action: str | None
    """None when no action could be parsed; the environment was then not stepped."""
    observation: str
    reward: float
    invalid: bool
    """The action could not be parsed or was refused by the world."""
    segment: int
    """Index of the completion's segment."""
    info: dict[str, Any] = field(default_factory=dict)
    generate_s: float = 0.0
    step_s: float = 0.0


@dataclass(slots=True)
class Trajectory:
    """One episode of one policy in one world."""

    episode_id: str
    group_id: str
    task: str
    family: str
    seed: int | None
    horizon: int
    env: str
    env_version: str
    engine: str
    view: str
    segments: list[Segment] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    opening: str = ""
    """The observation that `reset` gave."""
    stop: StopReason = StopReason.COMPLETED
    score: float = 0.0
    success: bool = False
    parent_id: str | None = None
    """Episode this one was forked from."""
    fork_turn: int | None = None
    attempt: int = 0
    sibling: int = 0
    error: str | None = None
    engine_version: str = ""
    """Of the engine's software."""
    snapshots: list[str] = field(default_factory=list)
    started: float = 0.0
    """Unix seconds."""
    seconds: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def reward(self) -> float:
        """Sum of the turns' rewards."""
        return sum(t.reward for t in self.turns)

    def leaves(self) -> list[int]:
        """Indices of segments that nothing follows; each ends one training row."""
        parents = {s.parent for s in self.segments}
        return [i for i in range(len(self.segments)) if i not in parents]

    def chain(self, leaf: int) -> list[int]:
        """Indices from the root to `leaf`."""
        path: list[int] = []
        node: int | None = leaf
        while node is not None:
            path.append(node)
            node = self.segments[node].parent
        return path[::-1]


@dataclass(slots=True)
class TrajectoryGroup:
    """G trajectories of one task; advantages are relative to it."""

    group_id: str
    task: str
    trajectories: list[Trajectory]
    dropped: int = 0
    """Episodes lost to infrastructure after retries; counted, never trained."""
