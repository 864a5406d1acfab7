"""Snapshots: carried to another server, evicted by bytes, refused when they are not whole."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AsyncExitStack

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.envs import registry
from sojourn.protocol.errors import ReplayDiverged
from sojourn.serving.config import ServingConfig
from tests.envs.example_env import GuessService
from tests.serving.conftest import plain_api
from tests.serving.shipped import service_of
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


def sealed(state: object, env: str = "counter") -> bytes:
    return orjson.dumps({**LABEL, "env": env}) + b"\n" + orjson.dumps(state)


@pytest.mark.parametrize("env", ["counter\r\nX-Injected: 1", "\u4e16", "Counter", "a b", "", "x" * 65, "counter\n"])
async def test_a_label_that_is_no_name_is_refused_for_it_would_be_a_header(api, env):
    data = sealed(STATE, env)
    async with api() as http:
        assert (await http.put(f"/v1/snapshots/{digest_of(data, env)}", content=data)).status_code == 422


class Diverging(CounterService):
    """Its worlds find that replayed snapshots lead elsewhere."""

    def create(self, view=None):
        world = super().create(view)

        async def restore(snapshot):
            raise ReplayDiverged("replay of step gave another observation than was recorded")

        world.restore = restore
        return world


async def test_a_foreign_snapshot_that_diverges_is_refused_and_one_of_ours_is_a_fault(api):
    async with api([Diverging()]) as http:
        session, digest = await frozen(http)
        reply = await http.post(f"/v1/sessions/{session}/restore", json={"revision": 1, "snapshot": digest})
        assert reply.json()["type"] == "urn:sojourn:problem:replay-diverged"
        data = sealed(STATE)
        await http.put(f"/v1/snapshots/{digest_of(data)}", content=data)
        body = {"revision": 1, "snapshot": digest_of(data)}
        reply = await http.post(f"/v1/sessions/{session}/restore", json=body)
        assert (reply.status_code, reply.json()["type"]) == (422, "urn:sojourn:problem:snapshot-invalid")
        assert (await http.act(session, 1)).status_code == 200


OURS = {"counter": CounterService, "guess": GuessService}
"""SciWorld's snapshots are a log of the same shape as `guess` writes, and take long to replay."""


@pytest.mark.parametrize("name", [*OURS, *(name for name in registry.names() if name != "sciworld")])
def test_a_bit_flipped_anywhere_is_refused_or_harmless(name):
    """Any damage, labelled with its own digest: a 4xx that leaves the session as it was, or a world in order."""
    service = OURS[name] if name in OURS else lambda: service_of(name)
    with asyncio.Runner() as runner:
        held = AsyncExitStack()
        made = service()
        http = runner.run(held.enter_async_context(plain_api([made])))
        task = str(made.tasks().select(next(iter(made.spec.splits)))[0])

        async def begin():
            opened = await http.post("/v1/sessions", json={"env": name, "task": task, "seed": 0})
            path = f"/v1/sessions/{opened.json()['id']}"
            await http.post(f"{path}/step", json={"revision": 0, "action": "look"})
            digest = (await http.post(f"{path}/snapshot")).json()["digest"]
            return path, digest, (await http.get(f"/v1/snapshots/{digest}")).content

        path, digest, whole = runner.run(begin())

        async def restored(data: bytes) -> None:
            revision = (await http.get(path)).json()["revision"]
            named = digest_of(data, name)
            put = await http.put(f"/v1/snapshots/{named}", content=data)
            reply = await http.post(f"{path}/restore", json={"revision": revision, "snapshot": named})
            assert put.status_code in {204, 422}, put.text
            if reply.status_code == 200:
                step = await http.post(f"{path}/step", json={"revision": revision + 1, "action": "look"})
                assert step.status_code in {200, 409}, (step.text, data)
                back = {"revision": revision + 1 + (step.status_code == 200), "snapshot": digest}
                assert (await http.post(f"{path}/restore", json=back)).status_code == 200
            else:
                assert 400 <= reply.status_code < 500, (reply.text, data)
            assert (await http.post(f"{path}/snapshot")).json()["digest"] == digest

        flips = st.tuples(st.just("flip"), st.integers(0, 8 * len(whole) - 1))
        cuts = st.tuples(st.just("cut"), st.integers(0, len(whole) - 1))
        noise = st.tuples(st.just("noise"), st.binary(max_size=80))

        @settings(max_examples=60, deadline=None, derandomize=True, database=None)
        @given(flips | cuts | noise)
        def damage(harm):
            kind, where = harm
            if kind == "flip":
                data = bytearray(whole)
                data[where // 8] ^= 1 << where % 8
                runner.run(restored(bytes(data)))
            else:
                line = whole.partition(b"\n")[0] + b"\n"
                runner.run(restored(whole[:where] if kind == "cut" else line + where))

        damage()
        runner.run(held.aclose())
