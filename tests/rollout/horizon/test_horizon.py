"""Horizons: stages switch at their step, resuming changes nothing, and statistics count what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sojourn.protocol.trajectory import StopReason, Trajectory, TrajectoryGroup, Turn
from sojourn.rollout.horizon import Fixed, HorizonConfig, HorizonState, HorizonStatistics, ScalingInter

NOTHING = HorizonStatistics()
ENVS = ("babyai", "textcraft")


def caps(horizon, steps, state=None):
    state = state or HorizonState(envs=("e",))
    found = []
    for _ in range(steps):
        state, given, _ = horizon.update(state, NOTHING)
        found.append(given["e"])
    return found, state


def test_stages_switch_where_they_are_documented_to():
    found, _ = caps(ScalingInter(stages=[10, 20, 30], steps_per_stage=3), 11)
    assert found == [10] * 3 + [20] * 3 + [30] * 5


@given(
    stages=st.lists(st.integers(1, 40), min_size=1, max_size=5).map(sorted),
    per_stage=st.integers(1, 7),
    stop=st.integers(0, 30),
)
def test_a_resumed_run_is_the_uninterrupted_run(stages, per_stage, stop):
    """A11, at every checkpoint step: the state goes through JSON and the configuration is read anew."""
    horizon = ScalingInter(stages=stages, steps_per_stage=per_stage)
    whole, _ = caps(horizon, 40)
    before, state = caps(horizon, stop)
    again = ScalingInter.model_validate_json(horizon.model_dump_json())
    after, _ = caps(again, 40 - stop, HorizonState.model_validate_json(state.model_dump_json()))
    assert before + after == whole
    assert whole == sorted(whole)


def test_updating_is_pure():
    horizon, state = ScalingInter(stages=[1, 2], steps_per_stage=1), HorizonState(envs=("e",))
    assert horizon.update(state, NOTHING) == horizon.update(state, NOTHING)
    assert state.step == 0


def test_environments_have_their_own_caps():
    horizon = ScalingInter(stages=[10, 20], steps_per_stage=2, by_env={"textcraft": [5, 6, 7]})
    state = HorizonState(envs=ENVS)
    found = []
    for _ in range(6):
        state, given, _ = horizon.update(state, NOTHING)
        found.append((given["babyai"], given["textcraft"]))
    assert found == [(10, 5), (10, 5), (20, 6), (20, 6), (20, 7), (20, 7)]
    assert Fixed(turns=8, by_env={"babyai": 3}).update(HorizonState(envs=ENVS), NOTHING).caps == {
        "babyai": 3,
        "textcraft": 8,
    }


def test_changes_have_reasons():
    horizon, state = ScalingInter(stages=[10, 20], steps_per_stage=2), HorizonState(envs=("e",))
    said = []
    for _ in range(4):
        state, _, reasons = horizon.update(state, NOTHING)
        said.append(reasons)
    assert said == [["e: 10 turns (stage 1)"], [], ["e: 10 to 20 turns (stage 2)"], []]


def test_a_cap_below_a_family_s_median_solution_is_warned_of():
    medians = {"e": {"KeyCorridorS3R1": 13.5, "FindObjS7": 6.0}}
    statistics = HorizonStatistics(solution_medians=medians)
    first = ScalingInter(stages=[6, 13, 20], steps_per_stage=1).update(HorizonState(envs=("e",)), statistics)
    assert first.reasons[1:] == [
        "e: 6 turns are fewer than the median solution of KeyCorridorS3R1 (13.5); most is out of reach"
    ]
    enough = ScalingInter(stages=[14], steps_per_stage=1).update(HorizonState(envs=("e",)), statistics)
    assert len(enough.reasons) == 1


@pytest.mark.parametrize(
    "config",
    [
        {"type": "scaling_inter", "stages": [20, 10], "steps_per_stage": 5},
        {"type": "scaling_inter", "stages": [], "steps_per_stage": 5},
        {"type": "scaling_inter", "stages": [0, 5], "steps_per_stage": 5},
        {"type": "scaling_inter", "stages": [5], "steps_per_stage": 0},
        {"type": "scaling_inter", "stages": [5], "steps_per_stage": 5, "by_env": {"e": [4, 3]}},
        {"type": "scaling_inter", "stages": [5], "steps_per_stage": 5, "by_env": {"e": []}},
        {"type": "fixed", "turns": 0},
        {"type": "fixed", "turns": 5, "by_env": {"e": 0}},
        {"type": "fixed", "turns": 5, "stages": [5]},
        {"type": "growing", "turns": 5},
        {"turns": 5},
    ],
)
def test_impossible_configurations_are_refused(config):
    with pytest.raises(ValidationError):
        TypeAdapter(HorizonConfig).validate_python(config)


@pytest.mark.parametrize(
    "config", [{"type": "fixed", "turns": 5}, {"type": "scaling_inter", "stages": [10, 14], "steps_per_stage": 12}]
)
def test_configurations_are_told_apart_by_type(config):
    assert TypeAdapter(HorizonConfig).validate_python(config).type == config["type"]


def episode(env, family, turns, stop, success):
    turn = Turn("", "", None, "", 0.0, False, 0)
    return Trajectory("", "", "", family, None, 9, env, "1", "", "", turns=[turn] * turns, stop=stop, success=success)


def test_statistics_count_success_cuts_and_lengths():
    won = [episode("a", "x", n, StopReason.COMPLETED, True) for n in range(1, 11)]
    cut = [episode("a", "y", 20, StopReason.MAX_TURNS, False) for _ in range(10)]
    other = [episode("b", "z", 4, StopReason.ENV_TRUNCATED, False)]
    groups = [TrajectoryGroup("g", "t", won + other), TrajectoryGroup("h", "t", cut, dropped=3)]
    found = HorizonStatistics.of(groups, solution_medians={"a": {"x": 5.0}})
    a = found.envs["a"]
    assert (a.episodes, a.success, a.cut, a.turns, a.success_turns_p90) == (20, 0.5, 0.5, 12.75, 9.0)
    assert (a.families["x"].success, a.families["y"].cut, a.families["y"].success_turns_p90) == (1.0, 1.0, None)
    assert (found.envs["b"].episodes, found.envs["b"].cut) == (1, 0.0)
    assert HorizonStatistics.model_validate_json(found.model_dump_json()) == found
    assert HorizonStatistics.of([]) == NOTHING


@pytest.mark.parametrize(
    ("groups", "variance"),
    [
        ([[True] * 4, [False] * 4], 0.25),  # siblings agree: two observations, (0.5**2 + 0.5**2) / 1 / 2
        ([[True, False] * 2, [False, True] * 2], 0.5 * 0.5 / 8),  # they do not: eight
        ([[True, False] * 2], 0.5 * 0.5 / 4),  # one group: nothing to compare it with
    ],
)
def test_the_noise_of_success_is_the_larger_of_that_of_episodes_and_of_groups(groups, variance):
    played = [
        TrajectoryGroup(f"g{i}", "t", [episode("a", "x", 3, StopReason.COMPLETED, won) for won in group])
        for i, group in enumerate(groups)
    ]
    assert HorizonStatistics.of(played).envs["a"].success_variance == pytest.approx(variance)
