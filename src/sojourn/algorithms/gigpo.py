"""GiGPO (arXiv 2505.10978)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from sojourn.algorithms.advantages import compact, group_relative
from sojourn.algorithms.base import AlgorithmConfig, Episodes
from sojourn.algorithms.policy_gradient import Estimate, PolicyGradient
from sojourn.algorithms.policy_loss import PolicyLossConfig
from sojourn.algorithms.returns import Turns, discounted

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "gigpo_paper": {
        "normalise_std": True,
        "loss_aggregation": "token_mean",
        "clip_high": 0.2,
        "tis_cap": None,
        "kl_coef": 0.01,
        "truncated": "fail",
        "drop_zero_advantage": False,
    },
}
"""`gigpo_paper`: both levels divided by their standard deviation, omega 1, gamma .95, k3 with .01, as its authors'
scripts for ALFWorld; their penalty on invalid actions is a reward."""


class GiGPOConfig(PolicyLossConfig):
    """The shared defaults without standard deviations (the paper's leave-one-out alternative keeps them out too)."""

    presets = PRESETS

    name: Literal["gigpo"] = "gigpo"
    preset: Literal["default", "gigpo_paper"] = "default"
    normalise_std: bool = False
    """Divide by the standard deviation, of a group's returns and of an anchor's."""
    std_eps: float = Field(default=1e-6, gt=0)
    """Added to the standard deviation."""
    omega: float = Field(default=1.0, ge=0)
    """Weight of the turn's advantage beside the episode's."""
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount of one turn."""


class GiGPO(PolicyGradient[GiGPOConfig]):
    """GRPO plus credit for turns: what a turn led to, relative to what siblings did in the very same state.

    Turns of one group that began in the same state of the world (`state_key`) are an anchor group; a turn's discounted
    return is measured against its mean. A state met once gives no turn credit. Left out of the paper: matching of
    states that are merely similar.
    """

    Config: ClassVar[type[AlgorithmConfig]] = GiGPOConfig

    def estimate(self, episodes: Episodes) -> Estimate:
        config = self.config
        turns = Turns.of(episodes)
        anchors = _anchors(episodes, turns)
        follows = discounted(turns.rewards, turns.trajectory, gamma=config.gamma)
        by_turn = group_relative(follows, anchors, normalise_std=config.normalise_std, eps=config.std_eps)
        by_episode = group_relative(
            episodes.returns, episodes.group, normalise_std=config.normalise_std, eps=config.std_eps
        )
        advantages = by_episode[episodes.trajectory] + config.omega * by_turn[turns.of_token]
        shared = (anchors.bincount()[anchors] > 1).float().mean() if len(anchors) else torch.zeros(())
        return Estimate(advantages, metrics={"gigpo/anchored": float(shared)})


def _anchors(episodes: Episodes, turns: Turns) -> Tensor:
    """Index of each turn's anchor group: one for each state of a group; whose state nobody said is alone.  # [T]"""
    state = episodes.state[turns.first]
    unknown = int(state.max()) + 1 + torch.arange(len(state)) if len(state) else state
    state = torch.where(state < 0, unknown, state)
    states = int(state.max()) + 1 if len(state) else 0
    return compact(episodes.group[turns.trajectory] * states + state)
