"""A bounded pool of daemon threads: a world that hangs for ever must not keep the process from ending."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Work = tuple[Future[Any], Callable[[], Any]]


class DaemonPool:
    """As `ThreadPoolExecutor`, except that interpreter exit does not wait for its threads."""

    def __init__(self, threads: int, name: str) -> None:
        self._most = threads
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run `call` when a thread is free. For one submitting thread."""
        future: Future[T] = Future()
        self._work.put((future, call))
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def close(self) -> None:
        """Let the threads end when they are done with what they have."""
        for _ in range(self._started):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, call = work
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del work, future, call
            self._idle.release()
