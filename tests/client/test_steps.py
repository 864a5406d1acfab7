"""Steps of one tick travel together, and each is answered on its own."""

from __future__ import annotations

import asyncio

import httpx
import orjson
import pytest

from sojourn.client.session import EnvClient
from sojourn.protocol.errors import Conflict, EnvironmentFailed, TransportError
from tests.client.conftest import losing
from tests.serving.worlds import CounterService


async def test_one_tick_is_one_request(served):
    made, wrap = losing()
    async with served([CounterService()], wrap=wrap) as client:
        sessions = [await client.create("counter", "counter_1") for _ in range(40)]
        results = await asyncio.gather(*(session.step("add") for session in sessions))
        assert {result.observation for result in results} == {"The counter shows 1."}
        assert made[0].requests["POST steps"] == 1
        await asyncio.gather(*(session.step("add") for session in sessions))
        assert made[0].requests["POST steps"] == 2


async def test_large_ticks_are_spread(served):
    made, wrap = losing()
    async with served([CounterService()], wrap=wrap) as client:
        sessions = [await client.create("counter", "counter_1") for _ in range(150)]
        await asyncio.gather(*(session.step("add") for session in sessions))
        assert made[0].requests["POST steps"] == 3


async def test_each_step_gets_its_own_outcome(served):
    async with served([CounterService()]) as client:
        sessions = [await client.create("counter", "counter_1") for _ in range(4)]
        sessions[2].revision = 7
        actions = ["add", "raise", "add", "echo  \u2028 \x85 \x1e \n"]
        outcomes = await asyncio.gather(
            *(session.step(action) for session, action in zip(sessions, actions, strict=True)), return_exceptions=True
        )
        assert outcomes[0].observation == "The counter shows 1."
        assert isinstance(outcomes[1], EnvironmentFailed)
        assert isinstance(outcomes[2], Conflict)
        assert outcomes[2].extra["revision"] == 0
        assert outcomes[3].observation == actions[3]


async def test_a_cancelled_step_does_not_harm_the_others(served):
    async with served([CounterService()]) as client:
        sessions = [await client.create("counter", "counter_1") for _ in range(3)]
        tasks = [asyncio.create_task(session.step("sleep 0.05")) for session in sessions]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert outcomes[0].observation == outcomes[2].observation == "The counter shows 0."
        # The step was acted on: asked again with its revision, it gives the reply that was not waited for.
        assert (await sessions[1].step("sleep 0.05")).observation == "The counter shows 0."
        assert sessions[1].revision == 1


async def test_results_arrive_before_the_slowest_of_their_request(listening):
    async with listening([CounterService()]) as url, EnvClient(url) as client:
        slow, fast = [await client.create("counter", "counter_1") for _ in range(2)]
        late = asyncio.create_task(slow.step("sleep 0.5"))
        assert (await fast.step("add")).observation == "The counter shows 1."
        assert not late.done()
        await late


def scripted(*replies: bytes | Exception) -> httpx.MockTransport:
    """A server whose batch replies are given; everything else is a plain create."""
    left = list(replies)

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/workers":
            return httpx.Response(200, json={"workers": []})
        if request.url.path == "/v1/sessions":
            session = {
                "id": "w0.x", "env": "c", "task": "c_1", "family": "f", "view": "full", "revision": 0,
                "lease_s": 1.0, "observation": {"text": "", "info": {}},
            }  # fmt: skip
            return httpx.Response(201, json=session)
        reply = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(reply, Exception):
            raise reply
        return httpx.Response(200, content=reply)

    return httpx.MockTransport(handle)


def line(index: int, observation: str) -> bytes:
    result = {"observation": observation, "reward": 0, "terminated": False, "truncated": False, "info": {}}
    return orjson.dumps({"index": index, "status": 200, "result": {**result, "revision": 1}}) + b"\n"


async def test_a_stream_that_breaks_off_is_asked_again_for_what_is_missing():
    transport = scripted(line(1, "second"), line(0, "first"))
    async with EnvClient("http://test", transport=transport) as client:
        sessions = [await client.create("c", "c_1") for _ in range(2)]
        first, second = await asyncio.gather(*(session.step("x") for session in sessions))
        assert (first.observation, second.observation) == ("first", "second")


@pytest.mark.parametrize("reply", [b"", b"nonsense\n", b'{"index":9,"status":200}\n', b"[]\n", httpx.ReadError("x")])
async def test_a_server_that_never_answers_in_full_is_a_transport_error(reply, monkeypatch):
    monkeypatch.setattr("sojourn.client.http.ATTEMPTS", 2)
    async with EnvClient("http://test", transport=scripted(reply)) as client:
        session = await client.create("c", "c_1")
        with pytest.raises(TransportError, match="http://test/v1/steps"):
            await asyncio.wait_for(session.step("x"), 10)


async def test_closing_the_client_ends_waiting_steps(served):
    async with served([CounterService()]) as client:
        session = await client.create("counter", "counter_1")
        step = asyncio.create_task(session.step("sleep 0.3"))
        await asyncio.sleep(0.02)
        await client.aclose()
        with pytest.raises(TransportError, match="closed"):
            await step
