"""Keys and values of every sequence that the engine knows: slots in slabs for what runs, exact copies for what rests.

A `Slab` is one buffer cut into slots of one length class, so that attention reads a range of slots without gathering.
Buffers are all alike and go from class to class: nothing is copied when the store grows, and no memory is asked for
twice. A sequence that finishes is parked where it lies; when its slot is needed it moves to the cold store, where it
takes no more bytes than it has tokens. All bytes together stay under a bound: the least recently used goes first.

An index of block hashes finds the longest known prefix of a prompt; a hit is compared token by token, so a collision of
hashes can only cost time. Nothing here depends on wall time or on the order of a set: equal calls leave equal states.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 8
"""Tokens in one step of the prefix index."""
_FIRST_CLASS = 64
_BUFFER_BYTES = 64 << 20
_BUFFER_TOKENS = 4096
_CANDIDATES = 32


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


class _LengthClass:
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


class Match(NamedTuple):
    """What is known of a prompt."""

    seq: Seq | None
    usable: int
    """Tokens of `seq` that can be taken over now; at most all of the prompt but its last."""
    coming: Seq | None = None
    """A running sequence that will soon hold more of the prompt, by a block at least."""
    until: int = 0
    """Its length from which on it does."""


class KVStore:
    """Places sequences, finds prefixes, evicts.

    Args:
        limit_bytes: bound on all buffers and cold copies; only running sequences that outgrow their slots exceed it.
        reuse: without it nothing is ever found, and a finished sequence is forgotten.
    """

    def __init__(self, shape: KVShape, *, limit_bytes: int, reuse: bool = True) -> None:
        self.shape = shape
        self.limit_bytes = limit_bytes
        self.reuse = reuse
        self.evictions = 0
        # Large enough that attention runs over many slots at once, small enough that every length class finds one.
        self._buffer_bytes = min(max(_BUFFER_BYTES, _BUFFER_TOKENS * shape.token_bytes), limit_bytes // 8)
        self._spare: list[Tensor] = []
        self._held_bytes = 0
        self._classes: dict[int, _LengthClass] = {}
        self.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers and cold copies."""
        return self._held_bytes + self._cold_bytes

    def clear(self, *, release: bool = False) -> None:
        """Forget everything; the store is then as it was when new (nothing may be running).

        Args:
            release: give the buffers back as well (there may be NaN in them).
        """
        for slab in [slab for kind in self._classes.values() for slab in kind.slabs]:
            self._retire(slab)
        if release:
            self._release_spare()
        self._classes.clear()
        self._numbers = 0
        self._cold: dict[Seq, None] = {}
        self._cold_bytes = 0
        self._index: dict[int, dict[Seq, None]] = {}

    # -- finding

    def match(self, ids: array[int]) -> Match:
        """The known sequence with the longest common prefix; of equals, one that is wholly that prefix."""
        found = self._longest_block(ids) if self.reuse else None
        if not found:
            return Match(None, 0)
        prompt = _view(ids)
        best, best_rank = None, (0, False)
        coming, awaited = None, 0
        for seq, _ in zip(reversed(found), range(_CANDIDATES), strict=False):
            shared = min(_common(prompt, _view(seq.ids)), len(ids) - 1)
            usable = min(shared, seq.length)
            if shared > max(usable, awaited):
                coming, awaited = seq, shared
            rank = (usable, not seq.running and usable == seq.length)
            if rank > best_rank:
                best, best_rank = seq, rank
        if awaited < best_rank[0] + BLOCK:
            return Match(best, best_rank[0])
        return Match(best, best_rank[0], coming, awaited)

    def _longest_block(self, ids: array[int]) -> dict[Seq, None] | None:
        found = None
        for value in _hashes(ids, 0, 0):
            if not (seqs := self._index.get(value)):
                break
            found = seqs
        return found

    # -- placing

    def start(self, ids: array[int], match: Match, room: int, *, force: bool) -> Seq | None:
        """Give `ids` a place for `room` tokens and take over `match`; None when there is no memory now.

        Args:
            force: exceed the bound rather than answer None.
        """
        old = match.seq
        if old is not None and not old.running and match.usable == old.length:
            return self._extend(old, ids, room, force)
        place = self._place(room, force)
        if place is None:
            return None
        seq = Seq(ids)
        seq.slab, seq.slot = place
        if old is not None and match.usable >= BLOCK and old.known:
            self._copy_prefix(old, seq, match.usable)
        self._enter(seq)
        return seq

    def _extend(self, seq: Seq, ids: array[int], room: int, force: bool) -> Seq | None:
        """Let a parked sequence run on in its own place: the usual case, a turn that follows the turn before."""
        self._unrest(seq)
        if seq.slab is None or seq.slab.tokens < room:
            try:
                place = self._place(room, force)
            except BaseException:
                self.drop(seq)
                raise
            if place is None:
                self._rest(seq)
                return None
            self._move(seq, *place)
        seq.running = True
        seq.ids = ids
        self._enter(seq)
        return seq

    def reserve(self, seq: Seq, length: int) -> None:
        """Make room for `length` tokens in a running sequence, moving it to a longer class if need be."""
        assert seq.slab is not None
        if seq.slab.tokens < length:
            place = self._place(length, force=True)
            assert place is not None
            self._move(seq, *place)

    def park(self, seq: Seq) -> None:
        """A running sequence has ended: keep what was computed of it for whoever extends it."""
        seq.running = False
        if not self.reuse or seq.length < BLOCK:
            self.drop(seq)
            return
        del seq.ids[seq.length :]
        self._leave(seq, seq.length // BLOCK)
        self._enter(seq)
        self._rest(seq)

    def drop(self, seq: Seq) -> None:
        """Forget a sequence that does not rest, and free its slot."""
        seq.running = False
        self._leave(seq)
        self._vacate(seq)
        seq.length = 0

    # -- memory

    def _place(self, room: int, force: bool) -> tuple[Slab, int] | None:
        tokens = length_class(room)
        kind = self._classes.setdefault(tokens, _LengthClass())
        if place := kind.take():
            return place
        # Few parked slots among the running ones keep the ranges that attention reads dense.
        if len(kind.parked) > kind.slots // 4:
            self._demote(next(iter(kind.parked)))
            if place := kind.take():  # none when the slab became empty, and so no slab of this class
                return place
        if not self._add_slab(kind, tokens, force=False):
            if kind.parked:
                self._demote(next(iter(kind.parked)))
            if force and not any(slab.free for slab in kind.slabs):
                self._add_slab(kind, tokens, force=True)
        return kind.take()

    def _add_slab(self, kind: _LengthClass, tokens: int, *, force: bool) -> bool:
        slot = tokens * self.shape.token_bytes
        if self._spare and slot <= self._buffer_bytes:
            buffer = self._spare.pop()
        else:
            size = max(self._buffer_bytes, slot)
            if not (self._make_room(size, slabs=True) or force):
                return False
            buffer = self._zeros(size)
            self._held_bytes += size
        self._numbers += 1
        kind.slabs.append(Slab(self._numbers, self.shape, tokens, buffer))
        return True

    def _retire(self, slab: Slab) -> None:
        """Take back the buffer of a slab in which nothing lies."""
        self._classes[slab.tokens].slabs.remove(slab)
        if slab.buffer.nbytes == self._buffer_bytes and self.nbytes <= self.limit_bytes:
            self._spare.append(slab.buffer)
        else:
            self._held_bytes -= slab.buffer.nbytes

    def _make_room(self, more: int, *, slabs: bool = False) -> bool:
        """Get `more` bytes under the bound; False if it cannot be done.

        Spare buffers go first, then with `slabs` the slabs in which nothing runs, then what is cold.
        """
        if self.nbytes + more > self.limit_bytes:
            self._release_spare()
        if slabs and self._held_bytes + more > self.limit_bytes:
            self._evict_slabs(self._held_bytes + more - self.limit_bytes)
        if self._held_bytes + more > self.limit_bytes:
            return False
        while self.nbytes + more > self.limit_bytes:
            self._evict(next(iter(self._cold)))
        return True

    def _evict_slabs(self, wanted: int) -> None:
        """Give back slabs in which nothing runs, the oldest first, until `wanted` bytes are free."""
        idle = [s for k in self._classes.values() for s in k.slabs if len(s.free) + s.resting == s.slots]
        for slab in sorted(idle, key=lambda s: s.number):
            if wanted <= 0:
                return
            for seq in [seq for seq in self._classes[slab.tokens].parked if seq.slab is slab]:
                self._evict(seq)
            self._release_spare()
            wanted -= slab.buffer.nbytes

    def _release_spare(self) -> None:
        self._held_bytes -= sum(buffer.nbytes for buffer in self._spare)
        self._spare.clear()

    def _zeros(self, size: int) -> Tensor:
        # Zeros, not garbage: a masked position has weight 0, and 0 * NaN would still be NaN. numpy's come from calloc,
        # which costs nothing until a page is written.
        if self.shape.device.type == "cpu":
            return torch.from_numpy(np.zeros(size, dtype=np.uint8))
        return torch.zeros(size, dtype=torch.uint8, device=self.shape.device)

    def _demote(self, seq: Seq) -> None:
        """Move a parked sequence out of its slot, into the cold store if it fits."""
        if not self._make_room(seq.length * self.shape.token_bytes):
            self._evict(seq)
            return
        cold = _stored(seq, seq.length).clone()
        self._unrest(seq)
        self._vacate(seq)
        seq.cold = cold
        self._rest(seq)

    def _evict(self, seq: Seq) -> None:
        self._unrest(seq)
        self.drop(seq)
        self.evictions += 1

    def _rest(self, seq: Seq) -> None:
        """Enter a sequence as the most recently used of those at rest."""
        if seq.slab is not None:
            self._classes[seq.slab.tokens].parked[seq] = None
            seq.slab.resting += 1
        else:
            self._cold[seq] = None
            self._cold_bytes += seq.length * self.shape.token_bytes

    def _unrest(self, seq: Seq) -> None:
        if seq.slab is not None:
            del self._classes[seq.slab.tokens].parked[seq]
            seq.slab.resting -= 1
        else:
            del self._cold[seq]
            self._cold_bytes -= seq.length * self.shape.token_bytes

    def _vacate(self, seq: Seq) -> None:
        slab = seq.slab
        seq.slab, seq.slot, slot, seq.cold = None, -1, seq.slot, None
        if slab is not None:
            heapq.heappush(slab.free, slot)
            if len(slab.free) == slab.slots:
                self._retire(slab)

    def _move(self, seq: Seq, slab: Slab, slot: int) -> None:
        if seq.length:
            slab.kv[:, :, slot, :, : seq.length] = _stored(seq, seq.length)
        self._vacate(seq)
        seq.slab, seq.slot = slab, slot

    def _copy_prefix(self, source: Seq, target: Seq, length: int) -> None:
        assert target.slab is not None
        target.slab.kv[:, :, target.slot, :, :length] = _stored(source, length)
        target.length = length
        if not source.running:
            self._unrest(source)
            self._rest(source)

    # -- index

    def _enter(self, seq: Seq) -> None:
        """Index the blocks of `seq.ids` that are not indexed yet."""
        if not self.reuse:
            return
        first = len(seq.hashes)
        for value in _hashes(seq.ids, first, seq.hashes[-1] if first else 0):
            seq.hashes.append(value)
            self._index.setdefault(value, {})[seq] = None

    def _leave(self, seq: Seq, keep: int = 0) -> None:
        """Take all blocks but the first `keep` out of the index."""
        for value in seq.hashes[keep:]:
            seqs = self._index[value]
            del seqs[seq]
            if not seqs:
                del self._index[value]
        del seq.hashes[keep:]


def length_class(tokens: int) -> int:
    """The smallest of 64, 96, 128, 192, 256, 384... that holds `tokens`: at most a third of a slot lies idle."""
    size = _FIRST_CLASS
    while size < tokens:
        if size * 3 // 2 >= tokens:
            return size * 3 // 2
        size *= 2
    return size


def _stored(seq: Seq, length: int) -> Tensor:
    """Keys and values of the first `length` tokens.  # [layers, 2, heads, length, head_dim]"""
    if seq.slab is not None:
        return seq.slab.kv[:, :, seq.slot, :, :length]
    assert seq.cold is not None
    return seq.cold[:, :, :, :length]


def _hashes(ids: array[int], first: int, value: int) -> Iterator[int]:
    """Chained hashes of the whole blocks from number `first` on; `value` is the hash of the block before."""
    data = memoryview(ids).cast("B")
    size = BLOCK * ids.itemsize
    for start in range(first * size, len(ids) // BLOCK * size, size):
        value = hash((value, bytes(data[start : start + size])))
        yield value


def _view(ids: array[int]) -> NDArray[np.int32]:
    return np.frombuffer(ids, dtype=np.int32)


def _common(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    at = int(differs.argmax()) if n else 0
    return at if n and differs[at] else n
