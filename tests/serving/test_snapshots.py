"""Snapshots: carried to another server, evicted by bytes, refused when they are not whole."""

from __future__ import annotations

import hashlib

import orjson
import pytest

from sojourn.serving.config import ServingConfig
from tests.serving.worlds import CounterConfig, CounterService


def digest_of(data: bytes, env: str = "counter") -> str:
    return hashlib.sha256(env.encode() + b"\0" + data).hexdigest()


async def frozen(http, steps: int = 1):
    session = (await http.opened("counter_3"))["id"]
    for revision in range(steps):
        await http.act(session, revision)
    return session, (await http.post(f"/v1/sessions/{session}/snapshot")).json()["digest"]


async def test_a_world_moves_to_another_server(api):
    async with api() as here, api() as there:
        _, digest = await frozen(here, 3)
        reply = await here.get(f"/v1/snapshots/{digest}")
        assert reply.headers["sojourn-env"] == "counter"
        assert digest_of(reply.content) == digest
        assert (await there.put(f"/v1/snapshots/{digest}", content=reply.content)).status_code == 204
        session = (await there.post("/v1/sessions", json={"env": "counter", "snapshot": digest})).json()
        assert (session["task"], session["family"]) == ("counter_3", "odd")
        assert session["observation"]["text"] == "The counter shows 3."
        assert (await there.act(session["id"], 0)).json()["observation"] == "The counter shows 4."


async def test_equal_states_have_equal_digests(api):
    async with api() as http:
        (_, first), (_, second), (_, other) = [await frozen(http, steps) for steps in (2, 2, 3)]
        assert first == second != other


async def test_the_least_recently_used_snapshot_goes_first_and_is_gone_not_unknown(api):
    service = CounterService(CounterConfig(padding=1000))
    async with api([service], ServingConfig(snapshot_store_bytes=3000)) as http:
        session, first = await frozen(http, 1)
        await http.act(session, 1)
        second = (await http.post(f"/v1/sessions/{session}/snapshot")).json()["digest"]
        assert (await http.get(f"/v1/snapshots/{first}")).status_code == 200
        await http.act(session, 2)
        third = (await http.post(f"/v1/sessions/{session}/snapshot")).json()["digest"]
        statuses = {d: (await http.get(f"/v1/snapshots/{d}")).status_code for d in (first, second, third)}
        assert statuses == {first: 200, second: 410, third: 200}
        reply = await http.post(f"/v1/sessions/{session}/restore", json={"revision": 3, "snapshot": second})
        assert reply.status_code == 410
        assert (await http.act(session, 3)).status_code == 200
        assert http.app.state.operations.snapshots.bytes <= 3000


async def test_a_snapshot_over_the_bound_is_refused(api):
    service = CounterService(CounterConfig(padding=5000))
    async with api([service], ServingConfig(max_snapshot_bytes=2000)) as http:
        session = (await http.opened())["id"]
        assert (await http.post(f"/v1/sessions/{session}/snapshot")).status_code == 413
        assert (await http.put(f"/v1/snapshots/{'0' * 64}", content=b"x" * 3000)).status_code == 413


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "garbage"])
async def test_bytes_that_are_not_those_of_the_digest_are_refused(api, harm):
    async with api() as http:
        _, digest = await frozen(http)
        data = (await http.get(f"/v1/snapshots/{digest}")).content
        wrong = {
            "flip": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
            "cut": data[:-1],
            "empty": b"",
            "garbage": b"\xff\x00",
        }[harm]
        reply = await http.put(f"/v1/snapshots/{digest}", content=wrong)
        assert reply.status_code == 422
        assert reply.json()["type"] == "urn:sojourn:problem:snapshot-invalid"


LABEL = {"sojourn": 1, "env": "counter", "task": "counter_3", "ended": False}
STATE = {"v": 1, "env": "counter", "version": "1", "kind": "state", "state": {"count": 1, "task": "3"}}


@pytest.mark.parametrize(
    ("label", "state", "status"),
    [
        (LABEL, STATE, 201),
        (LABEL, {**STATE, "version": "0"}, 422),
        (LABEL, {**STATE, "state": {}}, 422),
        (LABEL, {**STATE, "state": [1]}, 422),
        (LABEL, [], 422),
        ({**LABEL, "task": "counter_99"}, STATE, 404),
        ({**LABEL, "env": "other"}, STATE, 422),
    ],
)
async def test_a_well_formed_lie_is_refused_when_it_is_restored(api, counter, label, state, status):
    data = orjson.dumps(label) + b"\n" + orjson.dumps(state)
    digest = digest_of(data, label["env"])
    async with api([counter]) as http:
        assert (await http.put(f"/v1/snapshots/{digest}", content=data)).status_code == 204
        assert (await http.post("/v1/sessions", json={"env": "counter", "snapshot": digest})).status_code == status
        session = (await http.opened())["id"]
        await http.act(session, 0)
        reply = await http.post(f"/v1/sessions/{session}/restore", json={"revision": 1, "snapshot": digest})
        assert reply.status_code == (200 if status == 201 else status)
        if status != 201:
            assert (await http.act(session, 1)).json()["observation"] == "The counter shows 2."
    assert counter.open_worlds == 0


@pytest.mark.parametrize("label", [{**LABEL, "sojourn": 2}, {**LABEL, "more": 1}, {"env": "counter"}, 3])
async def test_labels_of_another_format_are_refused(api, label):
    data = orjson.dumps(label) + b"\n" + orjson.dumps(STATE)
    async with api() as http:
        assert (await http.put(f"/v1/snapshots/{digest_of(data)}", content=data)).status_code == 422


async def test_a_snapshot_of_another_environment_does_not_restore(api):
    services = [CounterService(), CounterService(CounterConfig(name="other"))]
    async with api(services) as http:
        _, digest = await frozen(http)
        reply = await http.post("/v1/sessions", json={"env": "other", "snapshot": digest})
        assert reply.status_code == 422
