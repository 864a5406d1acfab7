"""Where a gradient that is not finite came from, and when that ends a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sojourn.protocol.errors import UsageError
from sojourn.rollout.recorder import read, shards
from sojourn.trainer.learner import Learner, Prepared


def culprits(learner: Learner, prepared: Prepared) -> list[str]:
    """Episodes whose gradient, each taken alone, is not finite under the present weights.

    Args:
        learner: nothing is updated.
        prepared: what it was given.
    """
    batch = prepared.batch
    owner = batch.episodes.trajectory[batch.offsets[:-1]].tolist()
    rows: dict[int, list[int]] = {}
    for row in prepared.rows:
        rows.setdefault(owner[row], []).append(row)
    return [batch.names[i] for i, own in rows.items() if not math.isfinite(learner.gradient_norm(own, prepared))]


def describe(step: int, skipped: int, episodes: Sequence[str]) -> str:
    """One line on what a step skipped."""
    where = f"the gradient of {_some(episodes)} is not finite" if episodes else "no single episode is to blame"
    steps = "1 optimiser step was" if skipped == 1 else f"{skipped} optimiser steps were"
    return f"step {step}: {steps} skipped; {where}"


def in_a_row(before: int, metrics: Mapping[str, float]) -> int:
    """Optimiser steps skipped since the last that was not, after an update.

    Args:
        before: the same before it.
        metrics: of the update; one that did nothing at all, or none, leaves the count as it is.
    """
    last = int(metrics.get("train/skipped_last", 0))
    return last if metrics.get("train/optimizer_steps") else before + last


def recorded_in(episode: str, places: Iterable[Path]) -> Path | None:
    """The shard that holds an episode, the youngest first; None: it was not recorded.

    Args:
        episode: its name.
        places: shards, and directories of shards.
    """
    for place in places:
        for shard in reversed(shards(place) if place.is_dir() else [place] if place.is_file() else []):
            if any(t.episode_id == episode for group in read(shard) for t in group.trajectories):
                return shard
    return None


def stop_if_lost(step: int, skipped: int, most: int, episodes: Sequence[str], places: Iterable[Path] = ()) -> None:
    """End a run whose updates fail one after the other.

    Args:
        step: the training step, from 1.
        skipped: optimiser steps skipped since the last that was not.
        most: so many are too many.
        episodes: who is to blame.
        places: where they may have been recorded.

    Raises:
        UsageError: it is lost; says where to look.
    """
    if skipped < most:
        return
    where = "no one episode did it"
    if episodes:
        shard = recorded_in(episodes[0], places)
        where = f"look at {_some(episodes)}" + (f" in {shard}" if shard else "")
    raise UsageError(
        f"stopped at step {step}: {skipped} optimiser steps in a row had a gradient that is not finite; {where}; "
        "resume with a larger trainer.max_skipped_steps, or start anew from the last checkpoint with a lower optim.lr"
    )


def _some(episodes: Sequence[str]) -> str:
    more = f" and {len(episodes) - 1} more" if len(episodes) > 1 else ""
    return f"episode {episodes[0]}{more}"
