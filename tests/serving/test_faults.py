"""What goes wrong between a client and a real environment, over real sockets: it acts once, no trace is left."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest

from sojourn.client.session import EnvClient, EnvSession
from sojourn.envs import registry
from sojourn.envs.base import EnvService
from sojourn.protocol.errors import Gone, ServiceError
from sojourn.serving.config import ServingConfig
from sojourn.serving.local import LocalServer
from tests.conftest import listen
from tests.serving.lossy import lossy
from tests.serving.shipped import OPTIONS, WORDS, service_of

CHANGES: dict[str, dict[str, Any]] = {
    "babyai": {"agent": {"dir": 1}},
    "sciworld": {"location": "kitchen"},
    "textcraft": {"items": {"stick": 3}},
}
"""Something to inject, in the worlds that are known to take it."""
STORE = 1 << 18
"""Bytes of snapshots that a server keeps where the store is to be full."""


@asynccontextmanager
async def served(
    name: str, config: ServingConfig | None = None
) -> AsyncIterator[tuple[EnvService, str, EnvClient, str]]:
    """A real environment under uvicorn: itself, its address, a client and a task."""
    service = service_of(name)
    split = next(iter(service.spec.splits))
    task = str(service.tasks().select(split)[0])
    async with listen([service], config) as url, EnvClient(url) as client:
        yield service, url, client, task


async def words(session: EnvSession, count: int) -> list[str]:
    """Things to do that the world takes."""
    return WORDS.get(session.env) or (await session.actions() or ["look around", "go west"])[:count]


async def count_of_sessions(url: str) -> int:
    async with httpx.AsyncClient(base_url=url) as http:
        return (await http.get("/v1/workers")).json()["workers"][0]["sessions"]


@pytest.mark.parametrize("name", registry.names())
async def test_operations_whose_reply_is_lost_act_once(name, tmp_path, monkeypatch):
    """A session whose every reply is lost ends where one that nothing happened to does."""
    monkeypatch.setenv("SOJOURN_HOME", str(tmp_path))
    async with served(name) as (_, url, sure, task), lossy(url) as (way_url, way), EnvClient(way_url) as unsure:

        async def live(client: EnvClient, losses: int) -> list[Any]:
            def lose(what: str) -> None:
                if client is unsure:
                    way.lose[what] = losses

            lose("POST /sessions")
            session = await client.create(name, task, seed=0)
            seen: list[Any] = [session.observation]
            for action in await words(session, 2):
                lose("POST /steps")
                seen.append(await session.step(action))
            lose("POST /snapshot")
            seen.append(await session.snapshot())
            lose("POST /inject")
            try:
                seen.append(await session.inject(CHANGES.get(name, {"nothing known": 1})))
            except ServiceError as refused:
                assert name not in CHANGES
                seen.append(refused.problem())
            lose("POST /restore")
            seen.append(await session.restore(seen[3] if isinstance(seen[3], str) else seen[-2]))
            lose("POST /steps")
            seen.append(await session.step((await words(session, 1))[0]))
            lose("POST /fork")
            children = await session.fork(2)
            seen += [[child.observation for child in children], await children[1].snapshot()]
            lose("POST /reset")
            seen += [await session.reset(seed=1), session.revision, await session.snapshot()]
            for each in (session, *children):
                lose(f"DELETE /{each.id}")
                await each.close()
            return seen

        expected = await live(sure, 0)
        assert await live(unsure, 1) == expected
        assert await count_of_sessions(url) == 0
        verbs = ["sessions", "steps", "snapshot", "inject", "restore", "fork", "reset"]
        assert {what for what in way.lost if what.startswith("POST")} == {f"POST /{verb}" for verb in verbs}


@pytest.mark.parametrize("name", registry.names())
async def test_after_each_fault_a_full_reset_is_a_fresh_session(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SOJOURN_HOME", str(tmp_path))
    config = ServingConfig(max_sessions=6, snapshot_store_bytes=STORE)
    async with (
        served(name, config) as (service, url, client, task),
        httpx.AsyncClient(base_url=url, timeout=60) as http,
    ):
        fresh = await client.create(name, task, seed=0)
        expected = (fresh.observation, await fresh.snapshot())
        session = await client.create(name, task, seed=0)
        path = f"/v1/sessions/{session.id}"
        action = (await words(session, 1))[0]

        async def two_clients() -> None:
            body = {"revision": session.revision}
            replies = await asyncio.gather(
                http.post(f"{path}/step", json={**body, "action": action}),
                http.post(f"{path}/step", json={**body, "action": f"{action} please"}),
            )
            assert sorted(reply.status_code for reply in replies) == [200, 409]
            refusal = next(reply.json() for reply in replies if reply.status_code == 409)
            assert (refusal["type"], refusal["revision"]) == ("urn:sojourn:problem:conflict", session.revision + 1)
            session.revision += 1

        async def gone_in_the_middle(whole: bool) -> None:
            """A client that vanishes: half of its request is no request, a whole one is acted on."""
            host, port = url.removeprefix("http://").split(":")
            body = orjson.dumps({"revision": session.revision, "action": action})
            head = f"POST {path}/step HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(head + (body if whole else body[:5]))
            await writer.drain()
            writer.transport.abort()
            if whole:
                await session.step(action)
            else:
                assert (await http.get(path)).json()["revision"] == session.revision

        async def foreign_snapshot() -> None:
            data = b'{"ended":false,"env":"%b","sojourn":1,"task":"%b"}\nwhat is this' % (name.encode(), task.encode())
            digest = hashlib.sha256(name.encode() + b"\0" + data).hexdigest()
            assert (await http.put(f"/v1/snapshots/{digest}", content=data)).status_code == 204
            before = await session.snapshot()
            reply = await http.post(f"{path}/restore", json={"revision": session.revision, "snapshot": digest})
            assert (reply.status_code, reply.json()["type"]) == (422, "urn:sojourn:problem:snapshot-invalid")
            assert await session.snapshot() == before

        async def refused(verb: str, body: dict[str, Any]) -> None:
            reply = await http.post(f"{path}/{verb}", json={"revision": session.revision, **body})
            assert reply.status_code in {422, 501}, reply.text

        async def workers_of_its_own_killed() -> None:
            """The simulators that a world keeps in other processes: their end is not seen."""
            for jvm in service.pool.jvms() if name == "sciworld" else []:
                os.kill(jvm.pid, signal.SIGKILL)
            await session.step(action)

        async def too_many_creates() -> None:
            body = {"env": name, "task": task}
            replies = await asyncio.gather(*(http.post("/v1/sessions", json=body) for _ in range(10)))
            opened = [reply.json()["id"] for reply in replies if reply.status_code == 201]
            assert sorted(reply.status_code for reply in replies) == [201] * 4 + [429] * 6
            for other in opened:
                assert (await http.delete(f"/v1/sessions/{other}")).status_code == 204

        async def store_full() -> None:
            digest = (await http.post(f"{path}/snapshot")).json()["digest"]
            header = b'{"ended":false,"env":"%b","sojourn":1,"task":"%b"}\n' % (name.encode(), task.encode())
            large = header + b"x" * (STORE - len(header))
            evicting = hashlib.sha256(name.encode() + b"\0" + large).hexdigest()
            assert (await http.put(f"/v1/snapshots/{evicting}", content=large)).status_code == 204
            reply = await http.post(f"{path}/restore", json={"revision": session.revision, "snapshot": digest})
            assert reply.status_code == 410

        faults = [
            too_many_creates(),
            store_full(),
            two_clients(),
            workers_of_its_own_killed(),
            gone_in_the_middle(whole=False),
            gone_in_the_middle(whole=True),
            foreign_snapshot(),
            refused("inject", {"change": {"no such": 1}}),
            refused("reset", {"init": {"no such": 1}}),
        ]
        for fault in faults:
            await fault
            seen = await session.reset(task, seed=0)
            assert (seen, await session.snapshot()) == expected


@pytest.mark.parametrize("name", registry.names())
async def test_after_its_worker_was_killed_a_session_anew_is_the_one_there_was(name):
    service = service_of(name)
    task = str(service.tasks().select(next(iter(service.spec.splits)))[0])
    async with (
        LocalServer({name: OPTIONS.get(name, {})}, workers=2) as url,
        EnvClient(url) as client,
        httpx.AsyncClient(base_url=url) as http,
    ):
        session = await client.create(name, task, seed=0)
        expected = (session.observation, await session.snapshot())
        await session.step((await words(session, 1))[0])
        workers = {worker["id"]: worker["pid"] for worker in (await http.get("/v1/workers")).json()["workers"]}
        os.kill(workers[session.id.partition(".")[0]], signal.SIGKILL)
        with pytest.raises(Gone, match="restarted"):
            await session.step("look")
        again = await client.create(name, task, seed=0)
        assert (again.observation, await again.snapshot()) == expected
