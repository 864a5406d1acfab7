"""GRPO (arXiv 2402.03300); with the shared switches also Dr. GRPO, DAPO, GSPO and CISPO, each a preset."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from sojourn.algorithms.advantages import group_relative
from sojourn.algorithms.base import AlgorithmConfig, Episodes
from sojourn.algorithms.policy_gradient import Estimate, PolicyGradient
from sojourn.algorithms.policy_loss import PolicyLossConfig

_PLAIN: dict[str, Any] = {
    "normalise_std": True,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "tis_cap": None,
    "truncated": "fail",
    "drop_zero_advantage": False,
}
"""What all published forms below have in common unless they say otherwise."""

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "grpo_paper": {**_PLAIN, "loss_aggregation": "sequence_mean", "kl_coef": 0.04},
    "agentgym_rl": {**_PLAIN, "loss_aggregation": "sequence_mean", "kl_coef": 0.001, "entropy_coef": 0.001},
    "dr_grpo": {**_PLAIN, "normalise_std": False, "loss_aggregation": "constant"},
    "dapo": {
        **_PLAIN,
        "clip_high": 0.28,
        "loss_aggregation": "token_mean",
        "truncated": "mask_overlong",
        "drop_zero_advantage": True,
    },
    "gspo": {
        **_PLAIN,
        "ratio_level": "sequence",
        "clip_low": 3e-4,
        "clip_high": 4e-4,
        "loss_aggregation": "sequence_mean",
    },
    "cispo": {
        **_PLAIN,
        "objective": "cispo",
        "clip_low": 1.0,
        "clip_high": 4.0,
        "loss_aggregation": "token_mean",
    },
}
"""`grpo_paper`: DeepSeekMath's equation 3 and its beta. `agentgym_rl`: the published scripts of arXiv 2509.08755.
`dr_grpo`: arXiv 2503.20783 (set `loss_constant` to the budget of tokens). `dapo`: arXiv 2503.14476 without its soft
length penalty, which is a reward. `gspo`: arXiv 2507.18071. `cispo`: arXiv 2506.13585, the weight capped at 5."""


class GRPOConfig(PolicyLossConfig):
    """The default is what multi-turn systems settled on; `preset` swaps defaults, keys that are given win over it."""

    presets = PRESETS

    name: Literal["grpo"] = "grpo"
    preset: Literal["default", "grpo_paper", "agentgym_rl", "dr_grpo", "dapo", "gspo", "cispo"] = "default"
    normalise_std: bool = False
    """Divide a group's advantages by their standard deviation."""
    std_eps: float = Field(default=1e-6, gt=0)
    """Added to the standard deviation."""


class GRPO(PolicyGradient[GRPOConfig]):
    """Critic-free policy gradient: an episode's advantage is its return relative to its group's mean.

    The whole episode's advantage goes to each of its action tokens. Left out of the paper: process rewards, and the
    iterative refresh of the reference policy.
    """

    Config: ClassVar[type[AlgorithmConfig]] = GRPOConfig

    by_leaf = True

    def estimate(self, episodes: Episodes) -> Estimate:
        config = self.config
        relative = group_relative(
            episodes.returns, episodes.group, normalise_std=config.normalise_std, eps=config.std_eps
        )
        return Estimate(self.spread(relative, episodes))
