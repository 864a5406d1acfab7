"""Recordings come back exactly, are whole or absent, and say what is wrong with them in one line."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
from dataclasses import fields

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sojourn.protocol.errors import UsageError
from sojourn.protocol.trajectory import Segment, StopReason, Trajectory, TrajectoryGroup, Turn
from sojourn.rollout.recorder import Recorder, header, read, shards

numbers = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
infos = st.dictionaries(text, json_values, max_size=3)


@st.composite
def segments(draw):
    size = draw(st.integers(0, 4))

    def row(values):
        return draw(st.lists(values, min_size=size, max_size=size))

    return Segment(
        draw(st.none() | st.integers(0, 9)),
        row(st.integers(0, 200_000)),
        row(st.integers(0, 1)),
        row(numbers),
        draw(st.integers(0, 30)),
        draw(st.none() | st.integers(0, 1000)),
    )


turn = st.builds(
    Turn, text, text, st.none() | text, text, numbers, st.booleans(), st.integers(0, 9), infos, numbers, numbers
)
trajectory = st.builds(
    Trajectory,
    episode_id=text,
    group_id=text,
    task=text,
    family=text,
    seed=st.none() | st.integers(0, 2**63 - 1),
    horizon=st.integers(1, 99),
    env=text,
    env_version=text,
    engine=text,
    view=text,
    segments=st.lists(segments(), max_size=3),
    turns=st.lists(turn, max_size=2),
    opening=text,
    stop=st.sampled_from(StopReason),
    score=numbers,
    success=st.booleans(),
    parent_id=st.none() | text,
    fork_turn=st.none() | st.integers(1, 9),
    attempt=st.integers(0, 3),
    sibling=st.integers(0, 63),
    error=st.none() | text,
    snapshots=st.lists(text, max_size=2),
    started=numbers,
    seconds=numbers,
    extra=infos,
)
group = st.builds(TrajectoryGroup, text, text, st.lists(trajectory, max_size=2), st.integers(0, 9))


def one(**options):
    given = dict.fromkeys(("group_id", "task", "family", "env", "env_version", "engine", "view"), "x")
    return Trajectory(**{"episode_id": "e", "seed": None, "horizon": 4, **given, **options})


@pytest.fixture
def recorder(tmp_path):
    return Recorder(tmp_path / "trajectories")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=st.lists(group, max_size=3), compress=st.booleans())
def test_reading_gives_back_what_was_written(tmp_path, groups, compress):
    path = Recorder(tmp_path, compress=compress).write(3, groups, split="test")
    assert path.name == ("test-000003.jsonl.gz" if compress else "test-000003.jsonl")
    assert list(read(path)) == groups
    assert (header(path).step, header(path).split, header(path).groups) == (3, "test", len(groups))


def test_every_field_of_the_design_is_there_by_name(recorder):
    path = recorder.write(0, [TrajectoryGroup("g", "t", [one(segments=[Segment(None, [1], [1], [-0.5], 0, 7)])])])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["header", "group", "episode"]
    assert lines[0]["schema_version"] == 1
    recorded = lines[2]["trajectory"]
    assert set(recorded) == {f.name for f in fields(Trajectory)}
    assert {"episode_id", "group_id", "parent_id", "fork_turn", "attempt", "task", "seed", "horizon"} <= set(recorded)
    assert {"env_version", "engine", "snapshots", "started", "seconds", "stop", "turns"} <= set(recorded)
    assert recorded["segments"][0] == {
        "parent": None,
        "ids": [1],
        "mask": [1],
        "logprobs": [-0.5],
        "turn": 0,
        "policy_version": 7,
    }


def test_the_same_groups_give_the_same_bytes(tmp_path):
    groups = [TrajectoryGroup("g", "t", [one()])]
    first = Recorder(tmp_path / "a", compress=True).write(1, groups).read_bytes()
    assert Recorder(tmp_path / "b", compress=True).write(1, groups).read_bytes() == first


def test_writing_a_step_again_replaces_it(recorder):
    recorder.write(1, [TrajectoryGroup("old", "t", [])])
    path = recorder.write(1, [TrajectoryGroup("new", "t", [])])
    assert [g.group_id for g in read(path)] == ["new"]


def test_a_resume_drops_what_lies_past_its_checkpoint(recorder):
    for step in (1, 2, 3, 1_000_000):
        recorder.write(step, [])
        recorder.write(step, [], split="test")
    killed = recorder.directory / "train-000003.jsonl.partial"
    killed.write_text("half")
    (recorder.directory / "notes.txt").write_text("mine")
    gone = recorder.discard_after(2)
    assert len(gone) == 5
    assert [p.name for p in shards(recorder.directory)] == [
        "test-000001.jsonl",
        "train-000001.jsonl",
        "test-000002.jsonl",
        "train-000002.jsonl",
    ]
    assert [p.name for p in shards(recorder.directory, split="test")] == ["test-000001.jsonl", "test-000002.jsonl"]
    assert not killed.exists()
    assert (recorder.directory / "notes.txt").exists()


def written(recorder):
    groups = [TrajectoryGroup("g", "t", [one(episode_id="a"), one(episode_id="b")]), TrajectoryGroup("h", "t", [one()])]
    return recorder.write(0, groups)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda lines: [], "empty: not a recording"),
        (lambda lines: lines[1:], "line 1: a recording begins with its header"),
        (
            lambda lines: [lines[0].replace(b'"schema_version":1', b'"schema_version":99'), *lines[1:]],
            "line 1: schema 99",
        ),
        (lambda lines: lines[:-1], "line 5: cut off after 2 of 3 episodes in 2 of 2 groups"),
        (lambda lines: lines[:-2], "line 4: cut off after 2 of 3 episodes in 1 of 2 groups"),
        (lambda lines: lines[:3], "line 3: cut off after 1 of 3"),
        (lambda lines: [*lines[:3], lines[3][:40]], "line 4: cut off in the middle"),
        (lambda lines: [*lines[:3], lines[3][:40] + b"\n", *lines[4:]], "line 4: not a recording's line"),
        (lambda lines: [*lines[:2], b'{"kind":"episode"}\n', *lines[3:]], "line 3: not a recording's line"),
        (
            lambda lines: [*lines[:2], lines[2].replace(b'"horizon":4', b'"horizon":"x"'), *lines[3:]],
            "line 3: .*horizon",
        ),
        (lambda lines: [*lines[:2], lines[2].replace(b'"completed"', b'"bored"'), *lines[3:]], "line 3: .*stop"),
        (lambda lines: [lines[0], *lines[2:]], "line 2: a episode line where none belongs"),
        (lambda lines: [*lines[:3], lines[4], *lines[3:]], "line 4: a group line where none belongs"),
        (lambda lines: [b"\xff\xfe\n"], "line 1: not a recording's line"),
        (lambda lines: [*lines, lines[-1]], "line 7: a episode line where none belongs"),
    ],
)
def test_a_damaged_shard_is_one_line_that_names_its_line(recorder, change, complaint):
    path = written(recorder)
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(UsageError, match=complaint) as caught:
        list(read(path))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_damaged_archive_is_told(tmp_path):
    path = written(Recorder(tmp_path, compress=True))
    data = path.read_bytes()
    for broken in (data[: len(data) // 2], b"not gzip at all\n", data[:20] + b"\0" * 30 + data[50:]):
        path.write_bytes(broken)
        with pytest.raises(UsageError, match=r"line \d: the compressed data end or break here"):
            list(read(path))
    path.write_bytes(gzip.compress(b"{}\n"))
    with pytest.raises(UsageError, match="line 1: not a recording's line"):
        list(read(path))


def test_a_missing_shard_is_told(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        list(read(tmp_path / "train-000000.jsonl"))
    with pytest.raises(UsageError, match="No such file"):
        shards(tmp_path / "none")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(recorder, monkeypatch, call):
    before = written(recorder)
    kept = before.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, "fsync") if call == "fsync" else ("pathlib.Path.replace",)), full)
    with pytest.raises(UsageError, match=r"cannot write .*train-000000.jsonl: No space left on device"):
        recorder.write(0, [TrajectoryGroup("other", "t", [])])
    with pytest.raises(UsageError, match="No space left"):
        recorder.write(1, [])
    monkeypatch.undo()
    assert [p.name for p in recorder.directory.iterdir()] == [before.name]
    assert before.read_bytes() == kept


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write recordings to .*file"):
        Recorder(tmp_path / "file" / "trajectories")


def test_what_json_cannot_hold_is_refused(recorder):
    for bad in (
        one(segments=[Segment(None, [1], [1], [math.nan], 0)]),
        one(score=math.inf),
        one(turns=[Turn("", "", None, "", -math.inf, False, 0)]),
        one(extra={"x": object()}),
    ):
        with pytest.raises(ValueError, match="recording"):
            recorder.write(0, [TrajectoryGroup("g", "t", [bad])])
    assert list(recorder.directory.iterdir()) == []


@pytest.mark.parametrize(("step", "split"), [(-1, "train"), (0, "../x"), (0, "")])
def test_impossible_names_are_refused(recorder, step, split):
    with pytest.raises(ValueError, match="no shard"):
        recorder.write(step, [], split=split)
