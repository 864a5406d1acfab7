"""What an algorithm is: two pure functions on tensors, advantages and loss, and a config beside them.

Action tokens travel flat: every tensor marked [M] holds one entry per sampled token of a step (or of a micro-batch), in
the order of the training rows, so that nothing is padded and a micro-batch is a mere selection. No algorithm does I/O
and the trainer does not know which one runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from torch import Tensor


class AlgorithmConfig(BaseModel):
    """Options of one algorithm; `name` says which."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str


@dataclass(frozen=True, slots=True)
class Episodes:
    """A step's episodes as an estimator sees them: N trajectories in groups, M action tokens in rows."""

    rewards: Tensor
    """Reward that a token brought: its turn's, on the turn's last action token; 0 elsewhere.  # [M]"""
    trajectory: Tensor
    """Index of the token's trajectory.  # [M]"""
    row: Tensor
    """Index of the token's training row; a trajectory that branched has several.  # [M]"""
    turn: Tensor
    """Number of the token's turn within its trajectory.  # [M]"""
    group: Tensor
    """Index of the trajectory's group.  # [N]"""
    returns: Tensor
    """Sum of the episode's rewards, turns before a fork included.  # [N]"""
    truncated: Tensor
    """It stopped before the world had given its verdict, and without success.  # [N]"""


@dataclass(frozen=True, slots=True)
class Advantages:
    """What an estimator makes of the episodes."""

    tokens: Tensor
    """Advantage of each action token.  # [M]"""
    keep: Tensor
    """Whether a trajectory takes part in the update at all.  # [N]"""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The action tokens of one micro-batch."""

    logprobs: Tensor
    """Under the policy in training; carries the gradient.  # [M]"""
    old_logprobs: Tensor
    """Under the policy that the ratio is taken against, fixed for the step.  # [M]"""
    rollout_logprobs: Tensor
    """As the engine reported them when it sampled.  # [M]"""
    advantages: Tensor
    """# [M]"""
    weights: Tensor
    """Share of each token in the minibatch's loss, from `Algorithm.weights`.  # [M]"""
    entropy: Tensor | None = None
    """Of the distribution at each token, in nats; carries a gradient where the algorithm asks for it.  # [M]"""
    ref_logprobs: Tensor | None = None
    """Under the frozen reference policy.  # [M]"""


@dataclass(frozen=True, slots=True)
class LossOutput:
    """A scalar to differentiate, and sums over tokens to report."""

    loss: Tensor
    """The micro-batch's part of the minibatch's loss: parts add up, however a minibatch is split.  # []"""
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Metric name to its sum over the micro-batch's tokens (detached).  # each []"""


C = TypeVar("C", bound=AlgorithmConfig)


class Algorithm(ABC, Generic[C]):
    """A method of policy optimisation. One file each; see `registry`."""

    Config: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig

    needs_reference: bool = False
    """A frozen copy of the start policy must be held and scored."""
    needs_entropy_grad: bool = False
    """The loss differentiates the entropy."""
    needs_old_logprobs: bool = False
    """The trainer must score the step's tokens before the first update (else the engine's log-probabilities serve)."""

    def __init__(self, config: C) -> None:
        self.config = config

    @abstractmethod
    def advantages(self, episodes: Episodes) -> Advantages:
        """Advantage of each action token, and which trajectories are trained."""

    @abstractmethod
    def weights(self, trajectory: Tensor) -> Tensor:
        """Share of each token in the loss of a whole minibatch.

        Args:
            trajectory: index of each token's trajectory, over the minibatch.  # [M]

        Returns:
            Non-negative weights.  # [M]
        """

    @abstractmethod
    def loss(self, tokens: LossInputs) -> LossOutput:
        """The weighted sum of the token losses of one micro-batch."""
