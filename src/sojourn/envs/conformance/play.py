"""What is asked of a world that is only played: a complete specification, the same again each time, a full reset."""

from __future__ import annotations

import random

import orjson

from sojourn.envs.conformance.elsewhere import importable, transcripts, transcripts_elsewhere
from sojourn.envs.conformance.subject import Subject, play, require, same, seen_at_reset, solution


async def spec_is_complete(subject: Subject) -> None:
    """Every view has its action help; splits hold what they say; families are those of the tasks; all of it is JSON."""
    spec, index = subject.service.spec, subject.service.tasks()
    if subject.name is not None:
        same(spec.name, subject.name, "the name in the specification and the one it is registered under")
    orjson.dumps(spec.model_dump(mode="json"))
    same(sorted(spec.views), sorted(spec.action_help), "views and the views that have action help")
    for split, size in spec.splits.items():
        same(len(index.select(split)), size, f"the size of split {split!r} and what the spec says")
    for task in subject.tasks:
        require(index.family(task) in spec.families, f"{task} is of family {index.family(task)!r}, not in the spec")
        same(index.resolve(index.resolve(task)), index.resolve(task), f"the canonical name of {task} and its own")


async def seeds_reproduce(subject: Subject) -> None:
    """The same task, seed and actions give the same transcript, whatever the global random state."""
    state = random.getstate()
    try:
        for task in subject.tasks:
            actions = await subject.script(task)
            for view in subject.service.spec.views:
                transcripts = []
                for seed in (1, 2):
                    random.seed(seed)
                    env = subject.service.create(view)
                    opening = await env.reset(task, seed=0)
                    transcripts.append([seen_at_reset(opening), *await play(env, actions)])
                    await env.close()
                same(transcripts[1], transcripts[0], f"two transcripts of {task} ({view})")
    finally:
        random.setstate(state)


async def processes_agree(subject: Subject) -> None:
    """Another process, in which sets and hashes have another order, gives the same transcripts."""
    if importable(subject.service) is None:
        return
    scripts = {task: await subject.script(task) for task in subject.tasks}
    here = await transcripts(subject.service, scripts, seed=0)
    there = await transcripts_elsewhere(subject.service, scripts, seed=0)
    for task, one, other in zip(scripts, here, there, strict=True):
        same(other, one, f"transcripts of {task} in another process and here")


async def reset_is_full(subject: Subject) -> None:
    """A reset after anything equals a fresh episode, and goes on like one."""
    used = subject.service.create()
    for task in subject.tasks:
        actions = await subject.script(task)
        fresh = subject.service.create()
        expected = [seen_at_reset(await fresh.reset(task, seed=0)), *await play(fresh, actions)]
        for _ in range(2):
            found = [seen_at_reset(await used.reset(task, seed=0)), *await play(used, actions)]
            same(found, expected, f"a used session's {task} and a fresh one's")
        await used.reset(task, seed=1)
        await play(used, actions[: len(actions) // 2])
        await fresh.close()
    await used.close()


async def looking_changes_nothing(subject: Subject) -> None:
    """To ask for actions, for the solution or for a snapshot leaves the state, and what comes of it, as they were."""
    for task in subject.tasks:
        actions = await subject.script(task)
        half = len(actions) // 2
        env = await subject.start(task)
        undisturbed = await play(env, actions)
        await env.reset(task, seed=0)
        await play(env, actions[:half])
        before = (await env.snapshot()).digest
        await solution(env)
        same((await env.snapshot()).digest, before, f"the state of {task} after its solution was asked for and before")
        await env.available_actions()
        same((await env.snapshot()).digest, before, f"the state of {task} after its actions were asked for and before")
        same(await play(env, actions[half:]), undisturbed[half:], f"{task} looked at in the middle and not")
        await env.close()


CHECKS = (spec_is_complete, seeds_reproduce, processes_agree, reset_is_full, looking_changes_nothing)
