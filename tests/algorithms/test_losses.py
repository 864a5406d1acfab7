from __future__ import annotations

import math

import pytest
import torch

from sojourn.algorithms.losses import (
    cispo_loss,
    clipped_policy_loss,
    kl_estimate,
    log_ratio,
    pooled_log_ratio,
    token_weights,
    truncated_importance,
    value_loss,
)


def test_aggregations_by_hand():
    trajectory = torch.tensor([4, 4, 4, 7])  # two trajectories, of 3 tokens and 1; numbers may have gaps
    assert token_weights(trajectory, "sequence_mean", constant=9).tolist() == pytest.approx([1 / 6] * 3 + [1 / 2])
    assert token_weights(trajectory, "token_mean", constant=9).tolist() == pytest.approx([1 / 4] * 4)
    assert token_weights(trajectory, "constant", constant=10).tolist() == pytest.approx([1 / 20] * 4)


@pytest.mark.parametrize("how", ["sequence_mean", "token_mean", "constant"])
def test_no_tokens(how):
    assert token_weights(torch.zeros(0, dtype=torch.long), how, constant=1).shape == (0,)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.5, 1.0, -1.28),  # clipped above
        (0.5, 1.0, -0.5),
        (1.5, -1.0, 1.5),
        (0.5, -1.0, 0.8),  # clipped below
        (9.0, -1.0, 3.0),  # dual clip
        (9.0, 0.0, 0.0),
    ],
)
def test_clipping_by_hand(ratio, advantage, expected):
    loss = clipped_policy_loss(
        torch.tensor([ratio]), torch.tensor([advantage]), clip_low=0.2, clip_high=0.28, dual_clip=3.0
    )
    assert loss.item() == pytest.approx(expected)


def test_clipped_tokens_have_no_gradient():
    logprobs = torch.tensor([0.5, -0.5, 0.5, -0.5], requires_grad=True)
    ratio = log_ratio(logprobs, torch.zeros(4)).exp()
    clipped_policy_loss(ratio, torch.tensor([1.0, 1, -1, -1]), clip_low=0.2, clip_high=0.28).sum().backward()
    assert (logprobs.grad != 0).tolist() == [False, True, True, False]


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("old", [-1e9, -math.inf, 1e9])
def test_infinite_ratio_is_finite_and_without_gradient(advantage, old):
    logprobs = torch.tensor([-1.0, -1.0], requires_grad=True)
    ratio = log_ratio(logprobs, torch.tensor([old, -1.0])).exp()
    loss = clipped_policy_loss(ratio, torch.tensor([advantage, advantage]), clip_low=0.2, clip_high=0.28)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert logprobs.grad.tolist() == pytest.approx([0.0, -advantage])


def test_truncated_importance():
    weights = truncated_importance(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0.0, math.log(4), -5.0]), 2.0)
    assert weights.tolist() == pytest.approx([1.0, 0.25, 2.0])


@pytest.mark.parametrize(
    ("kind", "value", "slope"),
    [("k1", 0.3, 1.0), ("k2", 0.045, 0.3), ("k3", math.exp(-0.3) + 0.3 - 1, 1 - math.exp(-0.3))],
)
def test_kl_estimators_by_hand(kind, value, slope):
    logprobs = torch.tensor([-1.0], requires_grad=True)
    estimate = kl_estimate(kind, logprobs, torch.tensor([-1.3]))
    estimate.sum().backward()
    assert estimate.item() == pytest.approx(value, abs=1e-6)
    assert logprobs.grad.item() == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "value", "slope"), [("k1", -5, 1.0), ("k2", 12.5, -5.0), ("k3", math.exp(5) - 6, 1 - math.exp(5))]
)
def test_a_token_far_below_the_reference_is_pulled_back(kind, value, slope):
    """k3 is 142 here: where verl clamps it to 10, the token would have no gradient."""
    for below, gradient in ((5.0, slope), (1e4, 0.0)):
        logprobs = torch.tensor([-1.0 - below], requires_grad=True)
        estimate = kl_estimate(kind, logprobs, torch.tensor([-1.0]))
        estimate.sum().backward()
        assert logprobs.grad.item() == pytest.approx(gradient, rel=1e-5)
        limit = {"k1": -10, "k2": 50, "k3": math.exp(10) - 11}[kind]
        assert estimate.item() == pytest.approx(value if below == 5 else limit, rel=1e-5)


def test_kl_estimators_agree_in_expectation():
    torch.manual_seed(0)
    p, q = torch.randn(6).log_softmax(0), torch.randn(6).log_softmax(0)
    exact = (p.exp() * (p - q)).sum()
    for kind in ("k1", "k3"):
        assert (p.exp() * kl_estimate(kind, p, q)).sum().item() == pytest.approx(exact.item(), abs=1e-5)


def test_a_mask_of_importance_leaves_out_what_a_cap_would_shorten():
    old, rollout = torch.zeros(4), -torch.tensor([0.5, 1.0, 1.9, 2.1]).log()
    assert truncated_importance(old, rollout, 2.0).tolist() == pytest.approx([0.5, 1.0, 1.9, 2.0])
    assert truncated_importance(old, rollout, 2.0, floor=0.6).tolist() == pytest.approx([0.0, 1.0, 1.9, 0.0])


def test_pooled_ratio_by_hand():
    logprobs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    ratio = pooled_log_ratio(logprobs, torch.tensor([-1.2, -1.9, -0.5]), torch.tensor([4, 4, 9])).exp()
    ratio.sum().backward()
    assert ratio.tolist() == pytest.approx([math.exp(0.05)] * 2 + [1.0])
    assert logprobs.grad.tolist() == pytest.approx([math.exp(0.05)] * 2 + [1.0]), "each token's own gradient"


def test_cispo_by_hand():
    logprobs = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    ratio = torch.tensor([3.0, 0.1, 1.1])
    loss = cispo_loss(ratio, logprobs, torch.tensor([1.0, -2.0, 1.0]), clip_low=0.2, clip_high=0.5)
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([1.5, -1.6, 1.1])
    assert logprobs.grad.tolist() == pytest.approx([-1.5, 1.6, -1.1]), "a clipped token keeps its gradient"


@pytest.mark.parametrize(
    ("value", "expected", "slope"),
    [
        (0.3, 0.5 * 0.7**2, -0.7),  # within the clip
        (0.9, 0.5 * 0.5**2, 0.0),  # clipped at 0.5: the larger error counts, which does not move
        (-0.9, 0.5 * 1.9**2, -1.9),  # moved away from its target: the true error is the larger
    ],
)
def test_value_loss_by_hand(value, expected, slope):
    values = torch.tensor([value], requires_grad=True)
    loss = value_loss(values, torch.tensor([0.0]), torch.tensor([1.0]), clip=0.5)
    loss.sum().backward()
    assert loss.item() == pytest.approx(expected)
    assert values.grad.item() == pytest.approx(slope)
    assert value_loss(values, torch.tensor([0.0]), torch.tensor([1.0]), clip=None).item() == pytest.approx(
        0.5 * (value - 1) ** 2
    )
