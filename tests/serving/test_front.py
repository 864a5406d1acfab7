"""The one address of several workers, when workers and requests are not as they should be."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import orjson
import pytest

from sojourn.client.session import EnvClient
from sojourn.serving.config import ServingConfig
from sojourn.serving.front import Front, WorkerView
from sojourn.serving.local import LocalServer
from tests.serving.test_supervisor import COUNTER, workers_of

CREATE = {"env": "counter", "task": "counter_1"}


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something in another process."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - no event crosses processes
            await asyncio.sleep(0.05)


class Workers(httpx.AsyncBaseTransport):
    """Stands in for the workers: answers, or breaks off."""

    def __init__(self, **replies: httpx.Response | Exception) -> None:
        self.replies = replies
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.url.host} {request.method} {request.url.path}")
        reply = self.replies[request.url.host]
        if isinstance(reply, Exception):
            raise reply
        return reply


def front_of(workers: Workers, **config) -> httpx.AsyncClient:
    views = [WorkerView(name, f"http://{name}", 80, 4, id=f"{name}-1", alive=True) for name in workers.replies]
    front = Front(views, ServingConfig(**config), httpx.AsyncClient(transport=workers))
    return httpx.AsyncClient(transport=httpx.ASGITransport(front.app()), base_url="http://test")


async def test_a_worker_that_breaks_off_is_a_502_that_says_so():
    workers = Workers(w0=httpx.ReadError("gone"))
    async with front_of(workers) as http:
        for reply in (
            await http.post("/v1/sessions", json=CREATE),
            await http.get("/v1/sessions/w0-1.abc"),
            await http.get("/v1/envs"),
        ):
            assert reply.status_code == 502
            assert reply.json()["type"] == "urn:sojourn:problem:bad-gateway"
        assert (await http.get("/v1/snapshots/%0d%0a?x=1")).status_code == 502
        assert (await http.get("/metrics")).status_code == 200
        item = {"id": "w0-1.abc", "revision": 0, "action": "add"}
        assert (await http.post("/v1/steps", json={"items": [item]})).content == b""


@pytest.mark.parametrize("digest", ["a%0d%0ab", "%ff%00", "é", "..%2f..%2fmetrics", "x" * 5000])
async def test_digests_that_are_none_are_asked_of_one_worker_and_lead_nowhere_else(digest):
    refusal = httpx.Response(404, content=b"{}", headers={"content-type": "application/problem+json"})
    workers = Workers(w0=refusal, w1=refusal)
    async with front_of(workers) as http:
        assert (await http.get(f"/v1/snapshots/{digest}")).status_code == 404
        body = {"env": "counter", "snapshot": digest}
        assert (await http.post("/v1/sessions", json=body)).status_code == 404
    assert len(workers.asked) == 2
    assert not any("metrics" in asked.partition("/v1/")[0] for asked in workers.asked)


@pytest.mark.parametrize("order", [("w0", "w1"), ("w1", "w0")])
async def test_a_snapshot_that_one_worker_has_evicted_is_gone_and_not_unknown(order):
    problem = {"headers": {"content-type": "application/problem+json"}, "content": b"{}"}
    replies = {"w0": httpx.Response(410, **problem), "w1": httpx.Response(404, **problem)}
    async with front_of(Workers(**{name: replies[name] for name in order})) as http:
        assert (await http.get(f"/v1/snapshots/{'0' * 64}")).status_code == 410
        assert (await http.post("/v1/sessions", json={"env": "counter", "snapshot": "0" * 64})).status_code == 410


@pytest.mark.parametrize("name", ["authorization", "idempotency-key", "content-type", "accept", "host"])
async def test_headers_that_are_no_text_are_passed_on_as_they_are(name):
    workers = Workers(w0=httpx.Response(200, content=b'{"workers": []}'))
    async with front_of(workers) as http:
        for call in (http.post("/v1/sessions", json=CREATE, headers={name: b"\xff\xfe [::1"}), http.get("/v1/workers")):
            assert (await call).status_code == 200
        assert (await http.get("/v1/workers", headers={"host": "[::1"})).status_code == 200


async def test_a_create_that_found_no_room_is_tried_everywhere_again():
    full = httpx.Response(429, content=b"{}", headers={"retry-after": "1"})
    workers = Workers(w0=full, w1=full)
    async with front_of(workers) as http:
        for _ in range(2):
            reply = await http.post("/v1/sessions", json=CREATE, headers={"idempotency-key": "k"})
            assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
        workers.replies["w1"] = httpx.Response(201, content=b"{}")
        assert (await http.post("/v1/sessions", json=CREATE, headers={"idempotency-key": "k"})).status_code == 201
    assert sorted(asked[:2] for asked in workers.asked[:4]) == ["w0", "w0", "w1", "w1"]


async def test_a_malformed_batch_is_refused_whole():
    """One wrong item, and no worker hears of the others."""
    workers = Workers(w0=httpx.Response(200), w1=httpx.Response(200))
    good = {"id": "w0-1.a", "revision": 0, "action": "add"}
    async with front_of(workers, max_batch=3) as http:
        for items in ([good, {**good, "id": "w1-1.b", "revision": "x"}], [good] * 4, []):
            reply = await http.post("/v1/steps", json={"items": items})
            assert reply.status_code == 400
            assert reply.json()["detail"].startswith("items")
    assert workers.asked == []


async def test_an_unknown_session_in_a_batch_harms_nobody_else():
    async with LocalServer([COUNTER], workers=2) as url, httpx.AsyncClient(base_url=url) as http:
        replies = await asyncio.gather(*(http.post("/v1/sessions", json=CREATE) for _ in range(2)))
        ids = sorted(reply.json()["id"] for reply in replies)
        assert [i[:3] for i in ids] == ["w0-", "w1-"]
        items = [{"id": i, "revision": 0, "action": "add"} for i in (ids[0], "nobody", ids[1], "w7-1.none")]
        reply = await http.post("/v1/steps", json={"items": items})
        lines = {line["index"]: line["status"] for line in map(orjson.loads, reply.content.splitlines())}
        assert lines == {0: 200, 1: 404, 2: 200, 3: 404}


async def test_a_worker_that_dies_at_every_start_is_tried_again_with_pauses(tmp_path: Path):
    """The other one serves meanwhile; once whatever ailed it is mended it comes back."""
    marker = tmp_path / "ill"
    env = "tests.serving.fatal:Sickly"
    async with (
        LocalServer({env: {"marker": str(marker)}}, workers=2) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as http,
    ):
        before = await workers_of(http)
        marker.write_text("")
        os.kill(before["w0-1"]["pid"], signal.SIGKILL)
        await until(lambda: "died" in marker.read_text())
        assert (await http.get("/ready")).status_code == 503
        assert (await http.get("/health")).status_code == 200
        assert sorted(worker["alive"] for worker in (await workers_of(http)).values()) == [False, True]
        session = (await http.post("/v1/sessions", json=CREATE)).json()["id"]
        assert session.startswith("w1-1.")
        marker.unlink()
        await until(lambda: httpx.get(f"{url}/ready").status_code == 200)
        generations = [name for name in await workers_of(http) if name.startswith("w0-")]
        assert int(generations[0].rpartition("-")[2]) >= 3


@pytest.mark.parametrize("workers", [1, 2])
async def test_shutting_down_finishes_the_batch_under_way(workers):
    """SIGTERM in the middle of a batch: each step is answered, nothing new is taken, the process ends in order."""
    server = LocalServer([COUNTER], workers=workers, serving=ServingConfig(drain_s=10))
    async with server as url, EnvClient(url) as client, httpx.AsyncClient(base_url=url, timeout=30) as http:
        sessions = [await client.create("counter", "counter_1") for _ in range(4)]
        items = [{"id": session.id, "revision": 0, "action": "sleep 0.5"} for session in sessions]
        batch = asyncio.create_task(http.post("/v1/steps", json={"items": items}))
        await asyncio.sleep(0.2)
        os.kill(server.pid, signal.SIGTERM)
        reply = await batch
        assert [orjson.loads(line)["status"] for line in reply.content.splitlines()] == [200] * 4
        assert await server._child.process.wait() == 0
        with pytest.raises(httpx.TransportError):
            await http.get("/health")
