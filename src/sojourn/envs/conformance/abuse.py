"""What is asked of a world that is sent nonsense: actions, snapshots, tasks and changes that nobody should send."""

from __future__ import annotations

import random

import orjson

from sojourn.envs.conformance.hostile import NASTY, meddled, nonsense
from sojourn.envs.conformance.subject import (
    Nonconformity,
    Subject,
    as_document,
    options,
    play,
    refused,
    require,
    same,
    state_key,
    usable,
)
from sojourn.protocol.env import Snapshot, TaskRef
from sojourn.protocol.errors import ServiceError, UnknownTask


async def damaged_snapshots_are_refused(subject: Subject) -> None:
    """Bytes that no environment wrote raise a `ServiceError`; what is taken all the same can be played."""
    task = subject.tasks[0]
    env = await subject.start(task)
    actions = await subject.script(task)
    await play(env, actions[: len(actions) // 2])
    data = (await env.snapshot()).data
    rng = random.Random(0)
    damaged = [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"[" * 5_000,
        data[:-1],
        data[: len(data) // 2],
        data + b"x",
        rng.randbytes(200),
    ]
    for _ in range(100):
        at = rng.randrange(len(data))
        damaged.append(data[:at] + rng.randbytes(1) + data[at + 1 :])
    damaged += [data.replace(old, new) for old, new in ((b'"', b""), (b"0", b"-1"), (b"null", b"{}"), (b":", b":["))]
    if (document := as_document(data)) is not None:
        damaged += [orjson.dumps(meddled(rng, document)) for _ in range(subject.hostile // 4)]
    for bad in damaged:
        taken = subject.service.create()
        try:
            await taken.restore(Snapshot(subject.service.spec.name, bad))
        except ServiceError as error:
            require(error.status in {422, 500}, f"{bad[:80]!r} is refused with status {error.status}")
        except Exception as error:
            raise Nonconformity(f"a damaged snapshot raises {error!r}: {bad[:300]!r}") from error
        else:
            await usable(taken, ["", *actions[len(actions) // 2 :][:2]], bad)
        await taken.close()
    await env.step("")
    await env.close()


async def bad_input_is_refused(subject: Subject) -> None:
    """Unknown tasks, and `init` or `inject` with unknown fields, raise a 4xx (or 501) and change nothing."""
    name = subject.service.spec.name
    env = await subject.start(subject.tasks[0])
    before = await state_key(env)
    await refused(env.inject({"no such field": 1}), "inject of an unknown field")
    same(await state_key(env), before, "the state before and after a refused inject")
    fresh = subject.service.create()
    await refused(fresh.reset(subject.tasks[0], init={"no such field": 1}), "init with an unknown field")
    for key in ("no/such/task", "\u00e9" * 50, "0x1"):
        try:
            await fresh.reset(TaskRef(name, key))
        except UnknownTask:
            continue
        raise Nonconformity(f"task {key!r} is taken")
    await env.close()
    await fresh.close()


async def hostile_actions_are_answered(subject: Subject) -> None:
    """No text raises; every answer is text that JSON can carry, and a snapshot can still be taken and restored."""
    rng = random.Random(0)
    for view in subject.service.spec.views:
        env = await subject.start(subject.tasks[0], view)
        words = [word for action in await options(env) for word in action.split(" ")]
        for i in range(subject.hostile // len(subject.service.spec.views)):
            action = NASTY[i] if i < len(NASTY) else nonsense(rng, words)
            try:
                result = await env.step(action)
                orjson.dumps([result.observation, result.reward, result.info])
            except Exception as error:
                raise Nonconformity(f"{action[:80]!r} raises {error!r}") from error
            if result.done:
                await env.reset(subject.tasks[i % len(subject.tasks)], seed=i)
        await subject.service.create(view).restore(await env.snapshot())
        await env.close()


CHECKS = (damaged_snapshots_are_refused, bad_input_is_refused, hostile_actions_are_answered)
