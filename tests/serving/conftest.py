"""The service under test: in process, and on a real port where a stream or a socket is the point."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from sojourn.envs.base import EnvService
from sojourn.serving.app import create_app
from sojourn.serving.config import ServingConfig
from sojourn.serving.worker import bind, run_app, url_of
from tests.serving.worlds import CounterConfig, CounterService


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Api(httpx.AsyncClient):
    """Plain HTTP to an app, for what a well-behaved client never sends."""

    app: Starlette

    async def opened(self, task: str = "counter_1", **more: Any) -> dict[str, Any]:
        reply = await self.post("/v1/sessions", json={"env": "counter", "task": task, **more})
        assert reply.status_code == 201, reply.text
        return reply.json()

    async def act(self, session: str, revision: int, action: str = "add") -> httpx.Response:
        return await self.post(f"/v1/sessions/{session}/step", json={"revision": revision, "action": action})


@asynccontextmanager
async def plain_api(
    services: Sequence[EnvService] | None = None,
    config: ServingConfig | None = None,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[Api]:
    options = {} if clock is None else {"clock": clock}
    app = create_app(services or [CounterService()], config, **options)
    async with (
        app.router.lifespan_context(app),
        Api(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        client.app = app
        yield client


class _Stop:
    """Stands in for the lifeline: keeps what ends the server."""

    def __init__(self) -> None:
        self.stop: Callable[[], None] = lambda: None

    def on_end(self, stop: Callable[[], None], grace_s: float) -> None:
        self.stop = stop


@asynccontextmanager
async def listen(services: Sequence[EnvService], config: ServingConfig | None = None) -> AsyncIterator[str]:
    """The same app under uvicorn on a loopback port."""
    app = create_app(services, config)
    handle, up = _Stop(), asyncio.Event()
    with bind("127.0.0.1", 0) as sock:
        url = url_of(sock)
        server = asyncio.create_task(run_app(app, sock, up.set, 1.0, handle))
        await asyncio.wait({server, asyncio.create_task(up.wait())}, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield url
        finally:
            handle.stop()
            await server


@pytest.fixture
def api() -> Callable[..., Any]:
    """`async with api(services, config, clock) as http:`"""
    return plain_api


@pytest.fixture
def listening() -> Callable[..., Any]:
    """`async with listening([service]) as url:`"""
    return listen


@pytest.fixture
def counter() -> CounterService:
    return CounterService()


def threaded() -> CounterService:
    return CounterService(CounterConfig(execution="thread"))
