from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.evaluation.report import EpisodeResult, Evaluation, paired_gain, paired_interval, wilson


def _result(key: str, success: bool, *, error: bool = False, family: str = "easy") -> EpisodeResult:
    return EpisodeResult(
        key=key, env="e", task=key, family=family, success=success, score=float(success), turns=3, stop="x", error=error
    )


def _evaluation(*results: EpisodeResult) -> Evaluation:
    return Evaluation(engine="hf:x", policy_version=1, horizon={"e": 9}, seed=0, results=list(results))


def test_wilson_by_hand():
    low, high = wilson(8, 10)
    z, p, n = 1.959963984540054, 0.8, 10
    centre, half = (p + z * z / (2 * n)), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert (low, high) == pytest.approx(((centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)))
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 20)[0] == pytest.approx(0, abs=1e-12)


def test_errors_are_never_failures():
    evaluation = _evaluation(_result("a", True), _result("b", False), _result("c", False, error=True))
    assert evaluation.overall.success == 0.5
    assert (evaluation.overall.episodes, evaluation.overall.errors) == (2, 1)
    assert evaluation.metrics()["errors"] == 1
    nothing = _evaluation(_result("a", False, error=True))
    assert (nothing.overall.success, nothing.overall.low, nothing.overall.high) == (0.0, 0.0, 1.0)


def test_a_family_of_which_nothing_finished_has_no_success():
    evaluation = _evaluation(_result("a", True), _result("b", False, error=True, family="hard"))
    assert [name for name in evaluation.metrics() if name.startswith("success_rate/")] == ["success_rate/e/easy"]
    hard = next(line for line in evaluation.table().splitlines() if line.startswith("e/hard"))
    assert hard.split() == ["e/hard", "-", "-", "-", "-", "0", "1"]


def test_families_and_table():
    evaluation = _evaluation(_result("a", True), _result("b", False, family="hard"), _result("c", True))
    assert {name: t.success for name, t in evaluation.families.items()} == {"e/easy": 1.0, "e/hard": 0.0}
    lines = evaluation.table().splitlines()
    assert [line.split()[0] for line in lines] == ["family", "e/easy", "e/hard", "all"]
    assert len({len(line) for line in lines}) == 1, "columns line up"
    assert "0.667" in lines[-1]


def test_json_round_trip_holds_episodes_and_tallies():
    evaluation = _evaluation(_result("a", True), _result("b", False))
    document = json.loads(evaluation.model_dump_json())
    assert document["overall"]["success"] == 0.5
    assert document["families"]["e/easy"]["episodes"] == 2
    assert len(document["results"]) == 2
    assert Evaluation.model_validate_json(evaluation.model_dump_json()) == evaluation


def test_paired_gain_by_hand():
    before = _evaluation(*(_result(str(i), i == 0) for i in range(4)))
    after = _evaluation(*(_result(str(i), i != 3) for i in reversed(range(4))))
    gain = paired_gain(before, after)  # differences 0, 1, 1, 0
    half = 3.182446305284263 * math.sqrt(1 / 3) / 2
    assert tuple(gain) == pytest.approx((0.5, 0.5 - half, 0.5 + half))


def test_pairs_that_either_lost_are_left_out():
    before = _evaluation(_result("a", False), _result("b", False), _result("c", False, error=True))
    after = _evaluation(_result("a", True), _result("b", True), _result("c", True), _result("d", True))
    assert tuple(paired_gain(before, after)) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="1 paired episodes"):
        paired_gain(before, _evaluation(_result("a", True)))


@settings(deadline=None)
@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=2, max_size=60))
def test_the_interval_holds_the_gain_and_mirrors(differences):
    gain = paired_interval(differences)
    assert gain.low <= gain.gain + 1e-12
    assert gain.gain <= gain.high + 1e-12
    mirrored = paired_interval([-d for d in differences])
    assert (mirrored.gain, mirrored.low, mirrored.high) == pytest.approx((-gain.gain, -gain.high, -gain.low))
