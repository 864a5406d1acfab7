"""What is asked of an episode that is carried on elsewhere: from a snapshot, on another server, in a fork."""

from __future__ import annotations

from sojourn.envs.conformance.hostile import NASTY
from sojourn.envs.conformance.subject import Moment, Subject, play, same, seen_at_reset
from sojourn.protocol.env import Snapshot


async def snapshot_continues(subject: Subject) -> None:
    """To snapshot and restore is to go on: at any step, in every view."""
    for task in subject.tasks:
        actions = await subject.script(task)
        for view in subject.service.spec.views:
            for at in {0, len(actions) // 2, len(actions)}:
                where = f"{task} ({view}, step {at})"
                env = subject.service.create(view)
                seen = [seen_at_reset(await env.reset(task, seed=0)), *await play(env, actions[:at])][-1]
                frozen = await env.snapshot()
                rest = await play(env, actions[at:])
                again = subject.service.create(view)
                restored = seen_at_reset(await again.restore(frozen))
                same(restored.state_key, seen.state_key, f"states of {where} restored and before")
                same(restored.observation, seen.observation, f"observations of {where} restored and before")
                same(await play(again, actions[at:]), rest, f"what follows {where} restored and not")
                await env.close()
                await again.close()


async def views_share_snapshots(subject: Subject) -> None:
    """A snapshot taken in one view is restored in the next, and back: how a world is worded is no part of its state."""
    views = subject.service.spec.views
    for view, other in zip(views, (*views[1:], views[0]), strict=True):
        if view == other:
            return
        for task in subject.tasks:
            actions = await subject.script(task)
            half = len(actions) // 2
            env = subject.service.create(view)
            seen = [seen_at_reset(await env.reset(task, seed=0)), *await play(env, actions[:half])][-1]
            there, back = subject.service.create(other), subject.service.create(view)
            met = seen_at_reset(await there.restore(await env.snapshot()))
            same(met.state_key, seen.state_key, f"states of {task} in {other} and in {view}")
            returned = seen_at_reset(await back.restore(await there.snapshot()))
            same(returned.observation, seen.observation, f"observations of {task} in {view}, by way of {other} and not")
            rest = await play(back, actions[half:])
            same(rest, await play(env, actions[half:]), f"what follows {task} in {view}, by way of {other} and not")
            for one in (env, there, back):
                await one.close()


async def snapshot_is_portable(subject: Subject) -> None:
    """Another server goes on from a snapshot's bytes, and its own snapshot of the same state is the same."""
    for task in subject.tasks:
        actions = await subject.script(task)
        half = len(actions) // 2
        env = await subject.start(task)
        await play(env, actions[:half])
        frozen = await env.snapshot()
        elsewhere = subject.other.create()
        await elsewhere.restore(Snapshot(frozen.env, bytes(frozen.data)))
        same((await elsewhere.snapshot()).digest, frozen.digest, f"digests of {task} here and on another server")
        same(await play(elsewhere, actions[half:]), await play(env, actions[half:]), f"{task} on another server")
        await env.close()
        await elsewhere.close()


async def forks_are_apart(subject: Subject) -> None:
    """What happens in a fork is not seen by its siblings nor by the episode it left."""
    for task in subject.tasks:
        actions = await subject.script(task)
        half = len(actions) // 2
        env = await subject.start(task)
        alone = (await play(env, actions))[half:]
        await env.reset(task, seed=0)
        await play(env, actions[:half])
        frozen = await env.snapshot()
        forks = [subject.service.create() for _ in range(3)]
        for fork in forks:
            await fork.restore(frozen)
        await play(forks[0], [*NASTY, *actions])
        same(await play(env, actions[half:]), alone, f"{task} after its fork went on and alone")
        same(
            await play(forks[1], actions[half:]), alone, f"a fork of {task} after its sibling went on and {task} alone"
        )
        interleaved: list[Moment] = []
        for action in actions[half:]:
            await forks[0].step(action)
            interleaved += await play(forks[2], [action])
        same(interleaved, alone, f"a fork of {task} interleaved with its sibling and {task} alone")
        for one in (env, *forks):
            await one.close()


CHECKS = (snapshot_continues, views_share_snapshots, snapshot_is_portable, forks_are_apart)
