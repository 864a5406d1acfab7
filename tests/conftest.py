"""Fixtures that every part's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest

from sojourn.client.session import EnvClient
from sojourn.envs.base import EnvService
from sojourn.serving.app import create_app
from sojourn.serving.config import ServingConfig

Served = Callable[..., AbstractAsyncContextManager[EnvClient]]


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


@pytest.fixture
def served() -> Served:
    """`async with served([service], config=...) as client:`"""
    return serve_in_process
