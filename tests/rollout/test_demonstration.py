"""Demonstrations over a service that fails: played anew, with the same draws, or told."""

from __future__ import annotations

import random
from dataclasses import asdict

import pytest

from sojourn.envs.textcraft import TextCraftService
from sojourn.protocol.errors import TransportError, UnknownTask
from sojourn.rollout.agent import ReAct
from sojourn.rollout.demonstration import demonstrate
from sojourn.rollout.player import Limits
from sojourn.rollout.renderer import Renderer
from tests.conftest import serve_in_process
from tests.models import byte_tokenizer

LIMITS = Limits(attempts=3, retry_base_s=0.0)


class Unsteady:
    """A client's worlds, of which the first `failures` break off at their second step."""

    def __init__(self, client, failures):
        self.client, self.failures, self.created = client, failures, 0

    def __getattr__(self, name):
        return getattr(self.client, name)

    async def create(self, *args, **options):
        self.created += 1
        session = await self.client.create(*args, **options)
        if self.created <= self.failures:
            step, calls = session.step, []

            async def break_off(action):
                calls.append(action)
                if len(calls) == 2:
                    raise TransportError("the server went away")
                return await step(action)

            session.step = break_off
        return session


async def play(envs, task, seed=0):
    found = await demonstrate(
        envs,
        Renderer(byte_tokenizer()),
        ReAct(),
        "textcraft",
        task,
        view="compact",
        horizon=30,
        rng=random.Random(seed),
        noise=0.3,
        limits=LIMITS,
    )
    assert found is not None
    return {name: value for name, value in asdict(found).items() if name != "started"}


async def test_a_demonstration_that_breaks_off_is_played_anew_with_the_same_draws():
    async with serve_in_process([TextCraftService()]) as client:
        task = (await client.tasks("textcraft", "train", families=["depth2"], limit=1)).tasks[0].task
        unsteady = Unsteady(client, failures=2)
        assert await play(unsteady, task) == await play(client, task)
        assert unsteady.created == 3


async def test_the_last_failure_is_told():
    async with serve_in_process([TextCraftService()]) as client:
        task = (await client.tasks("textcraft", "train", families=["depth2"], limit=1)).tasks[0].task
        unsteady = Unsteady(client, failures=3)
        with pytest.raises(TransportError, match="went away"):
            await play(unsteady, task)
        assert unsteady.created == 3


async def test_what_the_user_must_mend_is_told_at_once():
    async with serve_in_process([TextCraftService()]) as client:
        unsteady = Unsteady(client, failures=0)
        with pytest.raises(UnknownTask):
            await play(unsteady, "textcraft:no_such_goal")
        assert unsteady.created == 1
