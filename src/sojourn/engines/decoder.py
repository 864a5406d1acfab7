"""Continuous batching without threads: rows are submitted, `step` runs one forward pass, finished rows are handed back.

Each step takes one new token of every row that decodes and, up to a budget, the prompt tokens of rows that have just
come. A row whose prompt is being computed by another row (siblings of a group, a common system prompt) waits for it and
then copies its keys and values.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from sojourn.engines.attention import Forward, Piece, plan_of
from sojourn.engines.kv import KVStore
from sojourn.engines.kv_index import Match
from sojourn.engines.kv_slab import KVShape, Seq
from sojourn.engines.sampling import Shaping, draw, uniforms
from sojourn.protocol.messages import Completion, Finish, SamplingParams

_ROOM = 32
"""Tokens beyond its prompt for which a row gets a place at first."""


_NOTHING = Match(None, 0)


@dataclass(slots=True, eq=False)
class Row:
    """One completion in the making."""

    prompt: array[int]
    sampling: SamplingParams
    seed: int
    stop: frozenset[int]
    limit: int
    """Tokens at which it ends: `max_tokens` or what the context leaves."""
    done: Callable[[Completion | Exception], None]
    """Called once, in the thread that steps."""
    abandoned: bool = False
    """Nobody waits any more: it leaves at the next step."""
    version: int = 0
    seq: Seq | None = None
    awaited: Match = _NOTHING
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)

    def completion(self, finish: Finish) -> Completion:
        return Completion(self.ids, self.logprobs, finish, self.version, self.entropy)


@dataclass(slots=True)
class Counters:
    """What has been done since the start."""

    requests: int = 0
    tokens_prefilled: int = 0
    """Prompt tokens that went through the model."""
    tokens_reused: int = 0
    """Prompt tokens whose keys and values were already there."""
    tokens_generated: int = 0
    batches: int = 0
    """Forward passes."""
    busy_s: float = 0.0


class Decoder:
    """The model, the KV store and the rows that wait or run. Not thread-safe: one thread owns it.

    Args:
        model: will only be called here; its attention is replaced.
        max_rows: rows that run at once.
        prefill_tokens: prompt tokens that one step takes at most.
        cache_bytes: bound on keys and values.
        reuse: take over the keys and values of known prefixes.
    """

    def __init__(
        self, model: PreTrainedModel, *, max_rows: int, prefill_tokens: int, cache_bytes: int, reuse: bool
    ) -> None:
        self.device = model.device
        self.counters = Counters()
        self.version = 0
        self._forward = Forward(model)
        self.kv = KVStore(_kv_shape(model), limit_bytes=cache_bytes, reuse=reuse)
        self._max_rows = max_rows
        self._prefill_tokens = prefill_tokens
        self._waiting: deque[Row] = deque()
        self._running: list[Row] = []

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def submit(self, row: Row) -> None:
        self._waiting.append(row)

    def step(self) -> None:
        """Admit what fits, run one forward pass, hand back what finished or failed."""
        started = time.perf_counter()
        self._leave_abandoned()
        self._admit()
        rows = self._running
        try:
            self._advance(rows)
        except Exception as error:
            # Whatever went wrong (memory, a kernel, weights that are NaN) is these rows' end; others may do better.
            self.fail(error, rows)
            self.kv.clear(release=True)
        self.counters.busy_s += time.perf_counter() - started

    def fail(self, error: Exception, rows: Iterable[Row] | None = None) -> None:
        """End `rows`, or else all rows, with `error`."""
        chosen = set(self._running) | set(self._waiting) if rows is None else set(rows)
        for row in [r for r in (*self._running, *self._waiting) if r in chosen]:
            if row.seq is not None:
                self.kv.drop(row.seq)
            row.done(error)
        self._running = [r for r in self._running if r not in chosen]
        self._waiting = deque(r for r in self._waiting if r not in chosen)

    # -- admission

    def _leave_abandoned(self) -> None:
        if any(r.abandoned for r in self._waiting):
            self._waiting = deque(r for r in self._waiting if not r.abandoned)
        if any(r.abandoned for r in self._running):
            for row in self._running:
                if row.abandoned and row.seq is not None:
                    self.kv.park(row.seq)
            self._running = [r for r in self._running if not r.abandoned]

    def _admit(self) -> None:
        """Start waiting rows in their order; one that should wait for another's prompt lets the next ones pass."""
        later: list[Row] = []
        while self._waiting and len(self._running) < self._max_rows:
            row = self._waiting.popleft()
            try:
                started = self._start(row)
            except Exception as error:
                row.done(error)
                continue
            if not started:
                later.append(row)
                if row.awaited.coming is None:
                    break
        self._waiting.extendleft(reversed(later))

    def _start(self, row: Row) -> bool:
        """Give the row a place; False when it has to wait, for memory or for the row that computes its prompt."""
        coming = row.awaited.coming
        if coming is not None and coming.running and coming.length < row.awaited.until:
            return False
        row.awaited = self.kv.match(row.prompt)
        return row.awaited.coming is None and self._place(row, row.awaited)

    def _place(self, row: Row, match: Match) -> bool:
        # A copy: the sequence's ids grow, and the row may yet have to be placed again.
        room = len(row.prompt) + min(row.limit, _ROOM)
        seq = self.kv.start(array("i", row.prompt), match, room, force=not self._running)
        if seq is None:
            return False
        row.seq, row.version = seq, self.version
        self._running.append(row)
        self.counters.requests += 1
        self.counters.tokens_reused += seq.length
        return True

    # -- one forward pass

    def _advance(self, rows: list[Row]) -> None:
        budget = self._prefill_tokens
        chosen: dict[Seq, Row] = {}
        pieces: list[Piece] = []
        for row in rows:
            seq = _seq(row)
            count = len(seq.ids) - seq.length
            if count > 1 or not row.ids:
                count = min(count, budget)
                budget -= count
                self.counters.tokens_prefilled += count
            if count:
                self.kv.reserve(seq, seq.length + count)
                pieces.append(Piece(seq, count))
                chosen[seq] = row
        if not pieces:
            return
        plan = plan_of(pieces, self.device)
        drawing = [i for i, p in enumerate(plan.pieces) if p.seq.length + p.count == len(p.seq.ids)]
        last = plan.last[torch.tensor(drawing, dtype=torch.long, device=self.device)]
        logits = self._forward(plan, last)
        for piece in plan.pieces:
            piece.seq.length += piece.count
        self.counters.batches += 1
        if drawing:
            self._draw([chosen[plan.pieces[i].seq] for i in drawing], logits)

    def _draw(self, rows: list[Row], logits: torch.Tensor) -> None:
        seeds = np.array([r.seed for r in rows], dtype=np.uint64)
        numbers = np.array([len(r.ids) for r in rows], dtype=np.uint64)
        shaping = Shaping(
            [r.sampling.temperature for r in rows], [r.sampling.top_p for r in rows], [r.sampling.top_k for r in rows]
        )
        drawn = draw(logits, shaping, uniforms(seeds, numbers))
        self.counters.tokens_generated += len(rows)
        finished: dict[Row, Finish] = {}
        for row, token, logprob, entropy in zip(rows, drawn.tokens, drawn.logprobs, drawn.entropy, strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.entropy.append(entropy)
            _seq(row).ids.append(token)
            if token in row.stop:
                finished[row] = "stop"
            elif len(row.ids) >= row.limit:
                finished[row] = "length"
        if finished:
            self._running = [r for r in self._running if r not in finished]
            for row, finish in finished.items():
                self.kv.park(_seq(row))
                row.done(row.completion(finish))


def _seq(row: Row) -> Seq:
    assert row.seq is not None
    return row.seq


def _kv_shape(model: PreTrainedModel) -> KVShape:
    config: Any = model.config.get_text_config()
    heads = config.num_attention_heads
    return KVShape(
        layers=config.num_hidden_layers,
        heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=model.dtype,
        device=model.device,
    )
