"""The dialects at the single address of two workers."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import httpx
import pytest
from websockets.asyncio.client import connect

from sojourn.envs.registry import load
from sojourn.serving.app import create_app
from sojourn.serving.config import DialectsConfig, ServingConfig
from sojourn.serving.dialects import dialect_routes
from sojourn.serving.dialects.agentgym_worlds import WORLDS
from sojourn.serving.dialects.forwarding import forwarding_routes
from sojourn.serving.dialects.seats import Seat, Seats
from sojourn.serving.local import LocalServer


def test_ids_of_several_workers_never_meet():
    """Two workers, one of them in its second life: all ids differ, and each tells its worker."""
    seats = [Seats(ServingConfig(worker=name, workers=2), lambda session: True) for name in ("w0-1", "w1-1", "w1-2")]
    ids = [[one.claim() for _ in range(100)] for one in seats]
    assert len({number for some in ids for number in some}) == 300
    assert ids[0][:3] == [0, 2, 4]
    assert ids[1][:3] == [1, 3, 5]
    assert {number % 2 for number in ids[2]} == {1}
    for one, mine in zip(seats, ids, strict=True):
        one.add(Seat(mine[7], "session", started=True))
        assert one.find(mine[7]).session == "session"


@pytest.mark.parametrize(
    ("root", "env"), [*(("agentgym", env) for env in WORLDS), ("agentgym", "search"), ("openenv", "textcraft")]
)
def test_all_that_a_worker_serves_at_the_root_path_is_forwarded(root, env):
    config = ServingConfig(dialects=DialectsConfig(root=root, root_env=env))
    worker = dialect_routes(create_app([load(env)()], config).state.operations)
    front = {route.path for route in forwarding_routes(SimpleNamespace(), config)}
    assert {route.path for route in worker if route.path.count("/") == 1} <= front


async def play_agentgym(http, path, index):
    number = (await http.post(f"{path}/create", json={})).json()["id"]
    opening = (await http.post(f"{path}/reset", json={"id": number, "data_idx": index})).json()["observation"]
    item = opening.rpartition("craft ")[2].rstrip(".")
    for _ in range(3):
        assert (await http.post(f"{path}/step", json={"id": number, "action": "inventory"})).json()["reward"] == 0
        assert (await http.get(f"{path}/observation", params={"id": number})).json().startswith("Inventory")
    return number, item


async def play_openenv(url, seed):
    async with connect(url.replace("http", "ws") + "/openenv/textcraft/ws", proxy=None) as socket:
        await socket.send(json.dumps({"type": "reset", "data": {"seed": seed}}))
        session = json.loads(await socket.recv())["data"]["metadata"]["session_id"]
        await socket.send(json.dumps({"type": "step", "data": {"action": "inventory"}}))
        assert "Inventory" in json.loads(await socket.recv())["data"]["observation"]["text"]
        socket.transport.abort()
    async with connect(url.replace("http", "ws") + f"/openenv/textcraft/ws?session_id={session}", proxy=None) as socket:
        await socket.send('{"type":"close"}')
        await socket.wait_closed()
    return session


async def test_each_request_reaches_the_worker_of_its_session():
    serving = ServingConfig(dialects=DialectsConfig(root="agentgym", root_env="textcraft"))
    async with LocalServer(["textcraft"], workers=2, serving=serving) as url, httpx.AsyncClient(base_url=url) as http:
        played = await asyncio.gather(*(play_agentgym(http, "/agentgym/textcraft", 7) for _ in range(6)))
        played += await asyncio.gather(*(play_agentgym(http, "", 7) for _ in range(6)))
        assert len({number for number, _ in played}) == 12
        assert {number % 2 for number, _ in played} == {0, 1}
        assert len({item for _, item in played}) == 1
        for number, _ in played:
            assert (await http.post("/close", json={"id": number})).json() is True
        assert (await http.post("/step", json={"id": 999, "action": "x"})).json() == {
            "error": "The id 999 is not valid."
        }
        assert (await http.post("/step", json={"id": [], "action": "x"})).status_code == 422
        for path in ("/nothing", "/agentgym/textcraft/nothing", "/agentgym/nothing/create"):
            reply = await http.post(path, json={})
            assert (reply.status_code, reply.json()) == (404, {"detail": "Not Found"})

        played = await asyncio.gather(*(play_openenv(url, seed) for seed in range(4)))
        assert {session[:2] for session in played} == {"w0", "w1"}
        opened = [(await http.post("/openenv/textcraft/reset", json={"seed": n})).json()["metadata"] for n in range(4)]
        assert {one["session_id"][:2] for one in opened} == {"w0", "w1"}
        for one in opened:
            body = {"episode_id": one["session_id"], "action": {"action": "inventory"}}
            assert (await http.post("/openenv/textcraft/step", json=body)).status_code == 200
