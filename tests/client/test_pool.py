"""Several servers as one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import httpx
import pytest

from sojourn.client.pool import EnvPool
from sojourn.client.session import EnvClient
from sojourn.protocol.errors import NotFound, TooMany, TransportError, UsageError
from sojourn.serving.app import create_app
from sojourn.serving.config import ServingConfig
from tests.serving.worlds import CounterConfig, CounterService


class Switch(httpx.AsyncBaseTransport):
    """A server that can be unplugged."""

    def __init__(self, app) -> None:
        self.inner = httpx.ASGITransport(app)
        self.on = True

    async def handle_async_request(self, request):
        if not self.on:
            raise httpx.ConnectError("refused", request=request)
        return await self.inner.handle_async_request(request)


@contextlib.asynccontextmanager
async def pool_of(*servers, **options):
    """A pool over apps, each from `(services, config)`, with the switch of each."""
    async with contextlib.AsyncExitStack() as stack:
        switches, clients = [], []
        for number, (services, config) in enumerate(servers):
            app = create_app(services, config)
            await stack.enter_async_context(app.router.lifespan_context(app))
            switches.append(Switch(app))
            clients.append(EnvClient(f"http://server{number}", transport=switches[-1]))
        yield await stack.enter_async_context(EnvPool(clients, **options)), switches


def where(sessions) -> Counter:
    return Counter(session._client.base_url for session in sessions)


def server(max_sessions: int = 1024, name: str = "counter", **config):
    return [CounterService(CounterConfig(name=name))], ServingConfig(max_sessions=max_sessions, **config)


async def test_load_follows_capacity_even_when_sessions_are_opened_at_once():
    async with pool_of(server(40), server(10)) as (pool, _):
        sessions = await asyncio.gather(*(pool.create("counter", "counter_1") for _ in range(30)))
        counts = where(sessions)
        assert counts == {"http://server0": 24, "http://server1": 6}
        assert {s.observation.text for s in sessions} == {"The counter shows 0."}


async def test_a_dead_server_is_left_out_and_comes_back(monkeypatch):
    monkeypatch.setattr("sojourn.client.pool._PROBE_FIRST_S", 0.01)
    async with pool_of(server(), server()) as (pool, switches):
        await pool.create("counter", "counter_1")
        switches[0].on = False
        sessions = await asyncio.gather(*(pool.create("counter", "counter_1") for _ in range(6)))
        assert set(where(sessions)) == {"http://server1"}
        switches[0].on = True
        for _ in range(500):
            session = await pool.create("counter", "counter_1")
            if session._client.base_url == "http://server0":
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("the server that answers again was not taken back")


async def test_no_server_left_is_one_clear_error():
    async with pool_of(server(), server()) as (pool, switches):
        for switch in switches:
            switch.on = False
        with pytest.raises(TransportError, match="no environment server is left") as caught:
            await pool.create("counter", "counter_1")
        assert "http://server0" in str(caught.value)
        assert "http://server1" in str(caught.value)


async def test_a_full_server_is_passed_over():
    async with pool_of(server(4), server(4)) as (pool, switches):
        outsider = EnvClient("http://server0", transport=switches[0].inner)
        for _ in range(4):
            await outsider.create("counter", "counter_1")
        sessions = [await pool.create("counter", "counter_1") for _ in range(4)]
        assert where(sessions) == {"http://server1": 4}


async def test_when_all_are_full_it_waits_as_long_as_it_is_told():
    async with pool_of(server(1, retry_after_s=0.05), patience_s=10) as (pool, _):
        held = await pool.create("counter", "counter_1")
        waiting = asyncio.create_task(pool.create("counter", "counter_2"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await held.close()
        assert (await waiting).task == "counter_2"


async def test_patience_ends():
    async with pool_of(server(1, retry_after_s=0.05), patience_s=0.2) as (pool, _):
        await pool.create("counter", "counter_1")
        with pytest.raises(TooMany):
            await pool.create("counter", "counter_2")


async def test_environments_may_live_on_different_servers():
    async with pool_of(server(name="counter"), server(name="other")) as (pool, _):
        assert set(await pool.specs()) == {"counter", "other"}
        sessions = [await pool.create("other", "other_1") for _ in range(3)]
        assert where(sessions) == {"http://server1": 3}
        assert (await pool.tasks("other", "test")).total == 2
        assert (await pool.spec("counter")).name == "counter"
        with pytest.raises(NotFound, match="counter, other"):
            await pool.spec("third")
        with pytest.raises(NotFound, match="third"):
            await pool.create("third", "third_1")


async def test_two_versions_of_one_environment_do_not_mix():
    newer = CounterService()
    newer.spec = newer.spec.model_copy(update={"version": "2"})
    async with pool_of(server(), ([newer], None)) as (pool, _):
        with pytest.raises(UsageError, match="version 2"):
            await pool.specs()


async def test_a_snapshot_is_found_wherever_it_is():
    async with pool_of(server(), server()) as (pool, _):
        sessions = [await pool.create("counter", "counter_1") for _ in range(2)]
        assert len(where(sessions)) == 2
        for session in sessions:
            await session.step("add")
            digest = await session.snapshot()
            again = await pool.restore("counter", digest)
            assert again.observation.text == "The counter shows 1."
            await session.step("add")
        with pytest.raises(NotFound):
            await pool.restore("counter", "0" * 64)


def test_a_pool_of_nothing_is_refused():
    with pytest.raises(UsageError):
        EnvPool([])
