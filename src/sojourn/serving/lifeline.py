"""A child process that ends when its parent does, however that ends."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable


class Lifeline:
    """Watches a descriptor whose other end the parent holds open, and the parent's process id.

    The id is watched too because a process forked from the parent may hold a copy of the pipe's other end.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parent = os.getppid()
        self._stop: Callable[[], None] | None = None
        self._grace_s = 0.0
        threading.Thread(target=self._watch, name="sojourn-lifeline", daemon=True).start()

    def on_end(self, stop: Callable[[], None], grace_s: float) -> None:
        """Once the parent is gone call `stop`, and leave the hard way when that is not heeded in time."""
        self._grace_s = grace_s
        self._stop = stop

    def _watch(self) -> None:
        while os.getppid() == self._parent:
            readable, _, _ = select.select([self._descriptor], [], [], 1.0)
            if readable and not os.read(self._descriptor, 1024):
                break
        if self._stop is not None:
            self._stop()
            threading.Event().wait(self._grace_s)
        os._exit(1)
