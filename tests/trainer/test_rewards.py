"""Each term pays what its name says, and configs read as they are written."""

from __future__ import annotations

import random
from importlib.metadata import EntryPoint
from typing import Literal

import pytest

from sojourn import plugins
from sojourn.protocol.errors import UsageError
from sojourn.protocol.trajectory import StopReason, TrajectoryGroup
from sojourn.rollout.repeats import repeated
from sojourn.trainer import rewards
from sojourn.trainer.config_reading import parse_config
from sojourn.trainer.rewards import (
    FormatPenalty,
    InvalidPenalty,
    LengthCost,
    RepeatPenalty,
    Reward,
    Score,
    Shaping,
    Success,
    carries_signal,
    episode_return,
    parse_rewards,
    reward_parts,
    task_return,
    turn_rewards,
)
from sojourn.trainer.statistics import rollout_metrics
from tests.trainer.episodes import episode

RUN = {"horizon": {"type": "fixed", "turns": 3}}


class Bonus(Reward):
    """Somebody else's."""

    name: Literal["bonus"] = "bonus"
    size: float = 2.0

    def turns(self, trajectory):
        return [self.size] * len(trajectory.turns)


def walk(*steps, success=False, stop=StopReason.COMPLETED):
    """An episode of (action, state afterwards, invalid)."""
    trajectory = episode(len(steps), float(success), random.Random(0), stop=stop)
    trajectory.extra["opening_info"] = {"state_key": "start", "score": 0.0, "raw": {"depth": 4}}
    for number, (turn, (action, state, invalid)) in enumerate(zip(trajectory.turns, steps, strict=True), start=1):
        turn.action, turn.text, turn.invalid = action, f"Action: {action}", invalid
        turn.info = {"state_key": state, "score": turn.reward, "raw": {"depth": 4 - number}}
    return trajectory


WANDER = walk(
    ("left", "a", False), ("right", "start", False), ("left", "a", False), ("left", "a", True), ("left", "a", True)
)


def test_a_repeat_is_the_same_action_in_the_same_state():
    assert repeated(WANDER) == [False, False, True, False, True]
    mute = walk((None, "start", True), (None, "start", True))
    assert repeated(mute) == [False, True]


@pytest.mark.parametrize(
    ("term", "paid"),
    [
        (Score(), [0.0, 0.0, 0.0, 0.0, 1.0]),
        (Success(), [0.0, 0.0, 0.0, 0.0, 1.0]),
        (InvalidPenalty(), [0.0, 0.0, 0.0, -1.0, -1.0]),
        (FormatPenalty(), [-1.0, 0.0, 0.0, 0.0, 0.0]),
        (RepeatPenalty(), [0.0, 0.0, 0.0, 0.0, 0.0]),
        (LengthCost(), [-1.0] * 5),
        (Shaping(), [0.0, 0.0, 0.0, 0.0, 1.0]),
        (Shaping(key="raw.depth"), [-1.0] * 5),
        (Shaping(key="raw.depth", gamma=0.5), [0.5 * 3 - 4, 0.5 * 2 - 3, 0.5 - 2, -1.0, 0.5 * -1 - 0]),
        (Shaping(key="raw.depth", terminal="zero"), [-1.0, -1.0, -1.0, -1.0, 0.0]),
    ],
    ids=lambda value: value.name if isinstance(value, Reward) else "",
)
def test_terms(term, paid):
    won = walk(
        (None, "b", False), ("x", "c", False), ("x", "d", False), ("y", "e", True), ("z", "f", True), success=True
    )
    assert term.turns(won) == paid


def test_tokens_cost_by_their_number():
    trajectory = walk(("a", "b", False), ("c", "d", False))
    lengths = [len(trajectory.segments[turn.segment].ids) for turn in trajectory.turns]
    assert LengthCost(per="token").turns(trajectory) == [-float(n) for n in lengths]


def test_shaping_that_ends_at_zero_pays_every_finished_episode_alike():
    """The best policy stays the best: what shaping adds depends on where an episode began, and on nothing else."""
    short, long = (walk(*[("x", "s", False)] * n, success=n == 2) for n in (2, 4))
    term = Shaping(key="raw.depth", terminal="zero")
    assert sum(term.turns(short)) == sum(term.turns(long)) == -4
    cut = walk(*[("x", "s", False)] * 3, stop=StopReason.MAX_TURNS)
    assert sum(term.turns(cut)) == -3, "cut before the world ended it"


def test_shaping_without_a_potential_says_so():
    with pytest.raises(UsageError, match=r"textcraft gives no number at info\.raw\.hope"):
        Shaping(key="raw.hope").turns(WANDER)


def test_terms_add_up_and_are_told_apart():
    terms = parse_rewards(
        ["success", {"name": "repeat_penalty", "weight": 0.05}, {"name": "length_cost", "weight": 0.01}]
    )
    assert turn_rewards(WANDER, terms) == pytest.approx([-0.01, -0.01, -0.06, -0.01, -0.06])
    assert reward_parts(WANDER, terms) == pytest.approx({"success": 0.0, "repeat_penalty": -0.1, "length_cost": -0.05})
    assert episode_return(WANDER, terms) == pytest.approx(-0.15)
    metrics = rollout_metrics([TrajectoryGroup("g", "t", [WANDER])], {"textcraft": terms}, {"textcraft": 5})
    assert metrics["reward/mean"] == pytest.approx(-0.15)
    assert metrics["reward/repeat_penalty"] == pytest.approx(-0.1)
    assert metrics["reward/success"] == 0


def test_signal_is_a_difference_of_pay():
    lost, won = walk(("a", "b", False)), walk(("a", "b", False), success=True)
    assert carries_signal([lost, won], (Success(),))
    assert not carries_signal([lost, WANDER], (Success(),))
    assert carries_signal([lost, WANDER], (Success(), LengthCost()))
    assert not carries_signal([], (Success(),))


def test_manners_are_no_signal_of_how_the_task_went():
    """Else a stage in which nothing succeeds looks as if it taught something: its failures differ in their manners."""
    lost, polite = WANDER, walk(("a", "b", False))
    terms = (Success(), InvalidPenalty())
    assert task_return(lost, terms) == task_return(polite, terms) == 0
    assert episode_return(lost, terms) != episode_return(polite, terms)
    assert task_return(lost, (InvalidPenalty(),)) == -2, "where nothing else is paid, manners are the task"


def test_configs():
    def read(reward):
        return parse_config({**RUN, "envs": [{"name": "a", "reward": reward}]})

    assert read("success").envs[0].reward == (Success(),)
    mixed = read([{"name": "success"}, {"name": "shaping", "weight": 0.5, "key": "raw.depth"}])
    assert mixed.envs[0].reward == (Success(), Shaping(weight=0.5, key="raw.depth"))
    assert parse_config(mixed.dump()) == mixed, "a run's own config.yaml reads back"
    assert parse_config({**RUN, "envs": [{"name": "a"}]}).envs[0].reward == (Score(),)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("sucess", r"envs\.0\.reward: no reward 'sucess', did you mean 'success'\?"),
        (["score", "score"], r"envs\.0\.reward: named twice: score"),
        ([], r"envs\.0\.reward: a reward needs at least one term"),
        ([{"name": "length_cost", "pro": 1}], r"unknown key 'pro'"),
        ([{"weight": 2}], r"no reward 'None'"),
        ([{"name": "score", "weight": float("nan")}], r"weight: Input should be a finite number"),
        (3, r"envs\.0\.reward"),
        ([3], r"envs\.0\.reward"),
    ],
)
def test_wrong_configs_are_one_line(reward, message):
    with pytest.raises(UsageError, match=message) as caught:
        parse_config({**RUN, "envs": [{"name": "a", "reward": reward}]})
    assert "\n" not in str(caught.value)


def test_somebody_else_s_term_comes_by_its_entry_point(monkeypatch):
    point = EntryPoint("bonus", f"{__name__}:Bonus", "sojourn.rewards")
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: [point] if group == point.group else [])
    assert "bonus" in rewards.names()
    config = parse_config({**RUN, "envs": [{"name": "a", "reward": ["score", {"name": "bonus", "size": 3}]}]})
    assert turn_rewards(walk(("a", "b", False), success=True), config.rewards()["a"]) == [4.0]
    assert parse_config(config.dump()) == config


def test_a_term_s_name_is_a_metric_s(monkeypatch):
    class Mean(Bonus):
        name: Literal["mean"] = "mean"

    monkeypatch.setattr(rewards, "load", lambda name: Mean)
    with pytest.raises(ValueError, match="cannot be called mean"):
        parse_rewards(["mean"])
