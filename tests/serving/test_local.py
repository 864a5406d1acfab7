"""A server as a child process: it tells its address, serves, and ends with its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sojourn.client.session import EnvClient
from sojourn.protocol.errors import TransportError, UsageError
from sojourn.serving.config import ServingConfig
from sojourn.serving.launch import Launch
from sojourn.serving.local import LocalServer

COUNTER = "tests.serving.worlds:CounterService"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def wait_until_dead(pid: int, seconds: float = 15.0) -> bool:
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(pid)


async def test_it_serves_and_ends_with_its_block():
    server = LocalServer({COUNTER: {"padding": 3}})
    async with server as url:
        assert url.startswith("http://127.0.0.1:")
        pid = server.pid
        async with EnvClient(url) as client:
            session = await client.create("counter", "counter_1")
            assert (await session.step("add")).observation == "The counter shows 1."
    assert not alive(pid)
    async with EnvClient(url) as client:
        with pytest.raises(TransportError):
            await client.specs()


async def test_a_token_reaches_the_child_but_no_process_list():
    server = LocalServer([COUNTER], serving=ServingConfig(token="very-secret"))
    async with server as url, EnvClient(url, token="very-secret") as client:
        assert "counter" in await client.specs()
        assert "very-secret" not in command_line(server.pid)
    launch = Launch.model_validate_json(Launch(envs=[{"name": "x"}], serving=ServingConfig(token="t")).line())
    assert launch.serving.token.get_secret_value() == "t"


@pytest.mark.parametrize("workers", [1, 2])
async def test_what_keeps_it_from_serving_is_the_childs_own_message(workers):
    with pytest.raises(UsageError, match="no environment 'nowhere'"):
        async with LocalServer(["nowhere"], workers=workers):
            pytest.fail("it served")


async def test_a_child_that_dies_at_once_is_told():
    with pytest.raises(UsageError, match="ended with code 7"):
        async with LocalServer(["tests.serving.fatal:Fatal"]):
            pytest.fail("it served")


async def test_what_an_environment_prints_is_not_taken_for_the_address():
    async with LocalServer(["tests.serving.fatal:Chatty"]) as url:
        assert url.startswith("http://")


PARENT = """
import asyncio, sys
from sojourn.serving.local import LocalServer

async def main():
    server = LocalServer(["tests.serving.worlds:CounterService"], workers=int(sys.argv[1]))
    async with server as url:
        print(server.pid, url, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_dies_with_its_parent(workers, how):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(workers)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        pid, url = parent.stdout.readline().split()
        pids = [int(pid)]
        if workers > 1:
            pids += asyncio.run(worker_pids(url))
        assert all(alive(each) for each in pids)
        os.kill(parent.pid, how)
        parent.wait()
    assert all(wait_until_dead(each) for each in pids)


async def worker_pids(url: str) -> list[int]:
    async with EnvClient(url) as client:
        return [worker["pid"] for worker in await client._ask_workers()]


async def test_a_world_that_hangs_does_not_keep_the_server_alive():
    """An inline world that blocks the event loop for good: the child leaves the hard way."""
    server = LocalServer([COUNTER], serving=ServingConfig(drain_s=0.1))
    async with server as url, EnvClient(url) as client:
        session = await client.create("counter", "counter_1")
        step = asyncio.create_task(session.step("block 600"))
        await asyncio.sleep(0.2)
        step.cancel()
    assert not alive(server.pid)
