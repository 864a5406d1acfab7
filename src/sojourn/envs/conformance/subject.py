"""An environment under examination: how the conformance checks play it and compare what they see."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from sojourn.envs.base import Env, EnvService
from sojourn.envs.conformance.hostile import NASTY
from sojourn.protocol.env import Observation, StepResult, TaskRef
from sojourn.protocol.errors import NotSupported, ServiceError

NOISE = 0.3
"""Share of actions of a scripted episode that are not the solution's."""


class Nonconformity(AssertionError):
    """An environment does not do what every environment owes; says what it did instead."""


class Moment(NamedTuple):
    """What an agent and a trainer see of one step."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    state_key: str
    score: float
    success: bool


@dataclass(slots=True)
class Subject:
    """An environment under examination."""

    service: EnvService
    other: EnvService
    """A second instance: another server, as far as a snapshot can tell."""
    tasks: list[TaskRef]
    """A sample, spread over families and splits."""
    hostile: int
    """How many nonsensical actions to try."""
    memory_episodes: int
    name: str | None = None
    """What it is registered as."""
    scripts: dict[TaskRef, list[str]] = field(default_factory=dict)

    async def start(self, task: TaskRef, view: str | None = None) -> Env:
        """A fresh episode, reset."""
        env = self.service.create(view)
        await env.reset(task, seed=0)
        return env

    async def script(self, task: TaskRef) -> list[str]:
        """Actions for a task, worked out once: its solution with detours, or random ones; at most a horizon long."""
        if task not in self.scripts:
            rng = random.Random(str(task))
            env = await self.start(task)
            actions: list[str] = []
            ahead: list[str] | None = None
            while len(actions) < self.service.spec.default_horizon:
                detour = rng.random() < NOISE
                if not detour and ahead is None:
                    # Only now: it can be dear, and a second detour in a row would have it worked out for nothing.
                    ahead = await solution(env)
                if detour or not ahead:
                    action, ahead = rng.choice(await options(env)), None
                else:
                    action = ahead.pop(0)
                actions.append(action)
                result = await env.step(action)
                if result.done:
                    break
            await env.close()
            self.scripts[task] = actions
        return self.scripts[task]


def sample(service: EnvService, count: int) -> list[TaskRef]:
    """Tasks in turn from each family, then from each split, evenly spread; the same ones every time."""
    index, spec = service.tasks(), service.spec
    groups = [index.select(split, [family]) for family in spec.families for split in spec.splits]
    groups = [group for group in groups if len(group)] or [index.select(split) for split in spec.splits]
    rounds = -(-count // max(len(groups), 1))
    chosen = [group[i * len(group) // rounds] for i in range(rounds) for group in groups]
    stride = max(len(chosen) // count, 1)
    return list(dict.fromkeys(chosen[::stride]))[:count]


async def play(env: Env, actions: Sequence[str]) -> list[Moment]:
    """Act, whatever comes of it; also past the end."""
    return [seen_after(await env.step(action)) for action in actions]


def seen_after(result: StepResult) -> Moment:
    """What a step showed."""
    info = result.info
    flags = (result.terminated, result.truncated)
    return Moment(result.observation, result.reward, *flags, info["state_key"], info["score"], info["success"])


def seen_at_reset(observation: Observation) -> Moment:
    """What a reset showed."""
    info = observation.info
    return Moment(observation.text, 0.0, False, False, info["state_key"], info["score"], info["success"])


async def state_key(env: Env) -> str:
    """The state's key, which a restore of one's own snapshot tells without changing anything."""
    return (await env.restore(await env.snapshot())).info["state_key"]


async def solution(env: Env) -> list[str]:
    """The scripted solution from here; empty where there is none."""
    try:
        return (await env.solve()).actions
    except NotSupported:
        return []


async def options(env: Env) -> list[str]:
    """Actions to choose from; nonsense where the environment lists none."""
    return await env.available_actions() or list(NASTY)


async def usable(env: Env, actions: Sequence[str], snapshot: bytes) -> None:
    """Raises `Nonconformity` unless a world that took a doubtful snapshot can be played, asked and frozen."""
    try:
        await play(env, actions)
        await solution(env)
        await env.snapshot()
    except ServiceError:
        return
    except Exception as error:
        raise Nonconformity(f"a world that took a damaged snapshot raises {error!r}: {snapshot[:300]!r}") from error


def as_document(data: bytes) -> Any:
    """The JSON of a snapshot; None for one in another format."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


async def refused(call: Awaitable[Observation], what: str) -> None:
    """Raises `Nonconformity` unless the call raises what blames the caller (4xx) or says "not supported"."""
    try:
        await call
    except ServiceError as error:
        require(400 <= error.status < 500 or error.status == 501, f"{what} gives status {error.status}")
        return
    raise Nonconformity(f"{what} is taken")


def require(condition: bool, otherwise: str) -> None:
    """Raises `Nonconformity` when the condition does not hold."""
    if not condition:
        raise Nonconformity(otherwise)


def same(found: object, expected: object, what: str) -> None:
    """Raises `Nonconformity` with the first difference."""
    if found == expected:
        return
    if isinstance(found, list) and isinstance(expected, list):
        pairs = zip(found, expected, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(found), len(expected)))
        found, expected = found[at : at + 1], expected[at : at + 1]
        what += f" at {at}"
    raise Nonconformity(f"{what} differ: {str(found)[:300]} / {str(expected)[:300]}")
