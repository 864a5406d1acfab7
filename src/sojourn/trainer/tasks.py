"""Which tasks a step plays: every task of a split once before any comes twice, environments by weight.

Orders are computed, not stored: task number i of epoch e is found by a keyed permutation, so that a split of four
million tasks costs nothing and the whole state is a count for each source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from sojourn.evaluation.tasks import permuted


class Source(NamedTuple):
    """The tasks that one entry of `envs:` draws from."""

    total: int
    weight: float


class Draw(NamedTuple):
    """One task: a source, and the task's number in its split."""

    source: int
    number: int
    epoch: int
    """How often the whole source had been drawn before."""


class SamplerState(BaseModel):
    """How many tasks were drawn from each source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    drawn: tuple[int, ...] = Field(default=())


def draw(state: SamplerState, sources: Sequence[Source], count: int, *, seed: int) -> tuple[list[Draw], SamplerState]:
    """The next `count` tasks and the state after them; sources take turns so that shares follow the weights."""
    drawn = list(state.drawn) or [0] * len(sources)
    scale = sum(source.weight for source in sources)
    draws: list[Draw] = []
    for _ in range(count):
        total = sum(drawn) + 1
        behind = [total * source.weight / scale - n for source, n in zip(sources, drawn, strict=True)]
        chosen = behind.index(max(behind))
        epoch, position = divmod(drawn[chosen], sources[chosen].total)
        index = permuted(position, sources[chosen].total, key=f"{seed}/{chosen}/{epoch}")
        draws.append(Draw(chosen, index, epoch))
        drawn[chosen] += 1
    return draws, SamplerState(drawn=tuple(drawn))
