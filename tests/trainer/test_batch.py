from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.protocol.errors import EngineError
from sojourn.protocol.trajectory import StopReason, TrajectoryGroup
from sojourn.trainer.batch import build_batch, micro_batches
from sojourn.trainer.rewards import Score, Success
from tests.trainer.episodes import episode, groups, said, segment

SCORE = {"textcraft": (Score(),)}
SUCCESS = {"textcraft": (Success(),)}


def test_a_row_holds_what_was_sampled():
    trajectory = episode(3, 1.0, random.Random(0))
    batch = build_batch([TrajectoryGroup("g", "t", [trajectory])], SCORE)
    ids = [i for s in trajectory.segments for i in s.ids]
    mask = [m for s in trajectory.segments for m in s.mask]
    logprobs = [p for s in trajectory.segments for p in s.logprobs]
    positions = [i for i, m in enumerate(mask) if m]
    assert batch.positions.tolist() == positions
    assert batch.ids[0].tolist() == ids[: positions[-1] + 1], "nothing after the last action token"
    assert batch.rollout_logprobs.tolist() == pytest.approx([logprobs[i] for i in positions])
    turns = [s.turn for s in trajectory.segments for m in s.mask if m]
    assert batch.episodes.turn.tolist() == turns


def test_the_reward_sits_on_the_last_action_token_of_its_turn():
    trajectory = episode(3, 0.5, random.Random(1))
    trajectory.turns[0].reward = 0.25
    batch = build_batch([TrajectoryGroup("g", "t", [trajectory])], SCORE)
    lengths = [len(s.ids) for s in trajectory.segments if any(s.mask)]
    expected = [0.0] * sum(lengths)
    expected[lengths[0] - 1], expected[-1] = 0.25, 0.5
    assert batch.episodes.rewards.tolist() == expected
    assert batch.episodes.returns.tolist() == [0.75]


def test_success_is_paid_once_and_at_the_end():
    won, lost = episode(2, 1.0, random.Random(0)), episode(2, 0.9, random.Random(1))
    batch = build_batch([TrajectoryGroup("g", "t", [won, lost])], SUCCESS)
    assert batch.episodes.returns.tolist() == [1.0, 0.0]
    assert batch.episodes.rewards.sum() == 1.0


def test_what_was_cut_and_what_failed():
    rng = random.Random(0)
    stops = [StopReason.COMPLETED, StopReason.MAX_TURNS, StopReason.ENV_ERROR, StopReason.CONTEXT_OVERFLOW]
    trajectories = [episode(1, 0.0, rng, stop=stop) for stop in stops]
    trajectories.append(episode(1, 1.0, rng, stop=StopReason.ENV_TRUNCATED))
    trajectories.append(episode(1, 0.0, rng, stop=StopReason.EARLY_STOP))
    batch = build_batch([TrajectoryGroup("g", "t", trajectories)], SCORE)
    assert batch.episodes.truncated.tolist() == [False, True, True, False, False], (
        "errors are left out; a success is no failure, nor is what the policy ended itself a cut"
    )


def test_a_branch_trains_each_token_once():
    """History was rewritten after turn 0: two leaves share the prompt and the first completion."""
    rng = random.Random(0)
    trajectory = episode(1, 0.0, rng)
    trajectory.segments.append(segment(2, 4, 1, rng, said=True))
    trajectory.segments.append(segment(1, 2, 1, rng, said=False))
    trajectory.segments.append(segment(4, 3, 2, rng, said=True))
    trajectory.turns += [said(0.0, 3), said(1.0, 5)]
    batch = build_batch([TrajectoryGroup("g", "t", [trajectory])], SCORE)
    lengths = {i: len(s.ids) for i, s in enumerate(trajectory.segments)}
    assert batch.rows == 2
    assert batch.tokens == lengths[1] + 4 + 3
    assert batch.episodes.trajectory.unique().tolist() == [0], "weighted by trajectory, not by row"
    assert batch.positions[batch.tokens_of([1])].tolist() == list(range(len(batch.ids[1]) - 3, len(batch.ids[1])))
    assert batch.episodes.rewards.tolist()[-1] == 1.0
    assert batch.episodes.rewards.sum() == 1.0


def test_a_forked_sibling_does_not_train_the_shared_prefix():
    sibling = episode(3, 1.0, random.Random(0))
    given_ids = sibling.segments[1]
    given_ids.mask, given_ids.logprobs = [0] * len(given_ids.ids), [0.0] * len(given_ids.ids)
    sibling.turns[0].reward = 0.25
    batch = build_batch([TrajectoryGroup("g", "t", [sibling])], SCORE)
    assert batch.episodes.turn.unique().tolist() == [1, 2]
    assert batch.episodes.rewards.sum() == 1.0, "the prefix's reward has no token to sit on"
    assert batch.episodes.returns.tolist() == [1.25], "but belongs to the episode"


def test_an_episode_without_action_tokens_makes_no_row():
    silent = episode(1, 0.0, random.Random(0), stop=StopReason.CONTEXT_OVERFLOW)
    silent.segments, silent.turns = silent.segments[:1], []
    batch = build_batch([TrajectoryGroup("g", "t", [silent, episode(1, 1.0, random.Random(1))])], SCORE)
    assert batch.rows == 1
    assert batch.episodes.returns.tolist() == [0.0, 1.0], "it still counts in its group's mean"
    assert batch.rows_of(torch.tensor([True, False])) == []
    assert batch.rows_of(torch.tensor([True, True])) == [0]
    empty = build_batch([TrajectoryGroup("g", "t", [silent])], SCORE)
    assert (empty.rows, empty.tokens, list(micro_batches(empty, [], 64))) == (0, 0, [])


def test_a_log_probability_that_is_no_number_is_refused():
    broken = episode(1, 0.0, random.Random(0))
    broken.segments[1].logprobs[0] = float("nan")
    with pytest.raises(EngineError, match="nan in episode g0/0"):
        build_batch([TrajectoryGroup("g", "t", [broken])], SCORE)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 100), st.integers(1, 200))
def test_micro_batches_partition_the_rows(seed, budget):
    batch = build_batch(groups([[0.0, 1.0, 0.0]] * 3, seed=seed), SCORE)
    rows = [r for r in range(batch.rows) if r % 4 != 1]
    seen, width = [], 10**9
    for micro in micro_batches(batch, rows, budget):
        assert micro.inputs.numel() <= budget or len(micro.inputs) == 1
        assert micro.inputs.shape[1] <= width
        width = micro.inputs.shape[1]
        following = torch.cat([micro.inputs, torch.zeros(len(micro.inputs), 1, dtype=torch.long)], 1)
        inside = micro.column + 1 < width
        assert (following[micro.row, micro.column + 1] == micro.targets)[inside].all() or (
            len(set(micro.row.tolist())) == len(micro.inputs)
        )
        seen += micro.tokens.tolist()
        for t, target in zip(micro.tokens.tolist(), micro.targets.tolist(), strict=True):
            row = int(batch.episodes.row[t])
            assert int(batch.ids[row][batch.positions[t]]) == target
    assert sorted(seen) == sorted(batch.tokens_of(rows).tolist())


def test_the_state_of_a_turn_is_the_one_before_it():
    """Keys count within an environment; a turn whose state nobody said has -1."""
    rng = random.Random(0)
    first, second, other = (episode(2, 0.0, rng, env=env) for env in ("textcraft", "textcraft", "babyai"))
    for trajectory in (first, second, other):
        trajectory.extra["opening_info"] = {"state_key": "a"}
        trajectory.turns[0].info["state_key"] = "b"
        trajectory.turns[1].info["state_key"] = "never seen by a turn"
    del second.turns[0].info["state_key"]
    rewards = {**SCORE, "babyai": (Score(),)}
    batch = build_batch([TrajectoryGroup("g", "t", [first, second]), TrajectoryGroup("h", "t", [other])], rewards)
    seen = batch.episodes
    by_turn = {
        (t, k): seen.state[(seen.trajectory == t) & (seen.turn == k)].unique().tolist()
        for t in range(3)
        for k in range(2)
    }
    (opening,), (then,) = by_turn[0, 0], by_turn[0, 1]
    assert opening != then
    assert by_turn[1, 0] == [opening], "the same state of the same world"
    assert by_turn[1, 1] == [-1]
    assert not set(by_turn[2, 0] + by_turn[2, 1]) & {opening, then, -1}, "the same key of another world"
    assert seen.env.tolist() == [0, 0, 1]


def test_what_a_budget_of_tokens_cut():
    stops = [StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW, StopReason.COMPLETED]
    trajectories = [episode(1, 0.0, random.Random(0), stop=stop) for stop in stops]
    trajectories.append(episode(1, 1.0, random.Random(0), stop=StopReason.MAX_TOKENS))
    episodes = build_batch([TrajectoryGroup("g", "t", trajectories)], SCORE).episodes
    assert episodes.truncated.tolist() == [True, True, True, False, False]
    assert episodes.overlong.tolist() == [False, True, True, False, False], "a success is no failure"


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_an_episode_that_was_paid_no_number_is_left_out(reward):
    broken, whole = episode(2, 0.0, random.Random(0)), episode(2, 1.0, random.Random(1))
    broken.turns[0].reward = reward
    batch = build_batch([TrajectoryGroup("g", "t", [broken, whole])], SCORE)
    assert (batch.broken, batch.rows, batch.episodes.returns.tolist()) == (1, 1, [1.0])
