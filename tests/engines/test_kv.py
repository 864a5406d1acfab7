"""The KV store: what it hands out is what was computed for that very prefix, within its bound, whatever came before."""

from __future__ import annotations

import random
from array import array

import pytest
import torch

from sojourn.engines.kv import KVStore
from sojourn.engines.kv_index import BLOCK
from sojourn.engines.kv_slab import KVShape, Seq, length_class

SHAPE = KVShape(layers=2, heads=2, head_dim=4, dtype=torch.float32, device=torch.device("cpu"))


def fingerprint(ids: array[int]) -> torch.Tensor:
    """One number for each position that depends on all tokens up to it."""
    value, out = 1, []
    for token in ids:
        value = (value * 31 + token + 7) % 65_521
        out.append(float(value))
    return torch.tensor(out)


def compute(seq: Seq) -> None:
    """Stand in for the model: write the keys and values of what is not computed yet."""
    assert seq.slab is not None
    seq.slab.kv[:, :, seq.slot, :, seq.length : len(seq.ids)] = fingerprint(seq.ids)[seq.length :, None]
    seq.length = len(seq.ids)


def held(seq: Seq) -> torch.Tensor:
    kv = seq.slab.kv[:, :, seq.slot] if seq.slab is not None else seq.cold
    assert kv is not None
    return kv[:, :, :, : seq.length]


def correct(seq: Seq) -> bool:
    return bool((held(seq) == fingerprint(seq.ids)[: seq.length, None]).all())


def begin(store: KVStore, ids: list[int], *, force: bool = True) -> Seq | None:
    prompt = array("i", ids)
    return store.start(array("i", ids), store.match(prompt), len(ids) + 4, force=force)


def finished(store: KVStore, ids: list[int]) -> Seq:
    seq = begin(store, ids)
    assert seq is not None
    compute(seq)
    store.park(seq)
    return seq


def test_a_following_turn_runs_on_in_place():
    store = KVStore(SHAPE, limit_bytes=1 << 20)
    first = finished(store, list(range(20)))
    slab, slot = first.slab, first.slot
    second = begin(store, list(range(30)))
    assert second is first
    assert (second.slab, second.slot, second.length) == (slab, slot, 20)


def test_a_prompt_that_ends_inside_what_is_known_is_copied_but_for_its_last_token():
    store = KVStore(SHAPE, limit_bytes=1 << 20)
    known = finished(store, list(range(40)))
    for length in (30, 40):
        seq = begin(store, list(range(length)))
        assert seq is not None
        assert seq is not known
        assert seq.length == length - 1
        assert correct(seq)
    assert known.length == 40
    assert correct(known)


def test_a_diverging_prompt_copies_the_common_part_to_the_token():
    store = KVStore(SHAPE, limit_bytes=1 << 20)
    finished(store, list(range(40)))
    seq = begin(store, [*range(21), 99, 98, 97])
    assert seq is not None
    assert seq.length == 21
    assert correct(seq)


def test_less_than_a_block_is_not_looked_for():
    store = KVStore(SHAPE, limit_bytes=1 << 20)
    finished(store, list(range(40)))
    assert store.match(array("i", [*range(BLOCK - 1), 77, 78])).usable == 0


def test_a_running_sequence_is_awaited_and_then_copied():
    store = KVStore(SHAPE, limit_bytes=1 << 20)
    leader = begin(store, list(range(32)))
    assert leader is not None
    match = store.match(array("i", list(range(32))))
    assert match.coming is leader
    assert match.until == 31
    assert match.usable == 0
    compute(leader)
    match = store.match(array("i", list(range(32))))
    assert match.coming is None
    assert match.seq is leader
    assert match.usable == 31


def test_without_reuse_nothing_is_found_and_nothing_kept():
    store = KVStore(SHAPE, limit_bytes=1 << 20, reuse=False)
    finished(store, list(range(40)))
    assert store.match(array("i", list(range(40)))) == (None, 0, None, 0)


def test_a_sequence_that_outgrows_its_slot_moves_with_its_keys():
    store = KVStore(SHAPE, limit_bytes=1 << 20)
    seq = begin(store, list(range(50)))
    assert seq is not None
    assert seq.slab is not None
    assert seq.slab.tokens == 64
    compute(seq)
    store.reserve(seq, 65)
    assert seq.slab.tokens == 96
    assert seq.length == 50
    assert correct(seq)


def test_the_least_recently_used_goes_first():
    token = SHAPE.token_bytes
    store = KVStore(SHAPE, limit_bytes=8 * 64 * token)
    prompts = [[100 * i + j for j in range(60)] for i in range(40)]
    for ids in prompts:
        finished(store, ids)
        assert store.nbytes <= store.limit_bytes
        assert store.match(array("i", prompts[0])).usable >= 59 or store.evictions
        finished(store, [*prompts[0], 1])  # the first one is used again and again
    assert store.evictions > 0
    known = [store.match(array("i", ids)).usable > 0 for ids in prompts]
    assert known[0]
    assert known[-1]
    assert not known[1]
    assert not known[2]


def test_a_prompt_waits_for_memory_unless_nothing_runs():
    store = KVStore(SHAPE, limit_bytes=4 * 64 * SHAPE.token_bytes)
    running = [begin(store, [i] * 60, force=False) for i in range(6)]
    assert running[0] is not None
    assert running[-1] is None
    forced = begin(store, [9] * 600)
    assert forced is not None
    assert forced.slab is not None
    assert forced.slab.tokens >= 600


def test_clear_leaves_a_store_like_new():
    def use(store: KVStore) -> list[tuple[int, int, int]]:
        draws = random.Random(3)
        places = []
        for _ in range(60):
            seq = finished(store, [draws.randrange(3) for _ in range(draws.randrange(10, 90))])
            places.append((seq.slab.number if seq.slab else -1, seq.slot, seq.length))
        return places

    store = KVStore(SHAPE, limit_bytes=12 * 96 * SHAPE.token_bytes)
    before = use(store)
    store.clear()
    assert store.match(array("i", list(range(40)))).usable == 0
    assert use(store) == before


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_only_ever_hand_out_the_right_keys(seed: int):
    draws = random.Random(seed)
    limit = draws.choice([6, 20, 100]) * 96 * SHAPE.token_bytes
    store = KVStore(SHAPE, limit_bytes=limit)
    running: list[Seq] = []
    for _ in range(400):
        kind = draws.random()
        if kind < 0.45 and len(running) < 12:
            # Few tokens and many common beginnings: prefixes collide all the time.
            ids = [0] * draws.randrange(0, 40) + [draws.randrange(2) for _ in range(draws.randrange(1, 60))]
            if draws.random() < 0.5 and running:
                other = draws.choice(running)
                ids = [*other.ids[: draws.randrange(1, len(other.ids) + 1)], draws.randrange(2)]
            if (seq := begin(store, ids, force=not running)) is not None:
                assert seq.length < len(ids)
                assert correct(seq)
                running.append(seq)
        elif kind < 0.75 and running:
            seq = draws.choice(running)
            compute(seq)
            seq.ids.append(draws.randrange(2))
            store.reserve(seq, len(seq.ids))
        elif running:
            seq = running.pop(draws.randrange(len(running)))
            store.drop(seq) if draws.random() < 0.1 else store.park(seq)
        assert all(correct(seq) for seq in running)
        places = [(seq.slab.number, seq.slot) for seq in running if seq.slab]
        assert len(set(places)) == len(running)
    for seq in running:
        store.drop(seq)
    assert store.nbytes <= store.limit_bytes or not store.limit_bytes
    store.clear(release=True)
    assert store.nbytes == 0


@pytest.mark.parametrize(
    ("tokens", "size"), [(1, 64), (64, 64), (65, 96), (97, 128), (129, 192), (500, 512), (513, 768)]
)
def test_length_classes(tokens: int, size: int):
    assert length_class(tokens) == size
