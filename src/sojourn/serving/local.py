"""A local server as a child process: what a trainer on one machine starts when it is given no address."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import orjson
from pydantic import ValidationError

from sojourn.protocol.errors import SojournError
from sojourn.serving.config import ServingConfig
from sojourn.serving.launch import Child, Launch
from sojourn.serving.lifeline import Lifeline
from sojourn.serving.supervisor import serve
from sojourn.serving.worker import as_entries


class LocalServer:
    """An environment server on a free loopback port, for as long as the block lasts.

    ```python
    async with LocalServer(["textcraft", "babyai"]) as url:
        ...
    ```

    The child ends with its parent, however that ends.

    Args:
        envs: names, or names with their options.
        workers: server processes.
        serving: limits, leases, tokens.
    """

    def __init__(
        self,
        envs: Sequence[str] | Mapping[str, Mapping[str, Any]],
        *,
        workers: int = 1,
        serving: ServingConfig | None = None,
    ) -> None:
        self._launch = Launch(envs=as_entries(envs), workers=workers, serving=serving or ServingConfig())
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Process id of the server while it runs."""
        assert self._child is not None
        return self._child.process.pid

    async def __aenter__(self) -> str:
        self._child = await Child.start(self._launch)
        return self._child.url

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._child is not None
        await self._child.stop()


def main() -> int:
    """The child's side; see `sojourn.serving.launch`."""
    # Whatever an environment prints must not be taken for an answer: the answer has a descriptor of its own.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        launch = Launch.model_validate_json(sys.stdin.buffer.readline())
    except ValidationError as error:
        print(f"sojourn.serving.local reads a Launch document on stdin: {error}", file=sys.stderr)
        return 2
    lifeline = Lifeline(0)

    def answer(document: dict[str, Any]) -> None:
        answers.write(orjson.dumps(document) + b"\n")
        answers.flush()

    try:
        serve(
            launch.envs,
            host=launch.host,
            port=launch.port,
            workers=launch.workers,
            config=launch.serving,
            fd=launch.fd,
            on_ready=lambda url: answer({"url": url}),
            lifeline=lifeline,
        )
    except SojournError as error:
        answer({"error": str(error)})
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
