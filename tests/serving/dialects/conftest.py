"""The dialects under test: our environments in process, and on a port where a socket is the point."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from sojourn.envs.babyai import BabyAIService
from sojourn.envs.base import EnvService
from sojourn.envs.textcraft import TextCraftService
from sojourn.serving.app import create_app
from sojourn.serving.config import DialectsConfig, ServingConfig
from sojourn.serving.worker import bind, run_app, url_of
from tests.serving.conftest import plain_api


@pytest.fixture(scope="session")
def services():
    """Both, as they generate their levels and recipes once for all tests."""
    return [TextCraftService(), BabyAIService()]


@pytest.fixture
def dialects(services):
    """`async with dialects(legacy_scoring=True) as http:`"""

    def start(config=None, clock=None, **options):
        config = config or ServingConfig()
        return plain_api(services, config.model_copy(update={"dialects": DialectsConfig(**options)}), clock)

    return start


class _Stop:
    """Stands in for the lifeline: keeps what ends the server."""

    def on_end(self, stop: Callable[[], None], grace_s: float) -> None:
        self.stop = stop


@asynccontextmanager
async def listen(services: Sequence[EnvService], config: ServingConfig | None = None) -> AsyncIterator[str]:
    """An app under uvicorn on a loopback port."""
    handle, up = _Stop(), asyncio.Event()
    with bind("127.0.0.1", 0) as sock:
        server = asyncio.create_task(run_app(create_app(services, config), sock, up.set, 1.0, handle))
        await up.wait()
        try:
            yield url_of(sock)
        finally:
            handle.stop()
            await server
