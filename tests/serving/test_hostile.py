"""Whatever is sent, the service answers with a problem and goes on."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.serving.app import create_app
from tests.serving.conftest import plain_api
from tests.serving.worlds import CounterConfig, CounterService

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = ["env", "task", "seed", "init", "snapshot", "view", "lease_s", "revision", "action", "change", "count", "items"]
documents = st.dictionaries(
    st.sampled_from(names), values | st.sampled_from(["counter", "counter_1", 0, 1]), max_size=5
)
bodies = st.binary(max_size=60) | (documents | values).map(lambda value: as_json(value))
paths = st.sampled_from(
    ["/v1/sessions", "/v1/steps", *(f"/v1/sessions/{{id}}/{verb}" for verb in
     ("step", "reset", "inject", "restore", "fork", "renew"))]
)  # fmt: skip


def as_json(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return repr(value).encode("utf-8", "surrogatepass")


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(path=paths, body=bodies, identifier=st.none() | st.text(max_size=30))
def test_bodies_never_meet_a_fault(path, body, identifier):
    async def send() -> None:
        async with plain_api([CounterService(CounterConfig(tame=True))]) as http:
            session = (await http.opened())["id"] if identifier is None else identifier
            reply = await http.post(path.replace("{id}", quote(session, safe="")), content=body)
            assert reply.status_code < 500, reply.text
            if reply.status_code >= 400:
                assert reply.json()["status"] == reply.status_code
                assert reply.headers["content-type"] == "application/problem+json"
            await http.opened()

    asyncio.run(send())


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(actions=st.lists(st.text(), min_size=1, max_size=8))
def test_any_text_is_an_action_and_comes_back_whole(actions):
    async def play() -> None:
        async with plain_api([CounterService(CounterConfig(tame=True))]) as http:
            session = (await http.opened())["id"]
            for revision, action in enumerate(actions):
                body = {"items": [{"id": session, "revision": revision, "action": f"say {action}"}]}
                (line,) = (await http.post("/v1/steps", json=body)).content.strip(b"\n").split(b"\n")
                assert orjson.loads(line)["result"]["observation"] == f"say {action}"

    asyncio.run(play())


NUMBERS = [
    b"-1",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"1e400",
    b"9" * 400,
    b"1.5",
    b"true",
    b'"1"',
    b"[]",
    b"-0.0",
]


@pytest.mark.parametrize(
    ("verb", "body"),
    [("step", b'{"action":"add","revision":%b}'), ("fork", b'{"count":%b}'), ("renew", b'{"lease_s":%b}'),
     ("reset", b'{"revision":0,"seed":%b}'), ("inject", b'{"revision":0,"change":{"count":%b}}')],
)  # fmt: skip
async def test_absurd_numbers_are_refused_by_the_name_of_their_field(verb, body):
    field = body.partition(b":%b")[0].rpartition(b'"')[0].rpartition(b'"')[2].decode()
    async with plain_api() as http:
        path = f"/v1/sessions/{(await http.opened())['id']}"
        for number in NUMBERS:
            reply = await http.post(f"{path}/{verb}", content=body.replace(b"%b", number))
            if verb == "renew" and number == b"1.5":
                assert reply.json()["lease_s"] == 1.5
                continue
            assert reply.status_code in {400, 422}, (number, reply.text)
            detail = reply.json()["detail"]
            assert field in detail or (verb == "inject" and detail.startswith("change")), (number, detail)
        state = (await http.get(path)).json()
        assert state["revision"] == 0


async def test_deep_nesting_and_huge_numbers_are_refused_not_fatal():
    async with plain_api() as http:
        session = (await http.opened())["id"]
        for change in (b"[" * 100_000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"count":1e999}',
                       b'{"count":"\\ud800"}', b'{"count":NaN}', b'{"count":1,"count":2,"count":"x"}'):  # fmt: skip
            body = b'{"revision":0,"change":' + change + b"}"
            reply = await http.post(f"/v1/sessions/{session}/inject", content=body)
            assert reply.status_code in {400, 422}, reply.text


async def test_names_that_would_write_on_a_terminal_are_told_in_one_printable_line():
    hostile = "a\n\x1b[2J" + "b" * 1_000
    async with plain_api() as http:
        bodies = [{"env": "counter", hostile: 1}, {"env": hostile, "task": "counter_1"}]
        bodies += [{"env": "counter", "task": hostile}, {"env": "counter", "task": "counter_1", "view": hostile}]
        for body in bodies:
            problem = (await http.post("/v1/sessions", json=body)).json()
            said = [problem["detail"], *(text for one in problem.get("errors", []) for text in one.values())]
            assert problem["status"] in (400, 404, 422)
            assert all(text.isprintable() and len(text) < 1_500 for text in said)


async def test_a_fault_of_our_own_is_a_problem_that_tells_no_secrets(monkeypatch, caplog):
    app = create_app([CounterService()])

    def fault(*_: object) -> bytes:
        raise RuntimeError("internal detail")

    monkeypatch.setattr(app.state.operations, "describe", fault)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http,
    ):
        reply = await http.get("/v1/sessions/x")
        assert reply.status_code == 500
        assert "internal detail" not in reply.text
        assert "internal detail" in caplog.text
