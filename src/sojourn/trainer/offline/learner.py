"""One optimiser step on fixed examples, for any method on them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from sojourn.algorithms.offline import Labelled, OfflineMethod
from sojourn.trainer.offline.packing import micro_batches, prove_packing
from sojourn.trainer.offline.rows import Example, RowBatch
from sojourn.trainer.policy import TrainPolicy


class OfflineLearner:
    """Applies a method to a policy.

    Args:
        token_budget: tokens of a micro-batch, padding included.
        packing: let short rows share a line.

    Raises:
        UsageError: rows cannot be packed for this model.
    """

    def __init__(
        self, policy: TrainPolicy, method: OfflineMethod[Any], *, token_budget: int = 8192, packing: bool = False
    ) -> None:
        self.policy = policy
        self.method = method
        self.token_budget = token_budget
        self.packing = packing
        if packing:
            prove_packing(policy.model)

    def step(self, examples: Sequence[Example], step: int, scale: float = 1.0) -> dict[str, float]:
        """One optimiser step, number `step` (from 0), on a batch; `scale` is of the learning rate. Returns metrics."""
        rate = self.policy.begin_step(step, scale)
        batch = RowBatch.of(examples, self.method.given_weight)
        metrics, padded = self._accumulate(batch)
        outcome = self.policy.step()
        read = sum(len(ids) - 1 for ids in batch.ids)
        return metrics | {
            "train/lr": rate,
            "train/grad_norm": outcome.grad_norm,
            "train/skipped_steps": float(outcome.skipped),
            "train/rows": float(len(batch.ids)),
            "train/tokens": float(sum(len(row.ids) for example in examples for row in example.rows)),
            "train/learnt_tokens": float(sum(int(row.mask.sum()) for e in examples for row in e.rows)),
            "train/padding": 1 - read / padded,
        }

    def culprits(self, examples: Sequence[Example]) -> list[str]:
        """Examples whose gradient, each taken alone, is not finite under the present weights; nothing is updated."""
        return [example.name for example in examples if not math.isfinite(self._gradient_norm(example))]

    def _gradient_norm(self, example: Example) -> float:
        self._accumulate(RowBatch.of([example], self.method.given_weight))
        return self.policy.drop_gradient()

    def _accumulate(self, batch: RowBatch) -> tuple[dict[str, float], int]:
        """Add the gradient of a batch; its metrics, and how many tokens were computed, padding included."""
        metrics: dict[str, float] = defaultdict(float)
        padded = 0
        for micro in micro_batches(batch, self.token_budget, packing=self.packing):
            padded += micro.inputs.numel()
            logprobs = self.policy.score(micro).logprobs
            part = self.method.loss(self._labelled(batch, micro.tokens, logprobs))
            part.loss.backward()  # type: ignore[no-untyped-call]
            for name, value in part.metrics.items():
                metrics[name] += float(value)
        return dict(metrics), padded

    @torch.no_grad()
    def score(self, examples: Iterable[Example]) -> None:
        """Give each example the log-probabilities of the present weights as those of its reference."""
        for example in examples:
            batch = RowBatch.of([example], self.method.given_weight)
            found = torch.zeros(batch.tokens)
            for micro in micro_batches(batch, self.token_budget, packing=False):
                found[micro.tokens] = self.policy.score(micro).logprobs.cpu()
            example.ref_logprobs = found

    @torch.no_grad()
    def measure(self, examples: Sequence[Example]) -> dict[str, float]:
        """The method's metrics on examples that are not learnt from."""
        batch = RowBatch.of(examples, self.method.given_weight)
        metrics: dict[str, float] = defaultdict(float)
        for micro in micro_batches(batch, self.token_budget, packing=self.packing):
            part = self.method.loss(self._labelled(batch, micro.tokens, self.policy.score(micro).logprobs))
            for name, value in part.metrics.items():
                metrics[name] += float(value)
        return dict(metrics)

    def _labelled(self, batch: RowBatch, tokens: torch.Tensor, logprobs: torch.Tensor) -> Labelled:
        device, reference = self.policy.device, batch.ref_logprobs
        return Labelled(
            logprobs=logprobs,
            weights=batch.weights[tokens].to(device),
            row=batch.row[tokens].to(device),
            rows=len(batch.ids),
            total=float(batch.weights.sum()),
            ref_logprobs=None if reference is None else reference[tokens].to(device),
        )
