"""What Prometheus reads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from sojourn.serving.metrics import Metrics, merge


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_steps_sessions_and_snapshots_are_counted(api):
    async with api() as http:
        session, other = (await http.opened())["id"], (await http.opened())["id"]
        await http.act(session, 0)
        await http.act(session, 0, "echo")
        await http.act(other, 0, "raise")
        await http.post(f"/v1/sessions/{session}/snapshot")
        reply = await http.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain")
        found = values(reply.text)
    worker = ("worker", "w0")
    assert found["sojourn_sessions_open", (worker,)] == 1
    for status, count in [("200", 1), ("409", 1), ("500", 1)]:
        assert found["sojourn_steps_total", (("env", "counter"), ("status", status), worker)] == count
    assert found["sojourn_step_seconds_count", (("env", "counter"), worker)] == 1
    assert found["sojourn_snapshots", (worker,)] == 1
    assert found["sojourn_snapshot_bytes", (worker,)] > 0
    created = ("sojourn_request_seconds_count", (("route", "POST /v1/sessions"), ("status", "201"), worker))
    assert found[created] == 2


def test_expositions_of_several_workers_merge():
    first, second = Metrics("w0-1"), Metrics("w1-1")
    first.step_status("counter", 200)
    second.step_status("counter", 200)
    merged = merge([first.render(3).decode(), second.render(4).decode()]).decode()
    found = values(merged)
    assert found["sojourn_sessions_open", (("worker", "w0-1"),)] == 3
    assert found["sojourn_sessions_open", (("worker", "w1-1"),)] == 4
    assert merged.count("# TYPE sojourn_steps_total") == 1
