"""Advantage estimators: rewards in, numbers per trajectory out. Computed in double precision, on few numbers."""

from __future__ import annotations

import torch
from torch import Tensor


def uninformative(returns: Tensor, group: Tensor) -> Tensor:
    """Whether all returns of a trajectory's group are equal (so is a group of one).

    Args:
        returns: return of each trajectory.  # [N]
        group: index of its group, 0..K-1.  # [N]

    Returns:
        Boolean.  # [N]
    """
    groups = _count(group)
    low = returns.new_full((groups,), torch.inf).scatter_reduce(0, group, returns, "amin")
    high = returns.new_full((groups,), -torch.inf).scatter_reduce(0, group, returns, "amax")
    return (low == high)[group]


def group_relative(returns: Tensor, group: Tensor, *, normalise_std: bool, eps: float = 1e-6) -> Tensor:
    """GRPO: the return less the group's mean, divided by the group's (unbiased) standard deviation plus `eps` or not.

    A group of equal returns and a group of one get exactly 0, whatever the rounding of their mean.

    Args:
        returns: return of each trajectory.  # [N]
        group: index of its group, 0..K-1.  # [N]
        normalise_std: divide by the standard deviation.
        eps: added to the standard deviation.

    Returns:
        Advantages, in double precision.  # [N]
    """
    returns = returns.double()
    groups = _count(group)
    size = returns.new_zeros(groups).index_add(0, group, torch.ones_like(returns))
    mean = returns.new_zeros(groups).index_add(0, group, returns) / size.clamp(min=1)
    advantages = returns - mean[group]
    if normalise_std:
        squares = returns.new_zeros(groups).index_add(0, group, advantages**2)
        advantages = advantages / ((squares / (size - 1).clamp(min=1)).sqrt()[group] + eps)
    return advantages.masked_fill(uninformative(returns, group), 0.0)


def _count(group: Tensor) -> int:
    return int(group.max()) + 1 if group.numel() else 0
