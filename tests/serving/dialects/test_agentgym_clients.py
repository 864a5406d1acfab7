"""The HTTP that AgentGym's own clients speak, call by call, against `sojourn serve` as a process.

Each request has a connection of its own, a body only where theirs have one, and an id in the query of a GET and in the
body of a POST; replies are read by the fields that they read, and a status other than 200 is an error.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from typing import NamedTuple

import httpx
import pytest

from sojourn.envs.babyai import BabyAIService
from sojourn.envs.sciworld import SciWorldService
from sojourn.envs.textcraft import TextCraftService
from sojourn.protocol.env import TaskRef
from sojourn.serving.worker import bind
from tests.envs.test_sciworld_java import needs_java


class Step(NamedTuple):
    state: str
    reward: float
    done: bool


class Client:
    """What their three clients share: an address, an id, the latest observation."""

    create_body = None

    def __init__(self, base):
        self.base = base
        reply = self.post("create", self.create_body)
        self.id = reply["id"]

    def post(self, verb, body):
        with httpx.Client(trust_env=False, timeout=300) as http:
            reply = http.post(f"{self.base}/{verb}", **({} if body is None else {"json": body}))
        assert reply.status_code == 200
        return reply.json()

    def get(self, verb):
        with httpx.Client(trust_env=False, timeout=300) as http:
            reply = http.get(f"{self.base}/{verb}?id={self.id}")
        assert reply.status_code == 200
        return reply.json()

    def reset(self, index):
        reply = self.post("reset", {"id": self.id, "data_idx": index})
        self.seen = self.opening(reply)
        return reply

    def opening(self, reply):
        return reply["observation"]

    def step(self, text):
        reply = self.post("step", {"id": self.id, "action": self.action(text)})
        self.seen = reply["observation"]
        return Step(reply["observation"], reply[self.pays], reply["done"])

    def close(self):
        assert self.post("close", {"id": self.id}) is True

    @staticmethod
    def action(text):
        found = re.findall(r"Action:\s*(.*?)(?=\n|$)", text, re.DOTALL)
        assert len(found) <= 1
        return " ".join(re.sub("[^A-Za-z0-9, ]+", "", found[0] if found else "").split())


class TextCraft(Client):
    pays = "reward"
    create_body = {"minecraft_dir": "agentenv_textcraft/", "commands": None, "goal": None}  # noqa: RUF012


class BabyAI(Client):
    pays = "score"


class SciWorld(Client):
    pays = "score"

    def opening(self, reply):
        return f"{reply['task_description']}\n{reply['observation']}"

    @staticmethod
    def action(text):
        return text.rsplit("Action:", 1)[1].strip()


@contextlib.contextmanager
def serving(*options):
    """`sojourn serve` with these options on a port of our choice."""
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
    command = [sys.executable, "-m", "sojourn", "serve", *options, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            while True:
                assert process.poll() is None
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200:
                        break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def url():
    with serving("babyai", "--dialect", "agentgym", "--env", "textcraft") as url:
        yield url


async def solution(service, task):
    world = service.create("agentgym")
    try:
        await world.reset(TaskRef.parse(task))
        return (await world.solve()).actions
    finally:
        await world.close()
        await service.close()


def react(action):
    return f"Thought:\nThis looks right.\n\nAction:\n{action}"


@pytest.mark.parametrize("path", ["", "/agentgym/textcraft"])
async def test_textcraft(url, path):
    client = TextCraft(url + path)
    assert client.reset(17)["reward"] == 0
    assert client.seen.startswith("Crafting commands:\n")
    assert client.step("I do not know what to do.") == Step("Could not execute ", 0, False)
    assert client.step(react("inventory!")).state == "Inventory: You are not carrying anything."
    steps = [client.step(react(action)) for action in await solution(TextCraftService(), "textcraft_17")]
    assert [step.reward for step in steps] == [0] * (len(steps) - 1) + [1]
    assert steps[-1].done
    assert type(steps[-1].reward) is int
    assert client.get("observation") == client.seen
    other = TextCraft(url + path)
    other.reset(17)
    assert other.id != client.id
    client.close()
    assert client.post("close", {"id": client.id}) is False
    assert client.post("step", {"id": client.id, "action": "inventory"}).keys() == {"error"}
    assert not other.step(react("inventory")).done
    other.close()


def test_textcraft_alone_by_the_documented_command():
    with serving("--dialect", "agentgym", "--env", "textcraft") as alone:
        assert httpx.get(f"{alone}/", trust_env=False).json() == "This is environment TextCraft."
        client = TextCraft(alone)
        client.reset(3)
        client.close()


async def test_babyai(url):
    client = BabyAI(f"{url}/agentgym/babyai")
    reset = client.reset(70)
    assert (reset["score"], reset["done"]) == (0, False)
    assert client.seen.startswith("Your goal: ")
    assert client.step("Action: dance").state.startswith("The action is not recognized.")
    rewards = [client.step(react(action)) for action in await solution(BabyAIService(), "babyai_70")]
    assert [step.done for step in rewards] == [False] * (len(rewards) - 1) + [True]
    assert 0.5 < rewards[-1].reward <= 1
    assert rewards[-1].state.partition("\nAvailable actions:")[0].endswith("The task is completed.")
    assert client.post("step", {"id": client.id, "action": "drop"}).keys() == {"error"}
    client.reset(71)
    client.close()


@needs_java
async def test_sciworld():
    actions = await solution(SciWorldService(SciWorldService.Config(jvms=1)), "sciworld_2936")
    with serving("sciworld", "--env-config", "sciworld.jvms=1", "--dialect", "agentgym") as url:
        client = SciWorld(url)
        client.reset(2936)
        assert client.seen.startswith("Your task is to find a(n) living thing.")
        steps = [client.step(react(action)) for action in actions]
        assert steps[-1].reward == 100
        assert steps[-1].done
        assert client.reset(30)["task_name"] == "melt"
        assert client.step(react("focus on agent"))[1:] == (-100, True)
        client.close()
