"""Fixed data as token rows: what was given, what is to be said, and rows that belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sojourn.protocol.trajectory import Trajectory


@dataclass(slots=True)
class SFTRow:
    """One sequence to learn from."""

    ids: NDArray[np.int32]
    """# [T]"""
    mask: NDArray[np.uint8]
    """1 where the token is to be learnt.  # [T]"""
    name: str = ""
    """Of the episode or conversation that it is of."""


@dataclass(slots=True)
class Example:
    """Rows that are learnt from together: one, or a chosen and a rejected one."""

    rows: tuple[SFTRow, ...]
    ref_logprobs: Tensor | None = None
    """Of the learnt tokens of all rows, under the start policy.  # [M]"""

    @property
    def name(self) -> str:
        return " against ".join(row.name for row in self.rows)


def rows_of(trajectories: Iterable[Trajectory]) -> Iterator[SFTRow]:
    """One row for each leaf of each trajectory; a sampled segment that several share is learnt in the first only."""
    for trajectory in trajectories:
        learnt: set[int] = set()
        for leaf in trajectory.leaves():
            chain = trajectory.chain(leaf)
            segments = [trajectory.segments[i] for i in chain]
            ids = np.array([t for s in segments for t in s.ids], dtype=np.int32)
            masks = [[0] * len(s.ids) if i in learnt else s.mask for i, s in zip(chain, segments, strict=True)]
            mask = np.array([m for of_segment in masks for m in of_segment], dtype=np.uint8)
            learnt.update(i for i, s in zip(chain, segments, strict=True) if any(s.mask))
            if mask[1:].any():
                yield SFTRow(ids, mask, trajectory.episode_id)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """The examples of one optimiser step, flat: R rows with M tokens that count.

    Rows end with their last such token. The first token of a row cannot be learnt: nothing stands before it.
    """

    ids: tuple[Tensor, ...]
    """# R x [L_r]"""
    offsets: tuple[int, ...]
    """Row r holds the tokens offsets[r] to offsets[r + 1].  # [R + 1]"""
    positions: Tensor
    """Index of each token in its row; at least 1.  # [M]"""
    weights: Tensor
    """# [M]"""
    row: Tensor
    """# [M]"""
    together: int
    """Rows of one example."""
    ref_logprobs: Tensor | None = None
    """# [M]"""

    @classmethod
    def of(cls, examples: Sequence[Example], given_weight: float = 0.0) -> RowBatch:
        """Lay examples out; `given_weight` is that of tokens with mask 0."""
        rows = [row for example in examples for row in example.rows]
        ids, positions, weights, offsets = [], [], [], [0]
        for row in rows:
            weight = np.where(row.mask == 1, 1.0, given_weight).astype(np.float32)
            weight[0] = 0.0
            at = np.flatnonzero(weight)
            ids.append(torch.from_numpy(row.ids[: at[-1] + 1].astype(np.int64)))
            positions.append(torch.from_numpy(at))
            weights.append(torch.from_numpy(weight[at]))
            offsets.append(offsets[-1] + len(at))
        counts = torch.tensor([len(at) for at in positions])
        known = [example.ref_logprobs for example in examples if example.ref_logprobs is not None]
        return cls(
            ids=tuple(ids),
            offsets=tuple(offsets),
            positions=torch.cat(positions),
            weights=torch.cat(weights),
            row=torch.repeat_interleave(torch.arange(len(rows)), counts),
            together=len(examples[0].rows),
            ref_logprobs=torch.cat(known) if known else None,
        )

    @property
    def tokens(self) -> int:
        """Tokens that count."""
        return int(self.positions.numel())
