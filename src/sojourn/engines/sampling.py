"""Drawing tokens: each draw depends on a row's key and the token's number alone, never on who shared the batch.

The generator is SplitMix64 (Steele, Lea, Flood 2014) used as a counter-based one. `seed_of` folds a key of integers
into 64 bits; draw t of a row is the finaliser applied to `seed + (t + 1) * GAMMA`, whose upper 52 bits make a number in
[0, 1); the token is the inverse of the cumulative distribution at that number. torch's generator is not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * _M1) & _MASK
    z = ((z ^ (z >> 27)) * _M2) & _MASK
    return z ^ (z >> 31)


def seed_of(key: Sequence[int]) -> int:
    """64 bits that stand for `key`; integers of any size and sign count, and so does the key's length."""
    state = _mix(len(key) + _GAMMA)
    for part in key:
        rest = int(part)
        while True:
            state = _mix(((state ^ (rest & _MASK)) + _GAMMA) & _MASK)
            rest >>= 64
            if rest in (0, -1):
                break
        state ^= rest & 1
    return state


def uniforms(seeds: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """One number in [0, 1 - 2**-52] for each (seed, token number).  # [n], [n] -> [n]"""
    with np.errstate(over="ignore"):
        z = seeds + (numbers + np.uint64(1)) * np.uint64(_GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_M1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_M2)
        z ^= z >> np.uint64(31)
    number: NDArray[np.float64] = (z >> np.uint64(12)).astype(np.float64) * 2.0**-52
    return number


class Draw(NamedTuple):
    """One sampled token a row."""

    tokens: list[int]
    logprobs: list[float]
    """Under the distribution drawn from: after temperature, top_k and top_p; at temperature 0 that of temperature 1."""
    entropy: list[float]
    """Nats, of the same distribution."""


class Shaping(NamedTuple):
    """Sampling parameters of the rows of a batch, as columns."""

    temperature: Sequence[float]
    top_p: Sequence[float]
    top_k: Sequence[int]


def draw(logits: Tensor, shaping: Shaping, uniform: NDArray[np.float64]) -> Draw:
    """Sample one token for each row.

    Args:
        logits: [n, V], any floating dtype; a row that holds NaN or +inf raises `ValueError`.
        shaping: the rows' parameters.
        uniform: one number in [0, 1) a row.
    """
    x = logits.float()
    if any(t not in (0.0, 1.0) for t in shaping.temperature):
        x = x / torch.tensor([t or 1.0 for t in shaping.temperature], device=x.device)[:, None]
    shaped = [i for i, (p, k) in enumerate(zip(shaping.top_p, shaping.top_k, strict=True)) if p < 1.0 or k > 0]
    if shaped:
        x = x.clone()
        rows = torch.tensor(shaped, device=x.device)
        x[rows] = _truncate(x[rows], [shaping.top_p[i] for i in shaped], [shaping.top_k[i] for i in shaped])
    lse = torch.logsumexp(x, -1, keepdim=True)
    if not bool(torch.isfinite(lse).all()):
        raise ValueError("the model gave logits that are not finite (are its weights NaN?)")
    p = torch.exp(x - lse)
    cdf = p.cumsum(-1, dtype=torch.float64)
    point = torch.from_numpy(uniform).to(x.device)[:, None] * cdf[:, -1:]
    tokens = torch.searchsorted(cdf, point, right=True)
    greedy = [i for i, t in enumerate(shaping.temperature) if t == 0.0]
    if greedy:
        rows = torch.tensor(greedy, device=x.device)
        tokens[rows] = x[rows].argmax(-1, keepdim=True)
    logprob = x.gather(1, tokens) - lse
    entropy = torch.special.entr(p).sum(-1) if shaped else lse[:, 0] - (p * x).sum(-1)
    return Draw(tokens[:, 0].tolist(), logprob[:, 0].tolist(), entropy.tolist())


def _truncate(x: Tensor, top_p: Sequence[float], top_k: Sequence[int]) -> Tensor:
    """Set to -inf what lies outside the `top_k` largest and then outside the smallest set of mass `top_p`.  # [n, V]"""
    vocab = x.shape[1]
    order = torch.sort(x, dim=-1, descending=True, stable=True)
    ranked = order.values.double()
    k = torch.tensor([min(k, vocab) if k > 0 else vocab for k in top_k], device=x.device)[:, None]
    ranked = ranked.masked_fill(torch.arange(vocab, device=x.device)[None] >= k, -torch.inf)
    p = torch.softmax(ranked, -1)
    # The mass before a token decides: the first token always stays, and so does the one that crosses top_p.
    outside = p.cumsum(-1) - p >= torch.tensor(top_p, dtype=torch.float64, device=x.device)[:, None]
    outside |= ranked == -torch.inf
    return x.masked_fill(torch.zeros_like(outside).scatter(1, order.indices, outside), -torch.inf)
