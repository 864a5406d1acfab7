"""Evaluations side by side: means by task, paired gains, and what cannot be compared."""

import sys

import pytest
from benchmarks.by_task import main, read, table

from sojourn.evaluation.report import EpisodeResult, Evaluation
from sojourn.protocol.errors import UsageError


def evaluation(scores, *, lost=()):
    """Episodes `a/0`, `a/1`, ... of family a, then of b; a score of 1 is a success."""
    results = [
        EpisodeResult(
            key=f"{family}/{i}",
            env="world",
            task=f"world:{family}/{i}",
            family=family,
            success=score == 1,
            score=score,
            stop="completed",
            error=f"{family}/{i}" in lost,
        )
        for family, found in scores.items()
        for i, score in enumerate(found)
    ]
    return Evaluation(engine="e", policy_version=0, horizon={"world": 5}, seed=0, results=results)


def cells(text):
    return {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in text.splitlines()}


BEFORE = evaluation({"a": [0, 0, 0.5, 1], "b": [0.5, 0.5]})
AFTER = evaluation({"a": [1, 1, 0.5, 1], "b": [0.5, 1]})


def test_means_by_task_and_of_all():
    found = cells(table({"before": [BEFORE], "after": [AFTER]}, "success"))
    assert found["success"] == ["episodes", "before", "after", "gain", "95 % interval"]
    assert found["a"][:4] == ["4", "0.250", "0.750", "+0.500"]
    assert found["b"][:4] == ["2", "0.000", "0.500", "+0.500"]
    assert found["all"][:4] == ["6", "0.167", "0.667", "+0.500"]
    assert cells(table({"before": [BEFORE], "after": [AFTER]}, "score"))["a"][:4] == ["4", "0.375", "0.875", "+0.500"]


def test_the_interval_is_that_of_paired_differences():
    # differences 1, 1, 0, 0: mean .5, deviation .577, t(3) 3.182
    assert cells(table({"x": [BEFORE], "y": [AFTER]}, "success"))["a"][4] == "-0.419 to +1.419"


def test_the_gain_is_of_the_last_over_the_one_before_it():
    found = cells(table({"zero": [AFTER], "one": [BEFORE], "two": [AFTER]}, "success"))
    assert found["all"][:5] == ["6", "0.667", "0.167", "0.667", "+0.500"]


def test_seeds_are_averaged_before_they_are_paired():
    found = cells(table({"before": [BEFORE], "after": [BEFORE, AFTER]}, "success"))
    assert found["a"][:4] == ["4", "0.250", "0.500", "+0.250"]


def test_what_any_run_lost_is_left_out_of_all():
    lost = evaluation({"a": [1, 1, 0.5, 1], "b": [0.5, 1]}, lost={"a/0"})
    found = cells(table({"before": [BEFORE], "after": [AFTER, lost]}, "success"))
    assert found["a"][:4] == ["3", "0.333", "0.667", "+0.333"]


def test_other_episodes_are_refused():
    with pytest.raises(UsageError, match="not the same episodes"):
        table({"before": [BEFORE], "after": [evaluation({"a": [1, 1, 0.5, 1]})]}, "success")


def test_another_horizon_is_refused():
    longer = AFTER.model_copy(update={"horizon": {"world": 6}})
    with pytest.raises(UsageError, match="not the same horizon"):
        table({"before": [BEFORE], "after": [longer]}, "success")


def test_files_are_read_and_what_holds_no_episodes_is_refused(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.json").write_text(BEFORE.model_dump_json())
    (tmp_path / "empty.json").write_text(BEFORE.model_dump_json(exclude={"results"}))
    assert read(tmp_path / "a.json").results == BEFORE.results
    monkeypatch.setattr(sys, "argv", ["by_task", f"start={tmp_path / 'a.json'}"])
    main()
    assert capsys.readouterr().out.count("| all | 6 |") == 2
    (tmp_path / "odd.json").write_bytes(b'{"results": "\xff"}')
    good = f"start={tmp_path / 'a.json'}"
    for wrong, why in (
        (f"start={tmp_path / 'empty.json'}", "has no episodes"),
        (f"start={tmp_path / 'none.json'}", "No such file"),
        (f"start={tmp_path / 'odd.json'}", "odd.json is no evaluation"),
        ("start", "expected NAME=FILE"),
        (good, "start comes twice"),
    ):
        monkeypatch.setattr(sys, "argv", ["by_task", good if wrong == good else wrong.replace("start=", "x="), wrong])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert why in capsys.readouterr().err


def test_one_episode_has_no_interval_and_none_is_no_table():
    one = evaluation({"a": [0], "b": [1, 0.5]})
    assert cells(table({"x": [one], "y": [one]}, "score"))["a"] == ["1", "0.000", "0.000", "+0.000", "-"]
    with pytest.raises(UsageError, match="no episode was finished"):
        table({"x": [evaluation({"a": [1]}, lost={"a/0"})]}, "score")


def test_families_of_two_environments_are_told_apart():
    plain = evaluation({"a": [0]}).results[0]
    other = plain.model_copy(update={"env": "moon", "key": "moon/a/0", "success": True})
    both = BEFORE.model_copy(update={"results": [plain, other]})
    found = cells(table({"x": [both]}, "success"))
    assert (found["world/a"], found["moon/a"], found["all"]) == (["1", "0.000"], ["1", "1.000"], ["2", "0.500"])
