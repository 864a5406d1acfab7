"""Preference pairs from groups: two episodes of one task that began alike and were scored apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sojourn.protocol.trajectory import Trajectory, TrajectoryGroup
from sojourn.trainer.offline.rows import Example, SFTRow, rows_of


class PairsConfig(BaseModel):
    """Which episodes of a group become a pair."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_gap: float = Field(default=0.1, gt=0)
    """The chosen one's score is at least this much higher."""
    min_chosen: float = 0.0
    """The chosen one's score is at least this."""
    max_per_group: int = Field(default=1, ge=1)
    """Best with worst, second best with second worst, and so on; no episode is in two pairs."""


@dataclass
class Pairs:
    """What was found."""

    examples: list[Example] = field(default_factory=list)
    """Of two rows: the chosen, the rejected."""
    groups: int = 0
    """Groups that were looked at."""
    unlike: int = 0
    """Pairs left out because the two did not begin with the same tokens."""
    rewritten: int = 0
    """Pairs left out because the history of one was rewritten on the way: it is not one sequence."""
    contained: int = 0
    """Pairs left out because one of the two said nothing that the other had not said, too."""


def pairs_of(groups: Iterable[TrajectoryGroup], config: PairsConfig) -> Pairs:
    """The pairs of each group, by the episodes' scores. Failures of infrastructure take no part."""
    found = Pairs()
    for group in groups:
        found.groups += 1
        played = sorted((t for t in group.trajectories if not t.stop.is_error), key=lambda t: -t.score)
        for i in range(min(config.max_per_group, len(played) // 2)):
            chosen, rejected = played[i], played[-1 - i]
            if chosen.score - rejected.score >= config.min_gap and chosen.score >= config.min_chosen:
                _add(found, chosen, rejected)
    return found


def _add(found: Pairs, chosen: Trajectory, rejected: Trajectory) -> None:
    if chosen.segments[0].ids != rejected.segments[0].ids or chosen.task != rejected.task:
        found.unlike += 1
        return
    if len(chosen.leaves()) > 1 or len(rejected.leaves()) > 1:
        found.rewritten += 1
        return
    rows = [row for t in (chosen, rejected) for row in rows_of([t])]
    if len(rows) < 2 or not all(row.mask.any() for row in _apart(*rows)):
        found.contained += 1
        return
    found.examples.append(Example(_apart(*rows)))


def _apart(chosen: SFTRow, rejected: SFTRow) -> tuple[SFTRow, SFTRow]:
    """The rows with nothing learnt before they part: what both said weighs on both sides alike, and siblings that were
    forked count it on one side only."""
    shorter = min(len(chosen.ids), len(rejected.ids))
    differ = np.flatnonzero(chosen.ids[:shorter] != rejected.ids[:shorter])
    parting = int(differ[0]) if len(differ) else shorter
    apart = []
    for row in (chosen, rejected):
        mask = row.mask.copy()
        mask[:parting] = 0
        apart.append(SFTRow(row.ids, mask, row.name))
    return apart[0], apart[1]
