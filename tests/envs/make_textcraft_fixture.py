"""Writes `tests/fixtures/textcraft.jsonl.gz`: transcripts of our own environment in each view.

Run `python -m tests.envs.make_textcraft_fixture` when the environment's version changes, after the golden transcripts
of the reference server have been replayed without a difference (`test_textcraft_golden.py`).
"""

import asyncio
import gzip
import random
from pathlib import Path

import orjson

from sojourn.envs.textcraft import TextCraftService
from sojourn.protocol.env import TaskRef

FIXTURE = Path(__file__).parents[1] / "fixtures" / "textcraft.jsonl.gz"
WRONG = (
    "inventory",
    "get 0 flint",
    "get 2 planks",
    "get 1 stick",
    "get 3 nothing at all",
    "GET 1 oak log",
    "craft torch",
    "craft 4 torch using coal",
    "craft 1 torch using 1 coal",
    "craft 1 planks using 1 flint",
    "look around",
)


async def play(service, index, view, rng):
    """The solution of a task mixed with mistakes, and what came of each action."""
    env = service.create(view)
    opening = await env.reset(TaskRef("textcraft", str(index)), seed=index)
    steps, ended = [], False
    while not ended:
        right = (await env.solve()).actions[0]
        action = right if rng.random() < 0.75 else rng.choice((*WRONG, f"{right}, 1 flint", right.replace("1", "2")))
        result = await env.step(action)
        ended = result.terminated
        steps.append([action, result.observation, result.reward, result.terminated])
    return {"task": f"textcraft_{index}", "seed": index, "view": view, "opening": opening.text, "steps": steps}


async def main():
    service, rng = TextCraftService(), random.Random(0)
    episodes = [
        orjson.dumps(await play(service, index, view, rng)) for view in service.spec.views for index in range(0, 544, 9)
    ]
    FIXTURE.parent.mkdir(exist_ok=True)
    FIXTURE.write_bytes(gzip.compress(b"\n".join(episodes), mtime=0))


if __name__ == "__main__":
    asyncio.run(main())
