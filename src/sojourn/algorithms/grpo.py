"""GRPO (arXiv 2402.03300) and the switches that later work put on it, each by its own name."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from sojourn.algorithms.advantages import group_relative, uninformative
from sojourn.algorithms.base import Advantages, Algorithm, AlgorithmConfig, Episodes, LossInputs, LossOutput
from sojourn.algorithms.losses import (
    Aggregation,
    KLEstimator,
    clipped_policy_loss,
    kl_estimate,
    log_ratio,
    token_weights,
    truncated_importance,
)

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "grpo_paper": {
        "normalise_std": True,
        "loss_aggregation": "sequence_mean",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "tis_cap": None,
        "kl_coef": 0.04,
        "truncated": "fail",
        "drop_zero_advantage": False,
    },
    "agentgym_rl": {
        "normalise_std": True,
        "loss_aggregation": "sequence_mean",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "tis_cap": None,
        "kl_coef": 0.001,
        "entropy_coef": 0.001,
        "truncated": "fail",
        "drop_zero_advantage": False,
    },
}
"""`grpo_paper`: DeepSeekMath's equation 3 and its beta. `agentgym_rl`: the published scripts of arXiv 2509.08755."""


class GRPOConfig(AlgorithmConfig):
    """The default is what multi-turn systems settled on; `preset` swaps defaults, keys that are given win over it."""

    name: Literal["grpo"] = "grpo"
    preset: Literal["default", "grpo_paper", "agentgym_rl"] = "default"
    normalise_std: bool = False
    """Divide a group's advantages by their standard deviation."""
    std_eps: float = Field(default=1e-6, gt=0)
    loss_aggregation: Aggregation = "constant"
    loss_constant: float = Field(default=256.0, gt=0)
    """Tokens; the divisor of `constant`, about the action tokens of a long episode."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.28, gt=0)
    dual_clip: float | None = Field(default=None, gt=1)
    old_logprobs: Literal["recompute", "rollout"] = "recompute"
    """What ratios are taken against: the trainer's own scores before the update, or the engine's as sampled."""
    tis_cap: float | None = Field(default=2.0, gt=0)
    """Cap of the importance weight pi_old / pi_rollout; null: none. It is 1 throughout when `old_logprobs: rollout`."""
    kl_coef: float = Field(default=0.0, ge=0)
    """Weight of the KL to the start policy in the loss; 0: no reference policy is held."""
    kl_estimator: KLEstimator = "k3"
    entropy_coef: float = Field(default=0.0, ge=0)
    truncated: Literal["mask", "fail"] = "mask"
    """An episode that was cut without success: it counts in its group's mean either way; `mask` keeps it out of the
    loss (truncated is not failed), `fail` trains it as the reward says."""
    drop_zero_advantage: bool = True
    """Leave groups of equal returns out of the update (and out of its averages)."""

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, data: Any) -> Any:
        return {**PRESETS.get(str(data.get("preset")), {}), **data} if isinstance(data, dict) else data


class GRPO(Algorithm[GRPOConfig]):
    """Critic-free policy gradient: an episode's advantage is its return relative to its group's mean.

    The whole episode's advantage goes to each of its action tokens. Left out of the paper: process rewards, and the
    iterative refresh of the reference policy.
    """

    Config: ClassVar[type[AlgorithmConfig]] = GRPOConfig

    def __init__(self, config: GRPOConfig) -> None:
        super().__init__(config)
        self.needs_reference = config.kl_coef > 0
        self.needs_entropy_grad = config.entropy_coef > 0
        self.needs_old_logprobs = config.old_logprobs == "recompute"

    def advantages(self, episodes: Episodes) -> Advantages:
        config = self.config
        per_trajectory = group_relative(
            episodes.returns, episodes.group, normalise_std=config.normalise_std, eps=config.std_eps
        )
        keep = torch.ones_like(episodes.truncated)
        if config.truncated == "mask":
            keep &= ~episodes.truncated
        if config.drop_zero_advantage:
            keep &= ~uninformative(episodes.returns, episodes.group)
        return Advantages(per_trajectory[episodes.trajectory].float(), keep)

    def weights(self, trajectory: Tensor) -> Tensor:
        return token_weights(trajectory, self.config.loss_aggregation, constant=self.config.loss_constant)

    def loss(self, tokens: LossInputs) -> LossOutput:
        config = self.config
        delta = log_ratio(tokens.logprobs, tokens.old_logprobs)
        ratio = delta.exp()
        surrogate = clipped_policy_loss(
            ratio, tokens.advantages, clip_low=config.clip_low, clip_high=config.clip_high, dual_clip=config.dual_clip
        )
        sums = {
            "policy/kl": (ratio - 1 - delta).detach().sum(),
            "policy/clip_fraction": _clipped(ratio, tokens.advantages, config).float().sum(),
        }
        if config.tis_cap is not None:
            importance = truncated_importance(tokens.old_logprobs, tokens.rollout_logprobs, config.tis_cap)
            surrogate = surrogate * importance
            sums["policy/importance"] = importance.sum()
        loss = surrogate
        if config.kl_coef:
            assert tokens.ref_logprobs is not None
            divergence = kl_estimate(config.kl_estimator, tokens.logprobs, tokens.ref_logprobs)
            loss = loss + config.kl_coef * divergence
            sums["policy/ref_kl"] = divergence.detach().sum()
        if config.entropy_coef:
            assert tokens.entropy is not None
            loss = loss - config.entropy_coef * tokens.entropy
        return LossOutput((loss * tokens.weights).sum(), sums)


def _clipped(ratio: Tensor, advantages: Tensor, config: GRPOConfig) -> Tensor:
    above = (ratio > 1 + config.clip_high) & (advantages > 0)
    below = (ratio < 1 - config.clip_low) & (advantages < 0)
    return above | below
