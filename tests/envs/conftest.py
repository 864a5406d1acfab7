"""What the tests of environments share."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sojourn.envs.textcraft import TextCraftEnv, TextCraftService
from sojourn.protocol.env import TaskRef

Start = Callable[..., Awaitable[TextCraftEnv]]


@pytest.fixture(scope="session")
def textcraft() -> TextCraftService:
    return TextCraftService()


@pytest.fixture
def start(textcraft: TextCraftService) -> Start:
    """An episode of TextCraft, reset: `await start("chest", view="compact", init=...)`."""

    async def begin(
        item: str, *, view: str = "full", seed: int | None = None, init: dict[str, Any] | None = None
    ) -> TextCraftEnv:
        env = textcraft.create(view)
        await env.reset(TaskRef("textcraft", item), seed=seed, init=init)
        return env

    return begin
