"""Pairs from groups."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sojourn.protocol.trajectory import Segment, StopReason, TrajectoryGroup
from sojourn.trainer.offline.pairs import PairsConfig, pairs_of
from tests.trainer.episodes import episode, said


def group(*scores: float, turns: int = 2) -> TrajectoryGroup:
    """Episodes of one task that begin alike."""
    played = [episode(turns, score, random.Random(i), sibling=i) for i, score in enumerate(scores)]
    for trajectory in played:
        trajectory.segments[0] = played[0].segments[0]
    return TrajectoryGroup("g0", "textcraft_g0", played)


def found(*groups: TrajectoryGroup, **options) -> list[tuple[list[int], list[int]]]:
    return [tuple(row.ids.tolist() for row in e.rows) for e in pairs_of(groups, PairsConfig(**options)).examples]


def ids(trajectory) -> list[int]:
    return [t for s in trajectory.segments for t in s.ids]


def test_best_with_worst_by_the_gap():
    played = group(0.2, 1.0, 0.0, 0.6)
    a, b, c, d = map(ids, played.trajectories)
    assert found(played) == [(b, c)]
    assert found(played, max_per_group=5) == [(b, c), (d, a)]
    assert found(played, max_per_group=5, min_gap=0.5) == [(b, c)]
    assert found(played, max_per_group=5, min_chosen=0.7) == [(b, c)]
    assert found(group(0.5, 0.5)) == found(group(1.0)) == []


def test_failures_of_infrastructure_take_no_part():
    played = group(1.0, 0.0, 0.5)
    played.trajectories[1].stop = StopReason.ENV_ERROR
    assert found(played) == [(ids(played.trajectories[0]), ids(played.trajectories[2]))]


def test_only_action_tokens_after_the_parting_count():
    """What both said before their first difference is on both sides; a forked sibling has it masked."""
    trunk = episode(3, 1.0, random.Random(0))
    cut = 1 + 2 * 2
    shared = [Segment(s.parent, s.ids, [0] * len(s.ids), s.logprobs, s.turn) for s in trunk.segments[:cut]]
    own = Segment(cut - 1, [300, 301], [1, 1], [-1.0, -1.0], 2, 0)
    turns = [*trunk.turns[:2], said(0.0, cut)]
    other = replace(trunk, episode_id="g0/1", score=0.0, segments=[*shared, own], turns=turns)
    pairs = pairs_of([TrajectoryGroup("g0", trunk.task, [trunk, other])], PairsConfig())
    chosen, rejected = pairs.examples[0].rows
    prefix = sum(len(s.ids) for s in trunk.segments[:cut])
    assert not chosen.mask[:prefix].any()
    assert not rejected.mask[:prefix].any()
    assert chosen.mask.sum() == len(trunk.segments[cut].ids)
    assert rejected.ids[rejected.mask == 1].tolist() == [300, 301]


def test_episodes_that_began_otherwise_are_no_pair():
    played = group(1.0, 0.0)
    played.trajectories[1].segments[0] = episode(1, 0.0, random.Random(9)).segments[0]
    pairs = pairs_of([played], PairsConfig())
    assert (pairs.examples, pairs.unlike) == ([], 1)


def test_rewritten_history_is_no_pair():
    played = group(1.0, 0.0)
    played.trajectories[0].segments.append(Segment(None, [1], [0], [0.0], 1))
    pairs = pairs_of([played], PairsConfig())
    assert (pairs.examples, pairs.rewritten) == ([], 1)


def test_the_beginning_of_the_other_is_no_pair():
    """The rejected one said nothing that the chosen one had not said before it went on."""
    played = group(1.0, 0.0)
    chosen, rejected = played.trajectories
    rejected.segments, rejected.turns = chosen.segments[:2], chosen.turns[:1]
    pairs = pairs_of([played], PairsConfig())
    assert (pairs.examples, pairs.contained) == ([], 1)


def test_a_gap_of_nothing_is_refused():
    with pytest.raises(ValueError, match="greater than 0"):
        PairsConfig(min_gap=0.0)
