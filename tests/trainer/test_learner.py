from __future__ import annotations

import math

import pytest
import torch

from sojourn.algorithms.grpo import GRPO, GRPOConfig
from sojourn.trainer.learner import Learner, _Tally
from sojourn.trainer.optimizer import OptimConfig
from sojourn.trainer.policy import TrainPolicy
from sojourn.trainer.rewards import Score
from tests.models import tiny_llama
from tests.trainer.episodes import groups

SCORE = {"textcraft": (Score(),)}


def _learner(config: GRPOConfig | None = None, lr: float = 1e-2, **options) -> Learner:
    algorithm = GRPO(config or GRPOConfig(truncated="fail"))
    policy = TrainPolicy(tiny_llama(), OptimConfig(lr=lr), reference=algorithm.needs_reference)
    return Learner(policy, algorithm, SCORE, **options)


def test_one_update_makes_what_won_likelier_and_what_lost_less_so():
    learner = _learner(lr=3e-3)
    played = groups([[1.0, 0.0], [0.0, 1.0]])
    before = learner.prepare(played)
    learner.update(0, before)
    after = learner.prepare(played)
    difference = after.old_logprobs - before.old_logprobs
    assert difference[before.advantages > 0].mean() > 0.01
    assert difference[before.advantages < 0].mean() < -0.01


@pytest.mark.parametrize(("minibatches", "epochs", "steps"), [(1, 1, 1), (3, 1, 3), (2, 3, 6), (50, 1, 6)])
def test_optimiser_steps_are_counted(minibatches, epochs, steps):
    """Six trajectories: more minibatches than trajectories make one each."""
    learner = _learner(minibatches=minibatches, epochs=epochs)
    metrics = learner.update(0, learner.prepare(groups([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])))
    assert metrics["train/optimizer_steps"] == steps
    assert metrics["train/rows"] == 6


def test_minibatches_partition_the_trajectories_in_an_order_of_their_own():
    learner = _learner(minibatches=3)
    prepared = learner.prepare(groups([[1.0, 0.0, 0.0, 1.0]] * 2))
    first, second, again = (learner._divide(prepared.rows, prepared.batch, key) for key in ("a", "b", "a"))
    assert sorted(row for part in first for row in part) == prepared.rows
    assert first == again != second


def test_each_epoch_is_divided_anew(monkeypatch):
    learner = _learner(minibatches=3, epochs=2)
    prepared = learner.prepare(groups([[1.0, 0.0, 0.0, 1.0]] * 2))
    minibatch, seen = learner._minibatch, []
    monkeypatch.setattr(learner, "_minibatch", lambda rows, *rest: (seen.append(rows), minibatch(rows, *rest))[1])
    learner.update(0, prepared)
    first, second = seen[:3], seen[3:]
    assert sorted(row for part in first for row in part) == sorted(row for part in second for row in part)
    assert first != second


def test_nothing_to_learn_from():
    """Equal rewards everywhere: no row, no step, no change, and no number for what was not measured."""
    learner = _learner()
    before = {name: w.clone() for name, w in learner.policy.named_weights()}
    metrics = learner.update(0, learner.prepare(groups([[1.0, 1.0], [0.0, 0.0]])))
    assert (metrics["train/rows"], metrics["train/optimizer_steps"]) == (0, 0)
    assert not {"train/grad_norm", "policy/kl"} & metrics.keys()
    assert all(torch.equal(w, before[name]) for name, w in learner.policy.named_weights())


def test_equal_rewards_that_are_kept_leave_the_policy_alone():
    learner = _learner(GRPOConfig(truncated="fail", drop_zero_advantage=False))
    before = {name: w.clone() for name, w in learner.policy.named_weights()}
    metrics = learner.update(0, learner.prepare(groups([[1.0, 1.0]])))
    assert metrics["train/rows"] == 2
    assert all(torch.equal(w, before[name]) for name, w in learner.policy.named_weights())


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(monkeypatch):
    learner = _learner(minibatches=2)
    prepared = learner.prepare(groups([[1.0, 0.0], [0.0, 1.0]]))
    score, calls = learner.policy.score, iter(range(100))

    def poisoned(micro, **options):
        scores = score(micro, **options)
        return scores._replace(logprobs=scores.logprobs * math.nan) if next(calls) == 0 else scores

    monkeypatch.setattr(learner.policy, "score", poisoned)
    metrics = learner.update(0, prepared)
    assert (metrics["train/skipped_steps"], metrics["train/optimizer_steps"]) == (1, 1)
    assert metrics["train/skipped_last"] == 0, "the one after it was taken"
    assert math.isfinite(metrics["train/grad_norm"])
    assert all(torch.isfinite(w).all() for _, w in learner.policy.named_weights())


def test_a_policy_that_has_moved_too_far_takes_no_further_step():
    played = groups([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    free, held, once = _learner(minibatches=3, epochs=2), _learner(minibatches=3, epochs=2, target_kl=1e-6), _learner()
    counts = [
        (metrics["train/optimizer_steps"], metrics["train/left_steps"])
        for learner in (free, held)
        for metrics in [learner.update(0, learner.prepare(played))]
    ]
    assert counts == [(6, 0), (1, 5)]
    prepared = once.prepare(played)
    once._minibatch(held._divide(prepared.rows, prepared.batch, "0/0/0")[0], prepared, _Tally())
    after = dict(once.policy.named_weights())
    assert all(torch.equal(w, after[name]) for name, w in held.policy.named_weights())
    assert not any(p.grad is not None and p.grad.any() for p in held.policy.model.parameters())


def test_old_logprobs_from_either_side():
    played = groups([[1.0, 0.0]])
    rollout = _learner(GRPOConfig(truncated="fail", old_logprobs="rollout")).prepare(played)
    assert torch.equal(rollout.old_logprobs, rollout.batch.rollout_logprobs)
    recomputed = _learner().prepare(played)
    assert not torch.allclose(recomputed.old_logprobs, recomputed.batch.rollout_logprobs)


def test_the_reference_holds_the_policy_back():
    played = groups([[1.0, 0.0], [0.0, 1.0]])

    def drift(kl_coef: float) -> float:
        learner = _learner(GRPOConfig(truncated="fail", kl_coef=kl_coef), lr=3e-3)
        for step in range(6):
            learner.update(step, learner.prepare(played))
        before = TrainPolicy(tiny_llama()).logprobs(learner.prepare(played).batch, range(4), 10_000)
        return float((learner.prepare(played).old_logprobs - before).abs().mean())

    assert drift(5.0) < 0.7 * drift(0.0)


def test_the_order_of_groups_does_not_change_the_first_gradient():
    played = groups([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    results = []
    for order in (played, played[::-1]):
        learner = _learner(lr=1e-3)
        learner.update(0, learner.prepare(order))
        results.append(dict(learner.policy.named_weights()))
    for name, weight in results[0].items():
        torch.testing.assert_close(results[1][name], weight, rtol=1e-4, atol=1e-5)
