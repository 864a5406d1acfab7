"""Supervised fine-tuning on token rows: the next-token loss where the mask is 1, a small one on what was given.

Enough for warm starts from demonstrations. Rows come from recordings (`rows_of`) or from any generator; the labels are
the ids one to the right, and nothing is re-encoded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from transformers import PreTrainedModel

from sojourn.protocol.trajectory import Trajectory


@dataclass(slots=True)
class SFTRow:
    """One sequence to learn from."""

    ids: NDArray[np.int32]
    """# [T]"""
    mask: NDArray[np.uint8]
    """1 where the token is to be learnt.  # [T]"""


class SFTConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lr: float = Field(default=2e-3, gt=0)
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    warmup_steps: int = 60
    decay_share: float = Field(default=0.3, ge=0, le=1)
    """The last share of the run over which the learning rate falls linearly to a fiftieth."""
    token_budget: int = 4096
    """Padded tokens a batch."""
    given_weight: float = Field(default=0.1, ge=0)
    """Weight of tokens that were given rather than said; teaches small models what to expect."""
    grad_clip: float = 1.0
    average: float = 0.99
    """Decay of the moving average of the weights."""
    seed: int = 0
    threads: int | None = Field(default=None, ge=1)
    """Threads of the whole process; None leaves them as they are."""


def rows_of(trajectories: Iterable[Trajectory]) -> Iterator[SFTRow]:
    """One row for each leaf of each trajectory."""
    for trajectory in trajectories:
        for leaf in trajectory.leaves():
            chain = [trajectory.segments[i] for i in trajectory.chain(leaf)]
            ids = np.array([t for s in chain for t in s.ids], dtype=np.int32)
            mask = np.array([m for s in chain for m in s.mask], dtype=np.uint8)
            if mask.any():
                yield SFTRow(ids, mask)


class SFT:
    """One run over a stream of rows.

    Args:
        model: trained in place.
        total_tokens: length of the run, of which the learning-rate schedule is a function; rows may never end.
    """

    def __init__(self, model: PreTrainedModel, config: SFTConfig, *, total_tokens: int) -> None:
        if config.threads:
            torch.set_num_threads(config.threads)
        self.model = model
        self.config = config
        self.total_tokens = total_tokens
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
        )
        self.average = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.steps = 0
        self.tokens = 0

    def run(
        self, rows: Iterator[SFTRow], *, report_every: int, on_report: Callable[[float], None] = lambda loss: None
    ) -> None:
        """Train until `total_tokens` were seen; `on_report(mean loss)` is called each `report_every` tokens."""
        losses: list[float] = []
        due = report_every
        batches = self._batches(rows)
        while self.tokens < self.total_tokens:
            self.model.train()
            losses.append(self._step(next(batches)))
            if self.tokens >= min(due, self.total_tokens):
                on_report(float(np.mean(losses)))
                losses, due = [], self.tokens + report_every

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the model holds the moving average of its weights."""
        raw = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self._write(self.average)
        try:
            yield
        finally:
            self._write(raw)

    @torch.no_grad()
    def _write(self, weights: dict[str, Tensor]) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(weights[name])

    def _batches(self, rows: Iterator[SFTRow]) -> Iterator[list[SFTRow]]:
        """Batches of similar length within the token budget, in random order."""
        rng = random.Random(self.config.seed)
        while True:
            pool = sorted((next(rows) for _ in range(256)), key=lambda row: len(row.ids) + rng.random())
            batches: list[list[SFTRow]] = [[]]
            for row in pool:
                if batches[-1] and len(row.ids) * (len(batches[-1]) + 1) > self.config.token_budget:
                    batches.append([])
                batches[-1].append(row)
            rng.shuffle(batches)
            yield from batches

    def _step(self, batch: Sequence[SFTRow]) -> float:
        config = self.config
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr * self._schedule()
        loss = weighted_nll(self.model, batch, config.given_weight)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.grad_clip)
        if torch.isfinite(norm):
            self.optimizer.step()
        self.steps += 1
        self.tokens += sum(len(row.ids) for row in batch)
        decay = min(config.average, 1 - 10 / (self.steps + 10))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                self.average[name].lerp_(parameter, 1 - decay)
        return float(loss.detach())

    def _schedule(self) -> float:
        progress = self.tokens / self.total_tokens
        warm = min(1.0, (self.steps + 1) / max(1, self.config.warmup_steps))
        share = self.config.decay_share
        cool = 1.0 if share == 0 or progress < 1 - share else max(0.02, (1 - progress) / share)
        return warm * cool


def weighted_nll(model: PreTrainedModel, batch: Sequence[SFTRow], given_weight: float) -> Tensor:
    """Mean negative log-likelihood of the masked tokens, with `given_weight` on the others.  # []"""
    width = max(len(row.ids) for row in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    weight = torch.zeros(len(batch), width)
    for i, row in enumerate(batch):
        ids[i, : len(row.ids)] = torch.from_numpy(row.ids.astype(np.int64))
        weight[i, : len(row.ids)] = torch.from_numpy(np.where(row.mask == 1, 1.0, given_weight).astype(np.float32))
    weight = weight[:, 1:]
    chosen = weight > 0
    # Right padding: a causal row never sees what stands to its right, so no attention mask is needed.
    hidden = model.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state[chosen]
    logits = model.get_output_embeddings()(hidden)  # type: ignore[no-untyped-call]
    nll = nn.functional.cross_entropy(logits.float(), ids[:, 1:][chosen], reduction="none")
    return (nll * weight[chosen]).sum() / weight[chosen].sum()
