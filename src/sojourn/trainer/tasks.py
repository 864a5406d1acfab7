"""Which tasks a step plays: every task of a split once before any comes twice, environments by weight.

Orders are computed, not stored: task number i of epoch e is found by a keyed permutation, so that a split of four
million tasks costs nothing and the whole state is a count for each source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field


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


def permuted(position: int, total: int, *, key: str) -> int:
    """Element `position` of a pseudo-random permutation of range(total), chosen by `key`.

    A four-round Feistel network on the next even number of bits; values outside the range are sent through again.
    """
    if not 0 <= position < total:
        raise ValueError(f"position {position} is outside a permutation of {total}")
    half = max(1, ((total - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    value = position
    while True:
        left, right = value >> half, value & low
        for round_ in range(4):
            word = hashlib.blake2b(f"{key}/{round_}/{right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(word, "big") & low)
        value = left << half | right
        if value < total:
            return value
