"""A player on the staircase, over the real service and client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sojourn.client.session import EnvClient
from sojourn.protocol.messages import SamplingParams
from sojourn.rollout.agent import ReAct
from sojourn.rollout.player import Limits, Player
from sojourn.rollout.renderer import Renderer
from tests.conftest import serve_in_process
from tests.models import byte_tokenizer
from tests.rollout.engine import Script, ScriptedEngine
from tests.rollout.world import StairsService


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    return Renderer(byte_tokenizer())


@pytest.fixture
def stairs() -> StairsService:
    return StairsService()


@pytest.fixture
async def client(stairs: StairsService) -> AsyncIterator[EnvClient]:
    async with serve_in_process([stairs]) as client:
        yield client


class Make:
    """`make(script, **player options)` gives a player; `make.engine` is its engine."""

    def __init__(self, client: EnvClient, renderer: Renderer) -> None:
        self.client, self.renderer = client, renderer

    def __call__(self, script: Script, *, max_tokens: int = 64, limits: dict | None = None, **options) -> Player:
        engine = {k: options.pop(k) for k in ("max_context", "latency_s") if k in options}
        renderer = options.pop("renderer", self.renderer)
        self.engine = ScriptedEngine(renderer, script, **engine)
        return Player(
            options.pop("envs", self.client),
            self.engine,
            renderer,
            ReAct(),
            SamplingParams(max_tokens=max_tokens),
            Limits(**{"retry_base_s": 0.0, **(limits or {})}),
            **options,
        )


@pytest.fixture
def make(client: EnvClient, renderer: Renderer) -> Make:
    return Make(client, renderer)
