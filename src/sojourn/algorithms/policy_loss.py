"""The policy loss that the on-policy methods share, with every switch of the literature by its name."""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from sojourn.algorithms.base import AlgorithmConfig, LossInputs, LossOutput
from sojourn.algorithms.losses import (
    Aggregation,
    KLEstimator,
    RatioLevel,
    cispo_loss,
    clipped_policy_loss,
    kl_estimate,
    log_ratio,
    pooled_log_ratio,
    truncated_importance,
)


class PolicyLossConfig(AlgorithmConfig):
    """The switches that methods share. The defaults are what multi-turn systems settled on."""

    objective: Literal["clip", "cispo", "reinforce"] = "clip"
    """`clip`: PPO's clipped surrogate. `cispo`: clips the weight of the gradient, never the gradient. `reinforce`: no
    ratio at all, for one update on what was just sampled."""
    ratio_level: RatioLevel = "token"
    """What a ratio is taken of: each token, or the geometric mean of its turn's tokens or (GSPO) of its row's."""
    clip_low: float = Field(default=0.2, gt=0, le=1)
    """Lower clip of a ratio, as a distance from 1; 1 is none."""
    clip_high: float = Field(default=0.28, gt=0)
    """Upper clip; above `clip_low` it is DAPO's clip-higher."""
    dual_clip: float | None = Field(default=None, gt=1)
    """Where the advantage is negative, a ratio counts at most this; null: no limit."""
    loss_aggregation: Aggregation = "constant"
    """`sequence_mean` weighs episodes alike, `token_mean` tokens alike, `constant` divides
    the sum by the number of episodes and by `loss_constant`: no length is favoured."""
    loss_constant: float = Field(default=256.0, gt=0)
    """Tokens; the divisor of `constant`, about the action tokens of a long episode."""
    old_logprobs: Literal["recompute", "rollout"] = "recompute"
    """What ratios are taken against: the trainer's own scores before the update, or the engine's as sampled."""
    tis_cap: float | None = Field(default=2.0, gt=0)
    """Cap of the importance weight pi_old / pi_rollout; null: none. It is 1 throughout when `old_logprobs: rollout`."""
    tis_floor: float | None = Field(default=None, gt=0)
    """If given, a token whose importance weight lies outside [tis_floor, tis_cap] is left out (IcePop's mask)."""
    kl_coef: float = Field(default=0.0, ge=0)
    """Weight of the KL to the start policy; 0: no reference policy is held."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where it is charged: in the loss, or to each token's reward before advantages are taken."""
    kl_estimator: KLEstimator = "k3"
    """With d = log pi - log pi_ref: `k1` d, `k2` d^2 / 2, `k3` e^-d + d - 1."""
    kl_target: float | None = Field(default=None, gt=0)
    """Nats a token: `kl_coef` then follows the KL to this target (Ziegler et al. 2019); null: it stays."""
    kl_horizon: float = Field(default=10_000.0, gt=0)
    """Episodes over which an adaptive `kl_coef` changes by up to a fifth."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus: so many times a token's entropy is taken off its loss."""
    truncated: Literal["mask", "mask_overlong", "fail"] = "mask"
    """An episode that was cut without success: it counts in its group's baseline either way; `mask` keeps it out of the
    loss (truncated is not failed), `mask_overlong` does so only if a budget of tokens cut it (DAPO's overlong
    filtering), `fail` trains it as the reward says."""
    drop_zero_advantage: bool = True
    """Leave groups without any advantage out of the update and of its averages (DAPO's dynamic sampling)."""
    normalise_by_env: bool = False
    """Divide advantages by their standard deviation within each environment, so that none of a mixture drowns the
    others; methods that whiten over the batch whiten within each environment instead."""

    @model_validator(mode="after")
    def _switches_agree(self) -> Self:
        if self.kl_target is not None and not self.kl_coef:
            raise ValueError("kl_target needs a kl_coef above 0 to start from")
        if self.tis_floor is not None and (self.tis_cap is None or self.tis_floor >= self.tis_cap):
            raise ValueError(f"tis_floor {self.tis_floor} needs a tis_cap above it")
        if self.objective == "reinforce" and self.ratio_level != "token":
            raise ValueError(f"objective reinforce takes no ratio: ratio_level {self.ratio_level} has no meaning")
        return self


def policy_loss(tokens: LossInputs, config: PolicyLossConfig, kl_coef: float) -> LossOutput:
    """Weighted sum of the token losses of a micro-batch.

    Args:
        tokens: with `ref_logprobs` where `kl_coef` is not 0, and `entropy` where `config.entropy_coef` is not.
        config: the switches.
        kl_coef: weight of the KL to the reference now; charged here if `config.kl_in` is `loss`.
    """
    ratio = _ratio(tokens, config.ratio_level)
    loss = _surrogate(ratio, tokens, config)
    delta = log_ratio(tokens.logprobs, tokens.old_logprobs).detach()
    sums = {
        "policy/kl": (delta.exp() - 1 - delta).sum(),
        "policy/clip_fraction": _clipped(ratio, tokens.advantages, config).float().sum(),
    }
    if config.tis_cap is not None:
        importance = truncated_importance(
            tokens.old_logprobs, tokens.rollout_logprobs, config.tis_cap, floor=config.tis_floor
        )
        loss = loss * importance
        sums["policy/importance"] = importance.sum()
    if kl_coef:
        assert tokens.ref_logprobs is not None
        divergence = kl_estimate(config.kl_estimator, tokens.logprobs, tokens.ref_logprobs)
        if config.kl_in == "loss":
            loss = loss + kl_coef * divergence
        sums["policy/ref_kl"] = divergence.detach().sum()
    if config.entropy_coef:
        assert tokens.entropy is not None
        loss = loss - config.entropy_coef * tokens.entropy
    return LossOutput((loss * tokens.weights).sum(), sums)


def _ratio(tokens: LossInputs, level: RatioLevel) -> Tensor:
    if level == "token":
        return log_ratio(tokens.logprobs, tokens.old_logprobs).exp()
    assert tokens.row is not None
    unit = tokens.row
    if level == "turn":
        assert tokens.turn is not None
        turns = int(tokens.turn.max()) + 1 if tokens.turn.numel() else 1
        unit = unit * turns + tokens.turn
    return pooled_log_ratio(tokens.logprobs, tokens.old_logprobs, unit).exp()


def _surrogate(ratio: Tensor, tokens: LossInputs, config: PolicyLossConfig) -> Tensor:
    low, high = config.clip_low, config.clip_high
    if config.objective == "clip":
        return clipped_policy_loss(ratio, tokens.advantages, clip_low=low, clip_high=high, dual_clip=config.dual_clip)
    if config.objective == "cispo":
        return cispo_loss(ratio, tokens.logprobs, tokens.advantages, clip_low=low, clip_high=high)
    return -tokens.advantages * tokens.logprobs


def _clipped(ratio: Tensor, advantages: Tensor, config: PolicyLossConfig) -> Tensor:
    above, below = ratio > 1 + config.clip_high, ratio < 1 - config.clip_low
    if config.objective == "clip":
        return (above & (advantages > 0)) | (below & (advantages < 0))
    return above | below if config.objective == "cispo" else torch.zeros_like(above)
