from __future__ import annotations

import json
import math

import pytest

from sojourn.protocol.errors import UsageError
from sojourn.trainer.metrics import MetricsWriter, read_metrics


def test_lines_and_truncation(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False)
    writer.write(1, {"a/b": 1.5})
    kept = writer.offset
    writer.write(2, {"a/b": 2.5, "c": math.nan, "d": math.inf})
    writer.close()
    assert list(read_metrics(tmp_path / "metrics.jsonl")) == [
        {"step": 1, "a/b": 1.5},
        {"step": 2, "a/b": 2.5, "c": None, "d": None},
    ]
    again = MetricsWriter(tmp_path, offset=kept, tensorboard=False)
    again.write(2, {"a/b": 3.0})
    again.close()
    assert [line["a/b"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [1.5, 3.0]


def test_each_line_is_on_disk_at_once(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False)
    writer.write(1, {"x": 1.0})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "x": 1.0}
    writer.close()


def test_a_line_cut_by_a_crash_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "a')
    assert list(read_metrics(path)) == [{"step": 1}]


def test_an_edited_file_is_refused(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="shorter than its checkpoint says"):
        MetricsWriter(tmp_path, offset=100, tensorboard=False)


def test_tensorboard_has_the_same_points(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = MetricsWriter(tmp_path)
    writer.write(1, {"success_rate": 0.25})
    writer.write(2, {"success_rate": 0.5})
    writer.close()
    events = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("success_rate")] == [(1, 0.25), (2, 0.5)]
