from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.evaluation.tasks import permuted
from sojourn.trainer.tasks import SamplerState, Source, draw


@settings(deadline=None)
@given(st.integers(1, 300), st.text(max_size=8))
def test_permutation(total, key):
    assert sorted(permuted(i, total, key=key) for i in range(total)) == list(range(total))


def test_permutations_differ_by_key_and_are_not_sorted():
    first, second = ([permuted(i, 100, key=key) for i in range(100)] for key in ("a", "b"))
    assert first != second
    assert first != sorted(first)
    assert abs(sum(a < b for a, b in pairwise(first)) - 49.5) < 15


def test_a_long_list_costs_nothing():
    assert len({permuted(i, 4_000_000, key="x") for i in range(1000)}) == 1000
    with pytest.raises(ValueError, match="position 5 is outside"):
        permuted(5, 5, key="x")


def test_every_task_once_an_epoch():
    state, seen = SamplerState(), []
    for count in (3, 4, 7):
        draws, state = draw(state, [Source(7, 1.0)], count, seed=3)
        seen += draws
    assert sorted(d.number for d in seen[:7]) == list(range(7))
    assert sorted(d.number for d in seen[7:]) == list(range(7))
    assert [d.epoch for d in seen] == [0] * 7 + [1] * 7
    assert [d.number for d in seen[:7]] != [d.number for d in seen[7:]], "each epoch has its own order"


def test_the_state_is_all_there_is():
    sources = [Source(50, 1.0), Source(9, 2.5)]
    whole, _ = draw(SamplerState(), sources, 40, seed=1)
    head, state = draw(SamplerState(), sources, 17, seed=1)
    tail, _ = draw(SamplerState.model_validate_json(state.model_dump_json()), sources, 23, seed=1)
    assert head + tail == whole
    assert draw(SamplerState(), sources, 40, seed=2)[0] != whole


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.integers(1, 200))
def test_shares_follow_the_weights(weights, count):
    draws, state = draw(SamplerState(), [Source(1000, w) for w in weights], count, seed=0)
    counts = Counter(d.source for d in draws)
    for source, weight in enumerate(weights):
        assert abs(counts[source] - count * weight / sum(weights)) < len(weights)
    assert list(state.drawn) == [counts[i] for i in range(len(weights))]
