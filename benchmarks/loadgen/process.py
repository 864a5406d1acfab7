"""A server seen from outside: its whole tree of processes, JVMs included, in CPU seconds and resident memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

_START_S = 120.0
_STOP_S = 30.0


class ProcessTree:
    """A process and everything that descends from it.

    Args:
        pid: the root.
        rescan_s: how old the list of descendants may be. Listing them takes milliseconds of this process's time.
    """

    def __init__(self, pid: int, rescan_s: float = 1.0) -> None:
        self._root = psutil.Process(pid)
        self._rescan_s = rescan_s
        self._pids: list[int] = []
        self._scanned: float | None = None
        self._cpu: dict[int, float] = {}

    def cpu_s(self) -> float:
        """CPU seconds of all processes together, those that have ended included as far as they were seen."""
        for pid in self._members():
            try:
                self._cpu[pid] = process_cpu_s(pid)
            except (psutil.NoSuchProcess, OSError):
                continue
        return sum(self._cpu.values())

    def rss_mb(self) -> float:
        """Resident memory of all processes, in MiB; pages that two of them share count twice."""
        return sum(self.rss_by_process_mb().values())

    def rss_by_process_mb(self) -> dict[int, float]:
        """Resident memory in MiB by process id, the root first."""
        self._scanned = None
        found = {}
        for pid in self._members():
            try:
                found[pid] = psutil.Process(pid).memory_info().rss / (1 << 20)
            except psutil.NoSuchProcess:
                continue
        return found

    def _members(self) -> list[int]:
        if self._scanned is None or time.monotonic() - self._scanned > self._rescan_s:
            self._pids = [self._root.pid, *(child.pid for child in self._root.children(recursive=True))]
            self._scanned = time.monotonic()
        return self._pids


def process_cpu_s(pid: int) -> float:
    """CPU seconds of another process.

    On Linux by its CPU clock, in nanoseconds (clock_getcpuclockid(3); the number is the kernel's, posix-timers.h): what
    /proc and thus psutil tell comes in ticks of 10 ms, too coarse for one round of one episode.
    """
    if sys.platform == "linux":
        return time.clock_gettime((~pid << 3) | 2)
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


class Running(NamedTuple):
    """A server that answers."""

    url: str
    pid: int | None
    """None: somebody else's, and nobody told; its CPU and memory are not measured."""


@contextmanager
def sojourn_serve(
    env: str, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """`sojourn serve ENV` in a process of its own, on a free port, until the block ends.

    Args:
        env: what to serve.
        options: further words of the command.
        environment: variables that it gets beside this process's own.

    Raises:
        RuntimeError: it ended before it served, or was not ready in time.
    """
    program = shutil.which("sojourn", path=str(Path(sys.executable).parent)) or shutil.which("sojourn")
    if program is None:
        raise RuntimeError("no `sojourn` beside this Python: pip install -e . first")
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "url"
        command = [program, "serve", env, "--port", "0", "--ready-file", str(ready), *options]
        variables = {**os.environ, **(environment or {}), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=variables)
        try:
            yield Running(_wait(process, ready), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], ready: Path) -> str:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if ready.exists():
            return ready.read_text()
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode} before it served")
        time.sleep(0.02)
    raise RuntimeError(f"the server was not ready within {_START_S:g} s")
