"""What a finished step leaves for the choices of the next: statistics for the horizon, estimates for the curriculum."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping

from sojourn.rollout.horizon import HorizonStatistics
from sojourn.trainer.checkpoint import Progress
from sojourn.trainer.collecting import Collection
from sojourn.trainer.config import TrainConfig
from sojourn.trainer.divergence import in_a_row
from sojourn.trainer.rewards import task_return


def seen(before: Progress, collection: Collection, metrics: Mapping[str, float], config: TrainConfig) -> Progress:
    """The run's progress after a step.

    Args:
        before: the progress so far.
        collection: what the step played.
        metrics: of the step, the update's among them.
        config: of the run.
    """
    rewards, after = config.rewards(), collection.plan.after
    statistics = HorizonStatistics.of(
        collection.groups,
        step=after.step,
        solution_medians=before.statistics.solution_medians,
        returns=lambda trajectory: task_return(trajectory, rewards[trajectory.env]),
        entropy=_measured(metrics.get("policy/entropy"), worst=0.0),
        kl=_measured(metrics.get("policy/kl"), worst=sys.float_info.max),
    )
    estimates = config.curriculum.learn(before.estimates, collection.outcomes(), len(config.envs))
    return after.model_copy(
        update={
            "statistics": statistics,
            "estimates": estimates,
            "skipped": in_a_row(before.skipped, metrics),
        }
    )


def _measured(value: float | None, *, worst: float) -> float | None:
    """A number that JSON can hold: what is not finite is as bad as can be."""
    return worst if value is not None and not math.isfinite(value) else value
