"""Where keys and values lie: sequences of tokens, and slabs of slots for those that run."""

from __future__ import annotations

import heapq
from array import array
from dataclasses import dataclass

import torch
from torch import Tensor

_FIRST_CLASS = 64


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one token's keys and values take."""

    layers: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        return 2 * self.layers * self.heads * self.head_dim * self.dtype.itemsize


class Seq:
    """Token ids, of which the first `length` have keys and values in a slot of a slab or in `cold`."""

    __slots__ = ("cold", "hashes", "ids", "length", "running", "slab", "slot")

    def __init__(self, ids: array[int]) -> None:
        self.ids = ids
        self.length = 0
        self.slab: Slab | None = None
        self.slot = -1
        self.cold: Tensor | None = None  # [layers, 2, heads, length, head_dim]
        self.hashes: list[int] = []
        self.running = True

    @property
    def known(self) -> bool:
        """Whether its keys and values still lie somewhere."""
        return self.slab is not None or self.cold is not None


class Slab:
    """One buffer as slots of one length class: `kv` is [layers, 2, slots, heads, tokens, head_dim]."""

    __slots__ = ("buffer", "free", "kv", "number", "resting", "shape", "slots", "tokens")

    def __init__(self, number: int, shape: KVShape, tokens: int, buffer: Tensor) -> None:
        self.number = number
        self.shape = shape
        self.tokens = tokens
        self.buffer = buffer
        self.slots = buffer.nbytes // (tokens * shape.token_bytes)
        self.free = list(range(self.slots))  # a heap: the lowest first keeps the slots in use close together
        self.resting = 0
        flat = buffer[: self.slots * tokens * shape.token_bytes].view(shape.dtype)
        self.kv = flat.view(shape.layers, 2, self.slots, shape.heads, tokens, shape.head_dim)


class LengthClass:
    """The slabs of one slot length, and what is parked in them, least recently used first."""

    def __init__(self) -> None:
        self.slabs: list[Slab] = []
        self.parked: dict[Seq, None] = {}

    @property
    def slots(self) -> int:
        return sum(slab.slots for slab in self.slabs)

    def take(self) -> tuple[Slab, int] | None:
        for slab in self.slabs:
            if slab.free:
                return slab, heapq.heappop(slab.free)
        return None


def length_class(tokens: int) -> int:
    """The smallest of 64, 96, 128, 192, 256, 384... that holds `tokens`: at most a third of a slot lies idle."""
    size = _FIRST_CLASS
    while size < tokens:
        if size * 3 // 2 >= tokens:
            return size * 3 // 2
        size *= 2
    return size


def stored(seq: Seq, length: int) -> Tensor:
    """Keys and values of the first `length` tokens.  # [layers, 2, heads, length, head_dim]"""
    if seq.slab is not None:
        return seq.slab.kv[:, :, seq.slot, :, :length]
    assert seq.cold is not None
    return seq.cold[:, :, :, :length]
