"""Several worker processes behind one address."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import httpx
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sojourn.client.session import EnvClient
from sojourn.protocol.errors import Gone, UsageError
from sojourn.serving.config import ServingConfig
from sojourn.serving.local import LocalServer
from sojourn.serving.supervisor import serve
from sojourn.serving.worker import EnvEntry, bind, build_services, url_of

COUNTER = "tests.serving.worlds:CounterService"


async def workers_of(http: httpx.AsyncClient) -> dict[str, dict]:
    return {worker["id"]: worker for worker in (await http.get("/v1/workers")).json()["workers"]}


async def test_a_dead_worker_is_replaced_and_its_sessions_are_gone():
    async with (
        LocalServer([COUNTER], workers=2) as url,
        EnvClient(url) as client,
        httpx.AsyncClient(base_url=url) as http,
    ):
        before = await workers_of(http)
        assert set(before) == {"w0-1", "w1-1"}
        sessions = await asyncio.gather(*(client.create("counter", "counter_1") for _ in range(4)))
        lost = [session for session in sessions if session.id.startswith("w0-1.")]
        kept = [session for session in sessions if session.id.startswith("w1-1.")]
        assert (len(lost), len(kept)) == (2, 2)
        os.kill(before["w0-1"]["pid"], signal.SIGKILL)
        # Connections wait for the successor: what is asked of a dead worker is answered, not refused.
        for session in lost:
            with pytest.raises(Gone, match="restarted"):
                await session.step("add")
        assert [(await session.step("add")).observation for session in kept] == ["The counter shows 1."] * 2
        after = await workers_of(http)
        assert set(after) == {"w0-2", "w1-1"}
        assert after["w0-2"]["url"] == before["w0-1"]["url"]
        fresh = await asyncio.gather(*(client.create("counter", "counter_1") for _ in range(6)))
        assert {session.id.partition(".")[0] for session in fresh} == {"w0-2", "w1-1"}
        await asyncio.gather(*(session.step("add") for session in fresh))


async def test_everything_can_be_done_through_the_one_address():
    config = ServingConfig(token="all", step_token="few", max_sessions=4)
    async with (
        LocalServer([COUNTER], workers=2, serving=config) as url,
        httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer all"}) as http,
    ):
        body = {"env": "counter", "task": "counter_1"}
        replies = await asyncio.gather(*(http.post("/v1/sessions", json=body) for _ in range(4)))
        ids = [reply.json()["id"] for reply in replies]
        assert {i.partition(".")[0] for i in ids} == {"w0-1", "w1-1"}

        # A create with its key goes where it went before.
        keyed = [await http.post("/v1/sessions", json=body, headers={"idempotency-key": "k"}) for _ in range(3)]
        assert len({reply.content for reply in keyed}) == 1

        items = [{"id": i, "revision": 0, "action": "add"} for i in [*ids, "w0-1.none", "w7-1.none", "odd"]]
        reply = await http.post("/v1/steps", json={"items": items[:5]})
        lines = {line["index"]: line for line in map(orjson.loads, reply.content.splitlines())}
        assert [lines[i]["status"] for i in range(5)] == [200, 200, 200, 200, 404]
        assert [lines[i]["id"] for i in range(4)] == ids
        reply = await http.post("/v1/steps", json={"items": items})
        assert sorted(orjson.loads(line)["index"] for line in reply.content.splitlines()) == list(range(7))
        assert (await http.post("/v1/steps", content=b"[")).status_code == 400
        assert (await http.post("/v1/steps", json={"items": []})).status_code == 400

        reply = await http.post(f"/v1/sessions/{ids[0]}/step", json={"revision": 1, "action": "add"})
        assert reply.json()["observation"] == "The counter shows 2."
        digest = (await http.post(f"/v1/sessions/{ids[0]}/snapshot")).json()["digest"]
        data = (await http.get(f"/v1/snapshots/{digest}")).content
        assert (await http.put(f"/v1/snapshots/{digest}", content=data)).status_code == 204
        again = await http.post("/v1/sessions", json={"env": "counter", "snapshot": digest})
        assert again.json()["observation"]["text"] == "The counter shows 2."

        assert (await http.get("/v1/envs")).json()["envs"][0]["name"] == "counter"
        assert (await http.get("/v1/envs/counter/tasks?split=test")).json()["total"] == 2
        assert (await http.get("/v1/envs/counter/tasks?split=no%20such")).status_code == 404
        assert (await http.get("/v1/sessions/unknown")).status_code == 404
        assert (await http.get("/v2")).status_code == 404
        assert (await http.get("/ready")).status_code == 200
        assert "paths" in (await http.get("/openapi.json")).json()
        families = text_string_to_metric_families((await http.get("/metrics")).text)
        samples = [sample for family in families for sample in family.samples if sample.name == "sojourn_sessions_open"]
        assert sum(sample.value for sample in samples) == 6
        assert {sample.labels["worker"] for sample in samples} == {"w0-1", "w1-1"}

        # 8 sessions in all: the last two are found room for, whichever worker has it; then both are full.
        statuses = [(await http.post("/v1/sessions", json=body)).status_code for _ in range(3)]
        assert statuses == [201, 201, 429]
        assert (await http.delete(f"/v1/sessions/{ids[1]}")).status_code == 204

        for token, path, status in [
            ("none", "/v1/workers", 401),
            ("few", "/v1/workers", 403),
            ("few", "/metrics", 403),
        ]:
            assert (await http.get(path, headers={"authorization": f"Bearer {token}"})).status_code == status
        few = {"authorization": "Bearer few"}
        assert (await http.post("/v1/sessions", json=body, headers=few)).status_code == 403
        step = {"items": [{"id": ids[0], "revision": 2, "action": "add"}]}
        assert (await http.post("/v1/steps", json=step, headers=few)).status_code == 200


async def test_a_client_brings_a_snapshot_to_the_worker_that_lacks_it():
    async with LocalServer([COUNTER], workers=2) as url, EnvClient(url) as client:
        sessions = await asyncio.gather(*(client.create("counter", "counter_1") for _ in range(2)))
        first, second = sorted(sessions, key=lambda session: session.id)
        assert first.id[:2] != second.id[:2]
        await first.step("add")
        digest = await first.snapshot()
        assert (await second.restore(digest)).text == "The counter shows 1."
        assert (await client.restore("counter", await first.fetch_snapshot(digest))).observation.text[-2:] == "1."


def test_a_port_that_is_taken_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}.*in use.*--port") as caught:
            serve([COUNTER], port=port)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"envs": [COUNTER], "host": "0.0.0.0"}, "without a token"),
        ({"envs": [COUNTER], "host": "no.such.host.invalid", "config": ServingConfig(token="x")}, "cannot listen"),
        ({"envs": []}, "at least one environment"),
        ({"envs": [COUNTER], "workers": 0}, "workers"),
        ({"envs": ["nowhere"], "port": 0}, "nowhere"),
        ({"envs": {COUNTER: {"padding": "many"}}, "port": 0}, "padding"),
        ({"envs": {COUNTER: {"colour": 1}}, "port": 0}, "colour"),
        ({"envs": ["tests.serving.worlds:Nothing"], "port": 0}, "cannot import"),
        ({"envs": ["tests.serving.worlds:GOAL"], "port": 0}, "not an EnvService"),
    ],
)
def test_what_cannot_be_served_is_one_line(options, match):
    with pytest.raises(UsageError, match=match) as caught:
        serve(**options)
    assert "\n" not in str(caught.value)


def test_services_are_built_with_their_options():
    (service,) = build_services([EnvEntry(name=COUNTER, config={"padding": 7})])
    assert service.config.padding == 7


def test_addresses_that_clients_can_use():
    with bind("0.0.0.0", 0) as sock:
        assert url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
