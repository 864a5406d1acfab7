"""The `agentgym` view word for word: the reference's own transcripts where they are at hand, and ours always.

`python -m tests.envs.test_babyai_transcripts` records ours anew.
"""

import gzip
import json
import random
from pathlib import Path

import pytest

from sojourn.envs.babyai import BabyAIService, levels
from sojourn.envs.babyai.macros import DONE, perform, table
from sojourn.envs.babyai.sight import picture
from sojourn.envs.babyai.sim import World
from sojourn.envs.babyai.views import render
from sojourn.protocol.env import TaskRef

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT.parent / "shared" / "golden" / "babyai.jsonl.gz"
OURS = ROOT / "tests" / "fixtures" / "babyai.jsonl.gz"
OTHER_MISSIONS = {"SynthLoc/3", "SynthSeq/3", "SynthSeq/4"}
"""minigrid has changed these since."""
ENDINGS = ("\n The task is completed.", "\n The task has failed.")


def episodes(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def body(text):
    """An observation without its ending, which is where we differ on purpose."""
    for ending in ENDINGS:
        text = text.replace(ending, "")
    return text


def play_on(world, action):
    """What the reference does: the whole macro, past the end of the episode."""
    seen = picture(world)
    reward = 0.0
    for step in table(world).get(action).path:
        reward = world.act(step).reward
        if picture(world) == seen:
            break
        seen = picture(world)
    return reward


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference's transcripts are not at hand")
def test_the_references_transcripts_replay():
    """Every reply equals the reference's, up to the end of the episode.

    The end is where we want to differ: success and failure end it at once, while the reference walks on to the end of
    the macro, then takes the last step's verdict, and takes success back when its reward is small.
    """
    replies = wins = cut = 0
    for episode in episodes(REFERENCE):
        name, seed = levels.parse(TaskRef("babyai", str(episode["idx"])))
        if f"{name}/{seed}" in OTHER_MISSIONS:
            continue
        world = World.start(levels.generate(name, seed))
        assert render(world, "agentgym", DONE, first=True) == episode["reset"]["observation"]
        for action, reply in episode["steps"]:
            before = world.copy()
            event, reward = perform(world, action)
            text = render(world, "agentgym", event, first=False)
            replies += 1
            if not world.over:
                assert (text, reward) == (reply["observation"], reply["reward"])
                continue
            theirs = play_on(before, action)
            assert body(render(before, "agentgym", DONE, first=False)) == body(reply["observation"])
            assert theirs == reply["reward"]
            cut += before.steps > world.steps
            if before.steps == world.steps and world.success:
                assert (text, reward) == (reply["observation"], reply["reward"])
                wins += 1
            break
    assert replies > 800
    assert wins >= 10
    assert cut >= 5


async def record():
    """Our replies to random actions, mostly possible ones, on the first eighty tasks."""
    service, found = BabyAIService(), []
    for index in range(80):
        env, rng = service.create("agentgym"), random.Random(index)
        opening = (await env.reset(TaskRef("babyai", str(index)))).text
        steps = []
        for _ in range(14):
            action = rng.choice(
                [*await env.available_actions(), "toggle", "pick up red ball 1", "go to grey key 9", ""]
            )
            result = await env.step(action)
            steps.append([action, result.observation, result.reward, result.terminated, result.truncated])
            if result.done:
                break
        found.append({"idx": index, "opening": opening, "steps": steps})
    return found


async def test_our_transcripts_are_as_recorded():
    assert await record() == episodes(OURS)


if __name__ == "__main__":
    import asyncio

    with gzip.GzipFile(OURS, "wb", mtime=0) as file:
        for one in asyncio.run(record()):
            file.write(json.dumps(one).encode() + b"\n")
