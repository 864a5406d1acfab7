"""Where environments run: deadlines, threads, and failures that stay theirs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sojourn.protocol.env import EnvSpec
from sojourn.protocol.errors import DeadlineExceeded, EnvironmentFailed, TooMany
from sojourn.serving.config import ServingConfig
from sojourn.serving.execution import Executor
from tests.serving.conftest import threaded, until


async def test_a_missed_deadline_is_504_and_closes_the_session(api, counter):
    async with api([counter], ServingConfig(deadline_s=0.05)) as http:
        session, other = (await http.opened())["id"], (await http.opened())["id"]
        reply = await http.act(session, 0, "sleep 5")
        assert reply.status_code == 504
        assert reply.json()["type"] == "urn:sojourn:problem:deadline-exceeded"
        assert (await http.act(session, 0, "sleep 5")).content == reply.content
        assert (await http.act(session, 0)).status_code == 410
        assert (await http.act(other, 0)).status_code == 200
        await asyncio.sleep(0)
        assert counter.open_worlds == 1


async def test_a_thread_that_misses_its_deadline_keeps_its_world_until_it_is_done(api):
    service = threaded()
    async with api([service], ServingConfig(deadline_s=1)) as http:
        session = (await http.opened())["id"]
        assert (await http.act(session, 0, "hold")).status_code == 504
        await http.opened()
        assert (service.open_worlds, service.blocked) == (2, 1)
        service.gate.set()
        await until(lambda: service.open_worlds == 1)
        assert service.blocked == 0


async def test_no_free_thread_is_429_and_the_session_lives(api):
    service = threaded()
    async with api([service], ServingConfig(deadline_s=1, threads=1)) as http:
        busy, waiting = (await http.opened())["id"], (await http.opened())["id"]
        first = asyncio.create_task(http.act(busy, 0, "hold"))
        await until(lambda: service.blocked)
        assert (await http.act(waiting, 0)).status_code == 429
        assert (await first).status_code == 504
        service.gate.set()
        await until(lambda: service.open_worlds == 1)
        assert (await http.act(waiting, 0)).json()["observation"] == "The counter shows 1."


async def test_a_world_is_closed_also_when_no_thread_is_free_for_long(api):
    service = threaded()
    async with api([service], ServingConfig(deadline_s=0.5, threads=1)) as http:
        busy, other = (await http.opened())["id"], (await http.opened())["id"]
        assert (await http.act(busy, 0, "hold")).status_code == 504
        assert (await http.delete(f"/v1/sessions/{other}")).status_code == 204
        await asyncio.sleep(1.2)  # the close has been turned away twice
        assert service.open_worlds == 2
        service.gate.set()
        await until(lambda: service.open_worlds == 0)


async def test_solutions_that_take_long_keep_no_step_waiting_and_cost_no_session(api):
    service = threaded()
    async with api([service], ServingConfig(deadline_s=30, threads=1)) as http:
        solved = [(await http.opened("counter_7"))["id"] for _ in range(6)]
        solutions = [asyncio.create_task(http.get(f"/v1/sessions/{session}/solution")) for session in solved]
        await until(lambda: service.solving == 2)
        assert (await http.act((await http.opened())["id"], 0)).status_code == 200
        service.gate.set()
        assert [(await reply).status_code for reply in solutions] == [200] * 6
        assert [(await http.act(session, 0)).status_code for session in solved] == [200] * 6


async def test_who_stood_in_line_for_a_solution_in_vain_may_ask_again(api):
    """It is told while there is still time: work that begins late would be broken off, and cost the session."""
    service = threaded()
    async with api([service], ServingConfig(deadline_s=1.5)) as http:
        busy = [(await http.opened("counter_7"))["id"] for _ in range(2)]
        working = [asyncio.create_task(http.get(f"/v1/sessions/{session}/solution")) for session in busy]
        await until(lambda: service.solving == 2)
        waiting = (await http.opened("counter_7"))["id"]
        reply = await http.get(f"/v1/sessions/{waiting}/solution")
        assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
        assert not any(task.done() for task in working)
        assert [(await task).status_code for task in working] == [504, 504]
        service.gate.set()
        assert (await http.get(f"/v1/sessions/{waiting}/solution")).status_code == 200


async def test_a_session_that_a_read_has_broken_is_gone(api):
    """A request without a key is none that was answered before."""
    service = threaded()
    async with api([service], ServingConfig(deadline_s=0.2)) as http:
        session = (await http.opened("counter_7"))["id"]
        assert (await http.get(f"/v1/sessions/{session}/solution")).status_code == 504
        service.gate.set()
        for reply in (
            await http.get(f"/v1/sessions/{session}"),
            await http.get(f"/v1/sessions/{session}/solution"),
            await http.act(session, 0),
        ):
            assert reply.status_code == 410


async def test_threaded_worlds_leave_the_event_loop_free(api):
    service = threaded()
    async with api([service]) as http:
        session = (await http.opened())["id"]
        step = asyncio.create_task(http.act(session, 0, "block 0.2"))
        for _ in range(5):
            assert (await http.get("/health")).status_code == 200
        assert not step.done()
        assert (await step).status_code == 200
        assert (await http.act(session, 1, "thread")).json()["observation"].startswith("sojourn-env")


def spec(execution: str) -> EnvSpec:
    return EnvSpec(
        name="x", version="1", snapshot="state", execution=execution, action_help={"full": ""}, default_horizon=1
    )


async def test_threads_are_bounded_and_reused():
    executor = Executor(5.0, threads=3)
    seen, most = set(), 0
    inside, lock = 0, threading.Lock()

    async def work():
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        seen.add(threading.current_thread().name)
        threading.Event().wait(0.01)
        with lock:
            inside -= 1

    await asyncio.gather(*(executor.run(spec("thread"), work()) for _ in range(12)))
    executor.close()
    assert most == 3
    assert len(seen) == 3


async def test_a_threaded_world_that_awaits_is_told():
    executor = Executor(5.0, threads=1)

    async def awaits():
        await asyncio.sleep(0)

    with pytest.raises(EnvironmentFailed, match="must block"):
        await executor.run(spec("thread"), awaits())
    executor.close()


@pytest.mark.parametrize("execution", ["inline", "thread"])
async def test_a_timeout_of_the_environments_own_is_its_failure(execution):
    executor = Executor(5.0, threads=1)

    async def times_out():
        raise TimeoutError("the site did not answer")

    with pytest.raises(EnvironmentFailed, match="the site did not answer"):
        await executor.run(spec(execution), times_out())
    executor.close()


async def test_an_inline_world_may_wait_for_anything():
    executor = Executor(5.0, threads=1)
    refused = asyncio.get_running_loop().create_future()

    async def waits():
        await asyncio.sleep(0)
        refused.set_exception(ValueError("refused"))
        try:
            await refused
        except ValueError as error:
            await asyncio.sleep(0.001)
            return str(error)

    assert await executor.run(spec("inline"), waits()) == "refused"
    executor.close()


async def test_an_inline_world_that_is_cancelled_cleans_up():
    executor = Executor(5.0, threads=1)
    cleaned = []

    async def waits():
        try:
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    step = asyncio.create_task(executor.run(spec("inline"), waits()))
    await asyncio.sleep(0.001)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert cleaned
    executor.close()


async def test_deadlines_name_the_environment_and_the_limit():
    executor = Executor(0.01, threads=1)
    with pytest.raises(DeadlineExceeded, match=r"x took longer than 0.01 s"):
        await executor.run(spec("inline"), asyncio.sleep(1))
    gate = threading.Event()

    async def blocks():
        gate.wait(5)

    with pytest.raises(DeadlineExceeded):
        await executor.run(spec("thread"), blocks())
    with pytest.raises(TooMany):
        await executor.run(spec("thread"), blocks())
    gate.set()
    executor.close()
