"""One forward pass over rows of any length: tokens lie flat, and attention finds each row's keys in its slot.

The model sees a single sequence of all the new tokens, `[1, N]` with explicit positions, so that everything but
attention runs without padding. Our cache layer writes the new keys and values to (slot, position); our attention
function, registered with transformers as `sojourn_slots`, gathers the queries of each `Bucket` and attends over its
slots with `sdpa`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sojourn.engines.kv_slab import Seq, Slab

ATTENTION = "sojourn_slots"
_DENSE = 0.5
"""Attend over a range of slots when at least this share of it takes part; copying rows out costs about twice a read."""


@dataclass(slots=True)
class Piece:
    """The new tokens of one row: `count` of them, from position `seq.length` on."""

    seq: Seq
    count: int


@dataclass(slots=True)
class Bucket:
    """Rows of one slab with about as many new tokens; attention runs once for each bucket."""

    slab: Slab
    rows: slice | Tensor
    """The slots: a range (idle ones among them compute what nobody reads), or their numbers."""
    shape: tuple[int, int]
    """(rows, width): queries are padded to it."""
    tokens: Tensor
    """Numbers of the bucket's tokens in the flat batch.  # [n]"""
    places: Tensor
    """Where each goes in the padded queries.  # [n]"""
    positions: Tensor
    """Position of each padded query; 0 for those that are not there.  # [rows, width]"""
    length: int
    """Keys to look at: the longest row's."""
    masks: dict[tuple[int | None, int], Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, groups: int, dtype: torch.dtype) -> Tensor:
        """Additive mask, made once for all layers.  # [rows, 1, groups * width, length]"""
        if (window, groups) not in self.masks:
            keys = torch.arange(self.length, device=self.positions.device)
            at = self.positions[:, None, :, None]
            hidden = keys > at
            if window is not None:
                hidden |= keys <= at - window
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
            self.masks[window, groups] = mask.repeat(1, 1, groups, 1) if groups > 1 else mask
        return self.masks[window, groups]

    def attend(self, query: Tensor, layer: int, scale: float | None, window: int | None) -> Tensor:
        """Outputs of the bucket's tokens.  # query [N, heads, head_dim] -> [n, heads, head_dim]"""
        kv = self.slab.kv[layer]
        key, value = kv[0, self.rows, :, : self.length], kv[1, self.rows, :, : self.length]
        n, width = self.shape
        heads, dim = query.shape[1:]
        groups = heads // key.shape[1]
        padded = query.new_zeros(n * width, heads, dim)
        padded[self.places] = query[self.tokens]
        # The query heads of one key head lie along the query axis, so that keys and values are never repeated.
        q = padded.view(n, width, -1, groups, dim).permute(0, 2, 3, 1, 4).reshape(n, -1, groups * width, dim)
        out = scaled_dot_product_attention(q, key, value, attn_mask=self.mask(window, groups, q.dtype), scale=scale)
        out = out.view(n, -1, groups, width, dim).permute(0, 3, 1, 2, 4).reshape(n * width, heads, dim)
        return out[self.places]


@dataclass(slots=True)
class Plan:
    """What one forward pass reads and writes; `pieces` is in the order of the flat batch."""

    pieces: list[Piece]
    ids: Tensor  # [1, N]
    positions: Tensor  # [1, N]
    last: Tensor
    """Number of each piece's last token.  # [rows]"""
    writes: list[tuple[Slab, int, int, Tensor]]
    """Slab, its range of flat tokens, and the row of each (token, head) in the slab seen as [rows, head_dim]."""
    buckets: list[Bucket]

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Store new keys and values.  # [1, heads, N, head_dim]"""
        for slab, start, stop, rows in self.writes:
            for half, new in enumerate((key, value)):
                flat = new[0, :, start:stop].transpose(0, 1)
                slab.kv[layer, half].view(-1, flat.shape[-1])[rows] = flat.reshape(-1, flat.shape[-1])

    def attend(self, query: Tensor, layer: int, scale: float | None, window: int | None) -> Tensor:
        """Attention outputs of all tokens.  # [1, heads, N, head_dim] -> [1, N, heads, head_dim]"""
        q = query[0].transpose(0, 1)
        if len(self.buckets) == 1 and len(self.buckets[0].tokens) == len(q):
            return self.buckets[0].attend(q, layer, scale, window)[None]
        out = torch.empty_like(q)
        for bucket in self.buckets:
            out[bucket.tokens] = bucket.attend(q, layer, scale, window)
        return out[None]


def plan_of(pieces: Sequence[Piece], device: torch.device) -> Plan:
    """Lay the new tokens of rows out flat, slab by slab and slot by slot."""
    ordered = sorted(pieces, key=lambda p: (_slab(p).number, p.seq.slot))
    counts = np.array([p.count for p in ordered])
    starts = np.concatenate([[0], np.cumsum(counts)])
    first = np.array([p.seq.length for p in ordered])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    positions = np.repeat(first, counts) + within
    slots = np.array([p.seq.slot for p in ordered])
    ids: list[int] = []
    for piece in ordered:
        begin = piece.seq.length
        ids.extend(piece.seq.ids[begin : begin + piece.count])
    plan = Plan(
        pieces=ordered,
        ids=torch.tensor([ids], device=device),
        positions=torch.from_numpy(positions).to(device)[None],
        last=torch.from_numpy(starts[1:] - 1).to(device),
        writes=[],
        buckets=[],
    )
    for a, b in _runs([_slab(p).number for p in ordered]):
        slab = _slab(ordered[a])
        start, stop = int(starts[a]), int(starts[b])
        at = np.repeat(slots[a:b], counts[a:b])[:, None] * slab.shape.heads + np.arange(slab.shape.heads)
        rows = at * slab.tokens + positions[start:stop, None]
        plan.writes.append((slab, start, stop, torch.from_numpy(rows.reshape(-1)).to(device)))
        for members in _by_width(counts, a, b):
            plan.buckets.append(_bucket(slab, members, counts, starts, first, slots, device))
    return plan


def _slab(piece: Piece) -> Slab:
    assert piece.seq.slab is not None
    return piece.seq.slab


def _runs(keys: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of equal keys."""
    cuts = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    return list(zip(cuts, [*cuts[1:], len(keys)], strict=True))


def _by_width(counts: np.ndarray[Any, Any], a: int, b: int) -> list[np.ndarray[Any, Any]]:
    """Rows a to b in groups of similar count: single tokens for themselves, else at most half as much again."""
    order = np.argsort(counts[a:b], kind="stable") + a
    groups: list[list[int]] = []
    narrowest = 0
    for row in order.tolist():
        count = int(counts[row])
        if not groups or (narrowest == 1 and count > 1) or count > narrowest * 3 // 2 + 4:
            groups.append([])
            narrowest = count
        groups[-1].append(row)
    return [np.sort(np.array(g)) for g in groups]


def _bucket(
    slab: Slab,
    members: np.ndarray[Any, Any],
    counts: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
    first: np.ndarray[Any, Any],
    slots: np.ndarray[Any, Any],
    device: torch.device,
) -> Bucket:
    count, slot = counts[members], slots[members]
    width, low, high = int(count.max()), int(slot.min()), int(slot.max()) + 1
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    dense = len(members) >= _DENSE * (high - low)
    row = slot - low if dense else np.arange(len(members))
    n = high - low if dense else len(members)
    places = np.repeat(row, count) * width + within
    at = np.repeat(first[members], count) + within
    positions = np.zeros(n * width, dtype=np.int64)
    positions[places] = at
    return Bucket(
        slab=slab,
        rows=slice(low, high) if dense else torch.from_numpy(slot).to(device),
        shape=(n, width),
        tokens=torch.from_numpy(np.repeat(starts[members], count) + within).to(device),
        places=torch.from_numpy(places).to(device),
        positions=torch.from_numpy(positions.reshape(n, width)).to(device),
        length=int(at.max()) + 1,
    )


class _Current(threading.local):
    plan: Plan | None = None


_current = _Current()
"""The plan of the forward pass that this thread runs: how our attention function learns of it in any model."""


class _SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Writes to the slots of the current plan; reading is the attention function's business."""

    def __init__(self, layer: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layer = layer

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        assert _current.plan is not None
        _current.plan.write(self.layer, key_states, value_states)
        return key_states, value_states

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return int(query_length), 0

    def get_seq_length(self, *args: Any) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:  # the name of get_max_length in earlier releases of transformers 5
        return -1


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    if softcap is not None or kwargs.get("s_aux") is not None:
        raise ValueError("the hf engine has no attention with soft-capped logits or sinks")
    assert _current.plan is not None, f"{ATTENTION} attention is for the hf engine's own copy of a model"
    return _current.plan.attend(query, module.layer_idx, scaling, sliding_window), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)


class Forward:
    """Logits of the last token of each row of a plan."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        model.set_attn_implementation(ATTENTION)
        if model.config._attn_implementation != ATTENTION:
            raise ValueError(f"{type(model).__name__} has no exchangeable attention, which the hf engine needs")
        layers = model.config.get_text_config().num_hidden_layers
        self._cache = Cache(layers=[_SlotLayer(i) for i in range(layers)])
        forward: Callable[..., Any] = model.forward
        names = inspect.signature(forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    def __call__(self, plan: Plan, last: Tensor) -> Tensor:
        """Run the plan and return the logits of the flat tokens numbered `last`.  # [rows] -> [rows, V]"""
        _current.plan = plan
        try:
            out = self._model(
                input_ids=plan.ids,
                position_ids=plan.positions,
                use_cache=True,
                logits_to_keep=last,
                **{self._cache_name: self._cache},
            )
        finally:
            _current.plan = None
        logits: Tensor = out.logits[0]
        return logits
