"""Which examples a step learns from, and how fast: functions of the step's number, so that a resume needs no state."""

from __future__ import annotations

import hashlib
import math
import random
from typing import Literal

from pydantic import Field

from sojourn.trainer.optimizer import OptimConfig

_FINAL = 0.02
"""The learning rate never falls below this share."""


class DecayingOptimConfig(OptimConfig):
    """AdamW with a linear warm-up and a decay towards the end of the run."""

    lr: float = Field(default=1e-5, gt=0, allow_inf_nan=False)
    decay: Literal["none", "linear", "cosine"] = "cosine"
    """How the learning rate falls to a fiftieth."""
    decay_share: float = Field(default=1.0, gt=0, le=1)
    """The last share of the run over which it falls."""

    def scale(self, progress: float) -> float:
        """Share of the learning rate after a share `progress` of the run, the warm-up aside."""
        share = self.decay_share
        into = max(0.0, progress - (1 - share)) / share
        if self.decay == "none" or into == 0:
            return 1.0
        fallen = 1 - into if self.decay == "linear" else (1 + math.cos(math.pi * into)) / 2
        return max(_FINAL, fallen)


def steps_in(epochs: int, examples: int, batch_size: int) -> int:
    """Optimiser steps of a run; the last batch of an epoch may be short."""
    return epochs * math.ceil(examples / batch_size)


def batch_at(step: int, examples: int, batch_size: int, *, seed: int) -> list[int]:
    """Indices of the examples of a step (from 0): every example once an epoch, shuffled anew each time."""
    epoch, place = divmod(step, math.ceil(examples / batch_size))
    order = list(range(examples))
    key = hashlib.blake2b(f"offline/{seed}/{epoch}".encode(), digest_size=8).digest()
    random.Random(int.from_bytes(key)).shuffle(order)
    return order[place * batch_size : (place + 1) * batch_size]
