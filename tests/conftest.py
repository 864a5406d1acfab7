"""Fixtures that every part's tests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings

from sojourn.client.session import EnvClient
from sojourn.envs.base import EnvService
from sojourn.serving.app import create_app
from sojourn.serving.config import ServingConfig
from sojourn.serving.worker import bind, run_app, url_of

Served = Callable[..., AbstractAsyncContextManager[EnvClient]]

# How long an example takes says something of the machine, not of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@asynccontextmanager
async def serve_in_process(
    services: Sequence[EnvService],
    *,
    config: ServingConfig | None = None,
    token: str | None = None,
    wrap: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] = lambda transport: transport,
    **options: Any,
) -> AsyncIterator[EnvClient]:
    """A client of an app that runs in this very process: client and server as in production, without a socket.

    `wrap` may put another transport around the one that leads to the app (to lose replies, for one).
    """
    app = create_app(services, config, **options)
    async with (
        app.router.lifespan_context(app),
        EnvClient("http://test", token=token, transport=wrap(httpx.ASGITransport(app))) as client,
    ):
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
def served() -> Served:
    """`async with served([service], config=...) as client:`"""
    return serve_in_process


@pytest.fixture
def listening() -> Callable[..., AbstractAsyncContextManager[str]]:
    """`async with listening([service]) as url:`"""
    return listen
