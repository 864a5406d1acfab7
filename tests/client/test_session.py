"""One server as a trainer uses it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from sojourn.client import http
from sojourn.client.session import EnvClient
from sojourn.protocol.env import Snapshot
from sojourn.protocol.errors import (
    Conflict,
    EnvironmentFailed,
    Gone,
    InvalidInit,
    NotFound,
    NotSupported,
    ServiceError,
    SnapshotInvalid,
    TooMany,
    TransportError,
    Unauthorized,
    UnknownTask,
    UsageError,
)
from sojourn.serving.config import ServingConfig
from tests.client.conftest import losing
from tests.serving.worlds import CounterConfig, CounterService, CounterWorld


@pytest.fixture
def counter() -> CounterService:
    return CounterService()


async def test_an_episode(served, counter):
    async with served([counter]) as client:
        async with await client.create("counter", "counter_3", view="compact") as session:
            assert (session.env, session.task, session.family, session.revision) == ("counter", "counter_3", "odd", 0)
            assert session.observation.text == "0"
            assert await session.actions() == ["add"]
            assert (await session.solution()).actions == ["add"] * 5
            for turn in range(5):
                result = await session.step("add")
                assert result.terminated is (turn == 4)
            assert (result.reward, result.info["success"], session.revision) == (1.0, True, 5)
            with pytest.raises(Conflict):
                await session.step("add")
            assert (await session.reset("counter_4", init={"count": 2})).text == "2"
            assert (session.task, session.family, session.revision) == ("counter_4", "even", 6)
            assert (await session.inject({"count": 1})).text == "1"
            await session.renew()
            assert client.open_sessions == 1
        assert client.open_sessions == 0
        await session.close()
        await counter.world_closed.wait()
        assert counter.open_worlds == 0
        with pytest.raises(Gone):
            await session.step("add")


async def test_branching(served, counter):
    async with served([counter]) as client:
        session = await client.create("counter", "counter_1")
        await session.step("add")
        digest = await session.snapshot()
        await session.step("add")
        children = await session.fork(3)
        assert {child.observation.text for child in children} == {"The counter shows 2."}
        assert client.open_sessions == 4
        assert (await session.restore(digest)).text == "The counter shows 1."
        snapshot = await session.fetch_snapshot(digest)
        assert snapshot.digest == digest
        async with served([CounterService()]) as elsewhere:
            moved = await elsewhere.restore("counter", snapshot, view="compact")
            assert (moved.observation.text, moved.task) == ("1", "counter_1")
            assert (await (await elsewhere.create("counter", "counter_2")).restore(snapshot)).info["score"] == 0.0


async def test_discovery(served):
    async with served([CounterService(), CounterService(CounterConfig(name="other"))]) as client:
        assert set(await client.specs()) == {"counter", "other"}
        assert (await client.spec("other")).default_horizon == 10
        with pytest.raises(NotFound, match="counter, other"):
            await client.spec("none")
        page = await client.tasks("counter", "train", families=["odd"], offset=1, limit=2)
        assert (page.total, [task.task for task in page.tasks]) == (4, ["counter_3", "counter_5"])
        assert len((await client.tasks("counter", "train")).tasks) == 8
        assert (await client.tasks("counter", "train", offset=6)).tasks[0].family == "even"
        assert (await client.tasks("counter", "train", limit=0)).tasks == []
        assert await client.capacity() == 1024
        assert await client.is_ready()


async def test_all_of_a_long_split_is_fetched_page_by_page(served, counter, monkeypatch):
    monkeypatch.setattr("sojourn.client.session._PAGE", 3)
    async with served([counter]) as client:
        assert [t.task for t in (await client.tasks("counter", "train")).tasks] == [f"counter_{i}" for i in range(8)]
        assert len((await client.tasks("counter", "train", limit=7)).tasks) == 7
        monkeypatch.setattr("sojourn.client.session._MAX_UNLIMITED", 5)
        with pytest.raises(ValueError, match="give a limit"):
            await client.tasks("counter", "train")


async def test_errors_are_raised_again_as_they_were(served, counter):
    async with served([counter], config=ServingConfig(max_sessions=3)) as client:
        session = await client.create("counter", "counter_9")
        for error, call in [
            (UnknownTask, client.create("counter", "counter_77")),
            (NotFound, client.create("none", "none_1")),
            (InvalidInit, client.create("counter", "counter_1", init={"x": 1})),
            (InvalidInit, session.inject({"x": 1})),
            (NotSupported, session.solution()),
            (NotFound, session.restore("0" * 64)),
            (SnapshotInvalid, client.restore("counter", Snapshot("counter", b"garbage"))),
            (TooMany, session.fork(3)),
        ]:
            with pytest.raises(error) as caught:
                await call
            assert type(caught.value) is error
        assert caught.value.extra["retry_after"] == 1.0
        with pytest.raises(EnvironmentFailed, match="broken world"):
            await session.step("raise")
        with pytest.raises(Gone):
            await session.step("add")
        await session.close()


async def test_a_token_is_needed_where_one_is_set(served, counter):
    config = ServingConfig(token="secret")
    async with served([counter], config=config) as client:
        with pytest.raises(Unauthorized):
            await client.create("counter", "counter_1")
    async with served([counter], config=config, token="secret") as client:
        await client.create("counter", "counter_1")


@pytest.mark.parametrize("losses", [1, 3])
async def test_a_lost_reply_acts_once(served, counter, losses):
    made, wrap = losing(
        POST_sessions=losses, POST_steps=losses, POST_fork=losses, POST_inject=losses, POST_restore=losses,
        POST_reset=losses, POST_snapshot=losses,
    )  # fmt: skip
    async with served([counter], wrap=wrap) as client:
        session = await client.create("counter", "counter_1")
        assert counter.open_worlds == 1
        digest = await session.snapshot()
        await session.step("add")
        assert counter.acted == 1
        await session.inject({"count": 3})
        assert counter.acted == 2
        await session.restore(digest)
        assert counter.acted == 3
        await session.fork(2)
        assert counter.acted == 5
        assert counter.open_worlds == 3
        await session.reset()
        assert session.revision == 4
    assert made[0].requests["POST steps"] == losses + 1
    assert all(left == 0 for left in made[0].lose.values())


async def test_a_server_that_is_away_for_good_is_a_transport_error_with_its_address(served, counter):
    made, wrap = losing(GET_solution=99)
    async with served([counter], wrap=wrap) as client:
        session = await client.create("counter", "counter_1")
        with pytest.raises(TransportError, match=f"http://test/v1/sessions/{session.id}/solution"):
            await session.solution()
        assert made[0].requests["GET solution"] == 5


async def test_nobody_listening_is_a_transport_error_with_the_address():
    async with EnvClient("http://127.0.0.1:9") as client:
        with pytest.raises(TransportError, match=r"cannot connect to http://127\.0\.0\.1:9/v1/sessions"):
            await client.create("counter", "counter_1")
        assert not await client.is_ready()


@pytest.mark.parametrize("address", ["", "localhost:8000", "ftp://x", "http://", "http://[::1"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(UsageError, match="not an address"):
        EnvClient(address)


@pytest.mark.parametrize(
    ("status", "content", "error", "text"),
    [(502, b"<html>", TransportError, "502"), (404, b"<html>", ServiceError, "not a problem document")],
)
async def test_what_is_not_a_sojourn_server_is_told(status, content, error, text):
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=content))
    async with EnvClient("http://test", transport=transport) as client:
        with pytest.raises(error, match=text):
            await client.specs()


async def test_bytes_that_changed_on_the_way_are_not_taken(served, counter):
    class Flip(httpx.AsyncBaseTransport):
        def __init__(self, inner):
            self.inner = inner

        async def handle_async_request(self, request):
            response = await self.inner.handle_async_request(request)
            if request.method == "GET" and "/snapshots/" in request.url.path:
                return httpx.Response(200, headers=response.headers, content=(await response.aread())[:-1] + b" ")
            return response

    async with served([counter], wrap=Flip) as client:
        session = await client.create("counter", "counter_1")
        with pytest.raises(SnapshotInvalid):
            await session.fetch_snapshot(await session.snapshot())


async def test_closing_when_the_server_is_gone_is_no_error(served, counter):
    _, wrap = losing(DELETE_x=1)
    async with served([counter], wrap=wrap) as client:
        session = await client.create("counter", "counter_1")
        other = await client.create("counter", "counter_1")
    await asyncio.gather(session.close(), other.close())
    assert client.open_sessions == 0


async def test_a_solution_is_asked_for_again_while_the_server_has_too_much_to_do(served, counter, monkeypatch):
    solve, calls = CounterWorld.solve, iter(range(10))

    async def busy(world):
        if next(calls) < 2:
            raise TooMany("two before you", retry_after=0.01)
        return await solve(world)

    monkeypatch.setattr(CounterWorld, "solve", busy)
    async with served([counter]) as client, await client.create("counter", "counter_1") as session:
        assert (await session.solution()).actions == ["add"] * 5
        assert next(calls) == 3


async def test_a_server_that_never_has_time_is_told(served, counter, monkeypatch):
    async def busy(world):
        raise TooMany("others before you", retry_after=0.01)

    monkeypatch.setattr(CounterWorld, "solve", busy)
    monkeypatch.setattr(http, "_IN_LINE_S", 0.05)
    async with served([counter]) as client, await client.create("counter", "counter_1") as session:
        with pytest.raises(TooMany, match="others before you"):
            await session.solution()
