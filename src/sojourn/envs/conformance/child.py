"""The other process: plays the scripts that it is told on stdin, and answers on stdout."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from operator import attrgetter
from typing import Any

import orjson

from sojourn.envs.base import EnvService
from sojourn.envs.conformance.elsewhere import Transcript, transcripts
from sojourn.protocol.env import TaskRef


async def _answer(order: dict[str, Any]) -> list[Transcript]:
    module, _, name = order["service"].partition(":")
    cls: type[EnvService] = attrgetter(name)(importlib.import_module(module))
    service = cls(cls.Config.model_validate(order["config"]))
    await service.open()
    try:
        scripts = {TaskRef.parse(task): actions for task, actions in order["scripts"]}
        return await transcripts(service, scripts, order["seed"])
    finally:
        await service.close()


def main() -> None:
    """Answer once."""
    answers = os.fdopen(os.dup(1), "wb")
    # What an environment prints is not the answer.
    os.dup2(2, 1)
    found = asyncio.run(_answer(orjson.loads(sys.stdin.buffer.readline())))
    answers.write(orjson.dumps([[list(moment) for moment in transcript] for transcript in found]))
    answers.close()


if __name__ == "__main__":
    main()
