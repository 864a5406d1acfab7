"""`sojourn import-goal-map`: which TextCraft goal another AgentGym server has under which index."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from sojourn.protocol.errors import UsageError


def import_goal_map(
    url: Annotated[str, typer.Argument(help="Address of a running AgentGym TextCraft server.")],
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("textcraft-goals.json"),
) -> None:
    """Read the goals of an AgentGym TextCraft server in the order of its data_idx.

    That order follows the directory order of the machine it runs on; ours is sorted. `sojourn serve textcraft
    --goal-map FILE` then gives the same goal under the same index.
    """
    from sojourn.serving.dialects.goals import write_goals

    goals = asyncio.run(_read(url))
    write_goals(out, goals)
    print(f"{len(goals)} goals of {url} in {out}")


async def _read(url: str) -> list[str]:
    """Our names of the server's goals.

    Raises:
        UsageError: its goals are not those of our recipes, each once.
    """
    from sojourn.client.agentgym import AgentGymEnv
    from sojourn.envs.textcraft import TextCraftService

    tasks = TextCraftService().tasks()
    found = []
    async with AgentGymEnv(url, "textcraft") as client, await client.create("textcraft", "textcraft_0") as session:
        for index in range(len(tasks)):
            opening = await session.reset(f"textcraft_{index}")
            _, marker, goal = opening.text.rpartition("Goal: craft ")
            if not marker:
                raise UsageError(f"{url} names no goal under data_idx {index}: {opening.text[-80:]!r}")
            found.append(goal.removesuffix(".").replace(" ", "_"))
    ours = {item.removeprefix("minecraft:") for item in tasks.goals}
    if set(found) != ours:
        strange = sorted(set(found) - ours) or [item for item, times in Counter(found).items() if times > 1]
        raise UsageError(f"{url} has other goals than ours: {', '.join(strange[:3])}, ...")
    return found
