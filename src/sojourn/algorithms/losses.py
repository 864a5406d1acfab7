"""Token losses and their aggregation, as pure functions on flat action tokens."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sojourn.algorithms.advantages import compact

Aggregation = Literal["sequence_mean", "token_mean", "constant"]
KLEstimator = Literal["k1", "k2", "k3"]
RatioLevel = Literal["token", "turn", "sequence"]

LOG_RATIO_LIMIT = 20.0
"""Log-ratios beyond this are clamped: a ratio never overflows, and such a token has no gradient of its own."""
REF_LOG_RATIO_LIMIT = 10.0
"""The same for the reference policy: a token's k3 is at most e^10 - 11, and a k1 in the reward at most 10 nats."""


def token_weights(trajectory: Tensor, how: Aggregation, *, constant: float) -> Tensor:
    """Weight of each token in a minibatch's loss; the loss is then a plain weighted sum.

    With N trajectories, of which a token's own has n tokens, and M tokens in all: `sequence_mean` gives 1/(N n), so
    that every trajectory counts alike (GRPO); `token_mean` gives 1/M (DAPO); `constant` gives 1/(N constant), so that
    a long episode is not attenuated (Dr. GRPO).

    Args:
        trajectory: index of each token's trajectory; rows of one trajectory share it.  # [M]
        how: which of the three.
        constant: tokens; the divisor of `constant`.

    Returns:
        Weights.  # [M]
    """
    tokens = trajectory.numel()
    if not tokens:
        return torch.zeros(0, device=trajectory.device)
    counts = torch.bincount(trajectory)
    trajectories = int((counts > 0).sum())
    if how == "token_mean":
        return torch.full((tokens,), 1.0 / tokens, device=trajectory.device)
    if how == "constant":
        return torch.full((tokens,), 1.0 / (trajectories * constant), device=trajectory.device)
    return torch.reciprocal(trajectories * counts[trajectory].float())


def log_ratio(logprobs: Tensor, old_logprobs: Tensor, limit: float = LOG_RATIO_LIMIT) -> Tensor:
    """log(pi / pi_old), clamped to +-`limit`.  # [M]"""
    return (logprobs - old_logprobs).clamp(-limit, limit)


def pooled_log_ratio(logprobs: Tensor, old_logprobs: Tensor, unit: Tensor) -> Tensor:
    """GSPO's ratio (arXiv 2507.18071): the mean of the log-ratios of a unit's tokens, the same for each of them.

    The gradient of a token's ratio is that of its own log-probability (the paper's GSPO-token): with equal advantages
    in a unit the sum is GSPO's gradient, and tokens may differ in their advantages.

    Args:
        logprobs: # [M]
        old_logprobs: # [M]
        unit: index of each token's unit (its turn, or its row); all tokens of a unit are here.  # [M]

    Returns:
        Log-ratios.  # [M]
    """
    delta = log_ratio(logprobs, old_logprobs).detach()
    index = compact(unit)
    counts = index.bincount()
    mean = delta.new_zeros(len(counts)).index_add(0, index, delta) / counts
    return mean[index] + logprobs - logprobs.detach()


def clipped_policy_loss(
    ratio: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """PPO's clipped surrogate, negated: max(-r A, -clip(r, 1 - low, 1 + high) A).

    Args:
        ratio: pi / pi_old.  # [M]
        advantages: # [M]
        clip_low: lower clip, as a distance from 1.
        clip_high: upper clip; larger than `clip_low` in DAPO's clip-higher.
        dual_clip: where the advantage is negative, the loss is at most this times its size (arXiv 1912.09729).

    Returns:
        Loss of each token.  # [M]
    """
    loss = torch.max(-ratio * advantages, -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    if dual_clip is None:
        return loss
    return torch.where(advantages < 0, torch.min(loss, -dual_clip * advantages), loss)


def cispo_loss(ratio: Tensor, logprobs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """CISPO (arXiv 2506.13585): -sg(clip(r, 1 - low, 1 + high)) A log pi; the weight is clipped, the gradient is not.

    Returns:
        Loss of each token.  # [M]
    """
    return -ratio.clamp(1 - clip_low, 1 + clip_high).detach() * advantages * logprobs


def truncated_importance(
    old_logprobs: Tensor, rollout_logprobs: Tensor, cap: float, *, floor: float | None = None
) -> Tensor:
    """Importance weight w = pi_old / pi_rollout, detached: corrects for an engine whose numerics are not the trainer's.

    Args:
        old_logprobs: # [M]
        rollout_logprobs: # [M]
        cap: w is at most this (truncated importance sampling).
        floor: if given, a token whose w lies outside [floor, cap] is left out instead (IcePop's mask).

    Returns:
        min(w, cap), or w within the bounds and 0 beyond them.  # [M]
    """
    weight = log_ratio(old_logprobs, rollout_logprobs).exp().detach()
    if floor is None:
        return weight.clamp(max=cap)
    return weight * ((weight >= floor) & (weight <= cap))


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, *, clip: float | None) -> Tensor:
    """Half the squared error of the critic, the larger of that of its value and of its value clipped to the old one.

    Args:
        values: carry the gradient.  # [M]
        old_values: before the update.  # [M]
        returns: targets.  # [M]
        clip: a value counts as moved by at most this; None: no limit.

    Returns:
        Loss of each token.  # [M]
    """
    error = (values - returns) ** 2
    if clip is None:
        return 0.5 * error
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.max(error, (clipped - returns) ** 2)


def kl_estimate(kind: KLEstimator, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Per-token estimate of KL(pi || ref) from samples of pi: k1, k2 or k3 (http://joschu.net/blog/kl-approx.html).

    As a loss, k1 has a gradient of mean zero; k2 and k3 pull towards the reference.  # [M]
    """
    delta = log_ratio(logprobs, ref_logprobs, REF_LOG_RATIO_LIMIT)
    if kind == "k1":
        return delta
    if kind == "k2":
        return 0.5 * delta**2
    return torch.exp(-delta) + delta - 1
