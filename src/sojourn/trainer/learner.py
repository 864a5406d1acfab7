"""One training step on collected groups: advantages, then epochs of minibatches of micro-batches.

Knows no algorithm by name: what differs between them is asked of the `Algorithm`.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sojourn.algorithms.base import Algorithm, LossInputs
from sojourn.protocol.trajectory import TrajectoryGroup
from sojourn.trainer.batch import MicroBatch, TrainBatch, build_batch, micro_batches
from sojourn.trainer.policy import TrainPolicy
from sojourn.trainer.rewards import Rewards


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch with all that the loss needs and that stays fixed for the step."""

    batch: TrainBatch
    rows: list[int]
    """The rows that are trained."""
    advantages: Tensor
    """# [M]"""
    old_logprobs: Tensor
    """# [M]"""
    ref_logprobs: Tensor | None = None
    """# [M]"""
    old_values: Tensor | None = None
    """Where there is a critic.  # [M]"""
    returns: Tensor | None = None
    """The critic's targets.  # [M]"""
    metrics: dict[str, float] = field(default_factory=dict)
    """What there is to say before the update."""

    def of(self, chosen: Tensor, device: torch.device) -> dict[str, Tensor | None]:
        """What the loss is told of some tokens besides their scores and weights, by the names of `LossInputs`."""
        flat = {
            "old_logprobs": self.old_logprobs,
            "rollout_logprobs": self.batch.rollout_logprobs,
            "advantages": self.advantages,
            "ref_logprobs": self.ref_logprobs,
            "row": self.batch.episodes.row,
            "turn": self.batch.episodes.turn,
            "old_values": self.old_values,
            "returns": self.returns,
        }
        return {name: None if tensor is None else tensor[chosen].to(device) for name, tensor in flat.items()}


@dataclass(frozen=True, slots=True)
class _Scored:
    """What the models say of a batch before anything moves."""

    old_logprobs: Tensor
    ref_logprobs: Tensor | None
    values: Tensor | None


@dataclass(slots=True)
class _Tally:
    """Sums over the tokens of an update."""

    tokens: int = 0
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    norms: list[float] = field(default_factory=list)
    """Gradient norm of each optimiser step."""
    critic_norms: list[float] = field(default_factory=list)
    skipped: int = 0
    skipped_last: int = 0
    """Steps skipped since the last that was not."""
    gap: float = 0.0
    """Sum of |trainer - engine| over the log-probabilities of the first minibatch, before anything moved."""
    gap_tokens: int = 0


class Learner:
    """Applies an algorithm to a policy.

    Args:
        rewards: how each environment pays.
        minibatches: optimiser steps that a batch is divided into.
        epochs: passes over a batch.
        target_kl: `policy/kl` of a minibatch at which it and those after it are left out; None: none is.
        token_budget: padded tokens of a micro-batch.
        seed: of the division into minibatches.
    """

    def __init__(
        self,
        policy: TrainPolicy,
        algorithm: Algorithm[Any],
        rewards: Mapping[str, Rewards],
        *,
        minibatches: int = 1,
        epochs: int = 1,
        target_kl: float | None = None,
        token_budget: int = 8192,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.algorithm = algorithm
        self.rewards = rewards
        self.minibatches = minibatches
        self.epochs = epochs
        self.target_kl = target_kl
        self.token_budget = token_budget
        self.seed = seed

    def recall(self, groups: Iterable[TrajectoryGroup]) -> None:
        """Take over what the steps before a resumption played; a learner of the present step needs none of it."""

    def prepare(self, groups: Sequence[TrajectoryGroup]) -> Prepared:
        """Rows, advantages, and the log-probabilities that ratios and divergences are taken against."""
        batch, algorithm = build_batch(groups, self.rewards), self.algorithm
        episodes, scored = batch.episodes, None
        if algorithm.critic or algorithm.needs_scores_first:
            scored = self._score(batch, range(batch.rows))
            episodes = replace(
                episodes,
                old_logprobs=scored.old_logprobs,
                ref_logprobs=scored.ref_logprobs,
                values=scored.values,
            )
        advantages = algorithm.advantages(episodes)
        rows = batch.rows_of(advantages.keep)
        scored = scored or self._score(batch, rows)
        return Prepared(
            batch,
            rows,
            advantages.tokens,
            scored.old_logprobs,
            scored.ref_logprobs,
            scored.values,
            advantages.returns,
            {**advantages.metrics, "train/broken_episodes": float(batch.broken)},
        )

    def update(self, step: int, prepared: Prepared) -> dict[str, float]:
        """Train on a batch; `step` (from 0) sets the learning rate and the order. Returns metrics."""
        rate = self.policy.begin_step(step)
        tally = _Tally()
        left = deque(
            rows
            for epoch in range(self.epochs)
            for rows in self._divide(prepared.rows, prepared.batch, f"{self.seed}/{step}/{epoch}")
        )
        while left and self._minibatch(left[0], prepared, tally):
            left.popleft()
        metrics = prepared.metrics | {name: total / tally.tokens for name, total in tally.sums.items()}
        metrics |= self.algorithm.after_update(metrics, len(prepared.batch.episodes.group))
        if tally.gap_tokens:
            metrics["policy/engine_gap"] = tally.gap / tally.gap_tokens
        for name, norms in (("train/grad_norm", tally.norms), ("critic/grad_norm", tally.critic_norms)):
            if finite := [norm for norm in norms if math.isfinite(norm)]:
                metrics[name] = math.fsum(finite) / len(finite)
        return metrics | {
            "train/lr": rate,
            "train/optimizer_steps": float(len(tally.norms) - tally.skipped),
            "train/skipped_steps": float(tally.skipped),
            "train/skipped_last": float(tally.skipped_last),
            "train/left_steps": float(len(left)),
            "train/rows": float(len(prepared.rows)),
            "train/tokens": float(sum(len(prepared.batch.ids[r]) for r in prepared.rows)),
        }

    def gradient_norm(self, rows: Sequence[int], prepared: Prepared) -> float:
        """The norm of the gradient that some rows alone give under the present weights; nothing is updated."""
        self._accumulate(rows, prepared, _Tally())
        return self.policy.drop_gradient()

    def _score(self, batch: TrainBatch, rows: Sequence[int]) -> _Scored:
        """Score rows with whatever the algorithm asks for."""
        old, values, reference = batch.rollout_logprobs, None, None
        if self.algorithm.critic and self.algorithm.needs_old_logprobs:
            old, values = self.policy.scores(batch, rows, self.token_budget)
        elif self.algorithm.critic:
            values = self.policy.values(batch, rows, self.token_budget)
        elif self.algorithm.needs_old_logprobs:
            old = self.policy.logprobs(batch, rows, self.token_budget)
        if self.algorithm.needs_reference:
            reference = self.policy.reference_logprobs(batch, rows, self.token_budget)
        return _Scored(old, reference, values)

    def _divide(self, rows: Sequence[int], batch: TrainBatch, key: str) -> list[list[int]]:
        """Minibatches of about equally many trajectories; the rows of one trajectory stay together."""
        owner = batch.episodes.trajectory[batch.offsets[:-1]].tolist()
        by_trajectory: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            by_trajectory[owner[row]].append(row)
        order = list(by_trajectory)
        random.Random(int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest())).shuffle(order)
        parts = (order[k :: self.minibatches] for k in range(self.minibatches))
        return [[row for trajectory in part for row in by_trajectory[trajectory]] for part in parts if part]

    def _minibatch(self, rows: Sequence[int], prepared: Prepared, tally: _Tally) -> bool:
        """Step on some rows; False when the policy has moved too far for it already, and stays where it is."""
        tokens, divergence = tally.tokens, tally.sums.get("policy/kl", 0.0)
        self._accumulate(rows, prepared, tally)
        if self.target_kl is not None:
            moved = (tally.sums["policy/kl"] - divergence) / max(1, tally.tokens - tokens)
            if moved > self.target_kl:
                self.policy.drop_gradient()
                return False
        outcome = self.policy.step()
        tally.norms.append(outcome.grad_norm)
        if outcome.critic_norm is not None:
            tally.critic_norms.append(outcome.critic_norm)
        tally.skipped += outcome.skipped
        tally.skipped_last = tally.skipped_last + 1 if outcome.skipped else 0
        return True

    def _accumulate(self, rows: Sequence[int], prepared: Prepared, tally: _Tally) -> None:
        """Add the gradient of some rows, weighted as one minibatch."""
        tokens = prepared.batch.tokens_of(rows)
        weights = torch.zeros(prepared.batch.tokens)
        weights[tokens] = self.algorithm.weights(prepared.batch.episodes.trajectory[tokens])
        for micro in micro_batches(prepared.batch, rows, self.token_budget):
            self._micro_batch(micro, weights, prepared, tally)

    def _micro_batch(self, micro: MicroBatch, weights: Tensor, prepared: Prepared, tally: _Tally) -> None:
        device, chosen = self.policy.device, micro.tokens
        scores = self.policy.score(micro, entropy_grad=self.algorithm.needs_entropy_grad)
        inputs = LossInputs(
            logprobs=scores.logprobs,
            weights=weights[chosen].to(device),
            entropy=scores.entropy,
            values=scores.values,
            **prepared.of(chosen, device),  # type: ignore[arg-type]
        )
        output = self.algorithm.loss(inputs)
        output.loss.backward()  # type: ignore[no-untyped-call]
        tally.tokens += len(chosen)
        for name, value in output.sums.items():
            tally.sums[name] += float(value)
        tally.sums["policy/entropy"] += float(scores.entropy.detach().sum())
        if not tally.norms:
            tally.gap += float((scores.logprobs.detach() - inputs.rollout_logprobs).abs().sum())
            tally.gap_tokens += len(chosen)
