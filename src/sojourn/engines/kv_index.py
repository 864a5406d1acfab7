"""Finding the longest known prefix of a prompt.

Chained hashes of whole blocks name every prefix of every known sequence; a hit is compared token by token, so that a
collision can only cost time. Nothing depends on the order of a set or on the seed of Python's hashes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.engines.kv_slab import Seq

BLOCK = 8
"""Tokens in one step of the index; a shorter common beginning is not looked for."""
_CANDIDATES = 32


class Match(NamedTuple):
    """What is known of a prompt."""

    seq: Seq | None
    usable: int
    """Tokens of `seq` that can be taken over now; at most all of the prompt but its last."""
    coming: Seq | None = None
    """A running sequence that will soon hold more of the prompt, by a block at least."""
    until: int = 0
    """Its length from which on it does."""


class PrefixIndex:
    """The known sequences by the hashes of their blocks."""

    def __init__(self) -> None:
        self._seqs: dict[int, dict[Seq, None]] = {}

    def clear(self) -> None:
        self._seqs.clear()

    def match(self, ids: array[int]) -> Match:
        """The known sequence with the longest common prefix; of equals, one that is wholly that prefix."""
        found = self._longest_block(ids)
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
            if not (seqs := self._seqs.get(value)):
                break
            found = seqs
        return found

    def enter(self, seq: Seq) -> None:
        """Index the blocks of `seq.ids` that are not indexed yet."""
        first = len(seq.hashes)
        for value in _hashes(seq.ids, first, seq.hashes[-1] if first else 0):
            seq.hashes.append(value)
            self._seqs.setdefault(value, {})[seq] = None

    def leave(self, seq: Seq, keep: int = 0) -> None:
        """Take all blocks but the first `keep` out of the index."""
        for value in seq.hashes[keep:]:
            seqs = self._seqs[value]
            del seqs[seq]
            if not seqs:
                del self._seqs[value]
        del seq.hashes[keep:]


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
