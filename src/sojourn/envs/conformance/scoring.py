"""What is asked of rewards: who solves the task is paid, who does nothing is not, and nothing comes after the end."""

from __future__ import annotations

import math

from sojourn.envs.conformance.hostile import NASTY
from sojourn.envs.conformance.subject import Subject, play, require, same, solution
from sojourn.protocol.errors import NotSupported


async def oracle_succeeds(subject: Subject) -> None:
    """The scripted solution, where there is one, reaches success with score 1 at the very last action."""
    if not subject.service.spec.solvable:
        return
    solved = 0
    for task in subject.tasks:
        env = await subject.start(task)
        try:
            solution = await env.solve()
        except NotSupported:
            continue
        if solution.thoughts is not None:
            same(len(solution.thoughts), len(solution.actions), f"counts of thoughts and actions for {task}")
        moments = await play(env, solution.actions)
        require(bool(moments) and moments[-1].success, f"the solution of {task} does not lead to success")
        require(not any(m.success or m.terminated for m in moments[:-1]), f"{task} ends before its solution does")
        solved += 1
        await env.close()
    require(solved > 0, "none of the sampled tasks has a scripted solution")


async def null_agent_fails(subject: Subject) -> None:
    """Whoever does nothing does not succeed."""
    for task in subject.tasks:
        env = await subject.start(task)
        moments = await play(env, [""] * subject.service.spec.default_horizon)
        require(not any(m.success for m in moments), f"{task} is won by doing nothing")
        await env.close()


async def rewards_sum_to_score(subject: Subject) -> None:
    """At every step the score is the sum of the rewards, in [0, 1]; success ends the episode."""
    for task in subject.tasks:
        env = await subject.start(task)
        total = 0.0
        for moment in await play(env, await subject.script(task)):
            total += moment.reward
            require(math.isclose(total, moment.score, abs_tol=1e-9), f"{task}: rewards {total}, score {moment.score}")
            require(-1e-9 <= moment.score <= 1 + 1e-9, f"{task}: score {moment.score} is outside [0, 1]")
            require(moment.terminated or not moment.success, f"{task}: success does not end the episode")
        await env.close()


async def nothing_follows_the_end(subject: Subject) -> None:
    """After the end nothing is paid, nothing is won and nothing is undone."""
    for task in subject.tasks:
        env = await subject.start(task)
        played = await play(env, [*await subject.script(task), *await solution(env)])
        ended = next((m for m in played if m.terminated or m.truncated), None)
        if ended is None:
            continue
        for moment in await play(env, [*await subject.script(task), *NASTY]):
            same(moment.reward, 0.0, f"the reward after the end of {task} and nothing")
            same(moment.score, ended.score, f"the score after the end of {task} and at the end")
            same(moment.success, ended.success, f"success after the end of {task} and at the end")
            require(moment.terminated or moment.truncated, f"{task} goes on after its end")
        await env.close()


CHECKS = (oracle_succeeds, null_agent_fails, rewards_sum_to_score, nothing_follows_the_end)
