"""`sojourn serve` as a process: ready file, a client's episode, shutdown; and without torch."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sojourn.cli.serve import parse_env_config, parse_limits
from sojourn.client.session import EnvClient
from sojourn.protocol.errors import ServiceError, Unauthorized, UsageError


@contextlib.contextmanager
def server(directory: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    ready = directory / "ready"
    command = [
        sys.executable,
        "-m",
        "sojourn",
        "serve",
        "textcraft",
        "--port",
        "0",
        "--ready-file",
        str(ready),
    ]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            while not ready.exists():
                assert process.poll() is None
                time.sleep(0.02)
            yield ready.read_text(), process
        finally:
            process.kill()


async def play(url: str, token: str | None = None) -> bool:
    """The oracle's episode."""
    async with EnvClient(url, token=token) as client:
        task = (await client.tasks("textcraft", "test", limit=1)).tasks[0].task
        async with await client.create("textcraft", task) as session:
            for action in (await session.solution()).actions:
                result = await session.step(action)
            return result.terminated and result.info["success"]


def test_serves_an_episode_without_torch_and_ends_in_order(tmp_path: Path) -> None:
    with server(tmp_path) as (url, process):
        assert asyncio.run(play(url))
        if (maps := Path(f"/proc/{process.pid}/maps")).exists():
            assert "libtorch" not in maps.read_text()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
    assert process.returncode == 0
    assert f"serving textcraft at {url}" in out


def test_token_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with server(tmp_path, "--token-file", str(tmp_path / "token")) as (url, _):
        assert asyncio.run(play(url, "secret"))
        with pytest.raises(Unauthorized):
            asyncio.run(play(url))


def test_environment_options_are_read_as_yaml() -> None:
    given = ["babyai.seeds=[1, 2]", "babyai.name=x=y", "textcraft.n=3"]
    parsed = parse_env_config(["babyai", "textcraft"], given)
    assert parsed == {"babyai": {"seeds": [1, 2], "name": "x=y"}, "textcraft": {"n": 3}}


def test_limits_are_told_apart_from_other_settings() -> None:
    assert parse_limits(["threads=4", "max_fork=2"]) == {"threads": "4", "max_fork": "2"}
    for wrong in ("token=x", "threads", "workers=3"):
        with pytest.raises(
            UsageError, match=f"--limit '{wrong}': expected KEY=VALUE, the key one of threads, max_fork"
        ):
            parse_limits([wrong])


def test_a_limit_holds(tmp_path: Path) -> None:
    async def fork(url: str) -> None:
        async with EnvClient(url) as client, await client.create("textcraft", "textcraft_1") as session:
            assert len(await session.fork(2)) == 2
            await session.fork(3)

    with server(tmp_path, "--limit", "max_fork=2") as (url, _), pytest.raises(ServiceError, match="2"):
        asyncio.run(fork(url))
