"""Tree-GRPO (arXiv 2509.21240)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from sojourn.algorithms.advantages import group_relative, uninformative
from sojourn.algorithms.base import AlgorithmConfig, Episodes
from sojourn.algorithms.policy_gradient import Estimate, PolicyGradient
from sojourn.algorithms.policy_loss import PolicyLossConfig
from sojourn.algorithms.tree_credit import Shared

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "normalise_std": True,
        "shared": "sum",
        "loss_aggregation": "sequence_mean",
        "clip_high": 0.2,
        "tis_cap": None,
        "truncated": "fail",
        "drop_zero_advantage": False,
    },
}
"""`paper`: both levels divided by their standard deviation, leaves trained whole; its KL is left to `kl_coef`."""


class TreeGRPOConfig(PolicyLossConfig):
    """The shared defaults; `preset` swaps them, keys that are given win over it."""

    presets = PRESETS

    name: Literal["tree_grpo"] = "tree_grpo"
    preset: Literal["default", "paper"] = "default"
    intra: float = Field(default=1.0, ge=0)
    """Weight of the advantage within a tree: among what went on from one beginning."""
    inter: float = Field(default=1.0, ge=0)
    """Weight of the advantage across the trees of a group."""
    shared: Shared = "mean"
    """What a token that several episodes hold is given of theirs: `mean`, every sampled token weighs alike; `sum`, as
    if each episode were trained whole."""
    normalise_std: bool = False
    """Divide by the standard deviation, of a tree's returns and of a group's."""
    std_eps: float = Field(default=1e-6, gt=0)
    """Added to the standard deviation."""


class TreeGRPO(PolicyGradient[TreeGRPOConfig]):
    """GRPO on trees: an episode's return relative to its tree's mean, plus relative to its group's mean.

    Wants `rollout.branch`; without it every tree is one episode, and this is GRPO. Left out of the paper: nothing of
    the estimator; the places that are branched are its random ones, or those of the highest entropy.
    """

    Config: ClassVar[type[AlgorithmConfig]] = TreeGRPOConfig

    by_leaf = True

    def estimate(self, episodes: Episodes) -> Estimate:
        config = self.config
        tree = torch.arange(len(episodes.group)) if episodes.tree is None else episodes.tree
        within, across = (
            group_relative(episodes.returns, part, normalise_std=config.normalise_std, eps=config.std_eps)
            for part in (tree, episodes.group)
        )
        advantages = config.intra * within + config.inter * across
        differs = ~uninformative(episodes.returns, tree)
        metrics = {"tree_grpo/informative": float(differs.double().mean())} if len(differs) else {}
        return Estimate(self.spread(advantages, episodes, config.shared), metrics=metrics)
