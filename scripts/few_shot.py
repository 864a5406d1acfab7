"""Example turns for `envs.N.few_shot`: an environment's own scripted solutions of some tasks, a conversation a line.

python scripts/few_shot.py babyai --view compact babyai:PickupLoc/1000 > examples.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from sojourn.envs import registry
from sojourn.envs.base import EnvService
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import ServiceError, UsageError
from sojourn.rollout.agent import FORMATS, ActionFormat


async def solved(service: EnvService, task: str, view: str | None, action_format: ActionFormat) -> dict[str, Any]:
    """The solution of a task as a conversation that ends with its last action."""
    env = service.create(view)
    said: list[dict[str, str]] = []
    try:
        seen = (await env.reset(service.tasks().resolve(TaskRef.parse(task)))).text
        actions = (await env.solve()).actions
        for number, action in enumerate(actions, start=1):
            said += [
                {"role": "user", "content": seen},
                {"role": "assistant", "content": action_format.render(None, action)},
            ]
            result = await env.step(action)
            seen = result.observation
            assert not result.info.get("invalid"), f"{task}: {action} was refused: {seen}"
            assert result.info["success"] == (number == len(actions)), f"{task}: step {number}"
    finally:
        await env.close()
    return {"item_id": task, "messages": said}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("tasks", nargs="+", metavar="task")
    parser.add_argument("--view", help="the environment's first when left out")
    parser.add_argument("--format", choices=sorted(FORMATS), default="react")
    try:
        asyncio.run(write(parser.parse_args()))
    except (UsageError, ServiceError, ValueError) as error:  # ValueError: no task, or no action in the format
        parser.error(str(error))


async def write(options: argparse.Namespace) -> None:
    """Print the conversations."""
    service = registry.load(options.env)()
    await service.open()
    try:
        for task in options.tasks:
            print(json.dumps(await solved(service, task, options.view, FORMATS[options.format]())))
    finally:
        await service.close()


if __name__ == "__main__":
    main()
