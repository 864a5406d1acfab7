"""Keys and values of every sequence that the engine knows: slots in slabs for what runs, exact copies for what rests.

A `Slab` is one buffer cut into slots of one length class, so that attention reads a range of slots without gathering.
Buffers are all alike and go from class to class: nothing is copied when the store grows, and no memory is asked for
twice. A sequence that finishes is parked where it lies; when its slot is needed it moves to the cold store, where it
takes no more bytes than it has tokens. All bytes together stay under a bound: the least recently used goes first.

Nothing here depends on wall time or on the order of a set: equal calls leave equal states.
"""

from __future__ import annotations

import heapq
from array import array

import numpy as np
import torch
from torch import Tensor

from sojourn.engines.kv_index import BLOCK, Match, PrefixIndex
from sojourn.engines.kv_slab import KVShape, LengthClass, Seq, Slab, length_class, stored

_BUFFER_BYTES = 64 << 20
_BUFFER_TOKENS = 4096


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
        self._classes: dict[int, LengthClass] = {}
        self._index = PrefixIndex()
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
        self._index.clear()

    def match(self, ids: array[int]) -> Match:
        """The known sequence with the longest common prefix; of equals, one that is wholly that prefix."""
        return self._index.match(ids)

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
        self._index_blocks(seq)
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
        self._index_blocks(seq)
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
        self._index.leave(seq, seq.length // BLOCK)
        self._index_blocks(seq)
        self._rest(seq)

    def drop(self, seq: Seq) -> None:
        """Forget a sequence that does not rest, and free its slot."""
        seq.running = False
        self._index.leave(seq)
        self._vacate(seq)
        seq.length = 0

    def _index_blocks(self, seq: Seq) -> None:
        if self.reuse:
            self._index.enter(seq)

    # -- memory

    def _place(self, room: int, force: bool) -> tuple[Slab, int] | None:
        tokens = length_class(room)
        kind = self._classes.setdefault(tokens, LengthClass())
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

    def _add_slab(self, kind: LengthClass, tokens: int, *, force: bool) -> bool:
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
        cold = stored(seq, seq.length).clone()
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
            slab.kv[:, :, slot, :, : seq.length] = stored(seq, seq.length)
        self._vacate(seq)
        seq.slab, seq.slot = slab, slot

    def _copy_prefix(self, source: Seq, target: Seq, length: int) -> None:
        assert target.slab is not None
        target.slab.kv[:, :, target.slot, :, :length] = stored(source, length)
        target.length = length
        if not source.running:
            self._unrest(source)
            self._rest(source)
