"""The configs that come with the package are valid and say what the documents promise."""

from __future__ import annotations

from importlib import resources

import pytest

from sojourn.cli.extras import find_config
from sojourn.envs import registry
from sojourn.protocol.env import TaskRef
from sojourn.rollout.agent import FORMATS
from sojourn.rollout.conversations import read_conversations
from sojourn.rollout.horizon import ScalingInter
from sojourn.trainer.config_reading import load_config, load_run_config

PUBLISHED = {
    "textcraft": ("textcraft", (10, 20, 30), 100, 8, 32),
    "babyai": ("babyai", (6, 13, 20), 100, 4, 32),
    "sciworld": ("sciworld", (10, 20, 30), 100, 8, 16),
    "search": ("search", (5, 8, 10), 100, 4, 32),
    "webarena": ("web", (8, 12, 15), 80, 4, 32),
}
"""Environment, rounds, steps of each, samples and tasks of AgentGym-RL's ScalingInter scripts."""

FILES = sorted(path.name for path in resources.files("sojourn").joinpath("configs").iterdir())


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_each_loads(name):
    config = load_run_config(str(resources.files("sojourn").joinpath("configs", name)))
    assert config.name == name.removesuffix(".yaml")
    assert config.trainer.eval_every


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_published_recipes_say_what_was_published(recipe):
    config = load_config(find_config(f"{recipe}_scaling_inter"))
    env, rounds, steps, samples, tasks = PUBLISHED[recipe]
    assert config.name == f"{recipe}_scaling_inter"
    assert [entry.name for entry in config.envs] == [env]
    assert config.horizon == ScalingInter(stages=rounds, steps_per_stage=steps)
    assert (config.rollout.group_size, config.rollout.groups_per_step) == (samples, tasks)
    assert config.trainer.num_steps == 3 * steps
    assert config.optim.lr == 1e-6
    assert config.algorithm.preset == "agentgym_rl"
    if env in registry.names():
        spec = registry.load(env)().spec
        assert config.envs[0].view in spec.views
        assert config.eval.horizon >= rounds[-1]


def test_all_are_there():
    assert {"demo.yaml", "babyai_grpo.yaml", "textcraft_grpo.yaml"} <= set(FILES)
    assert {f"babyai_{name}.yaml" for name in ("sft", "dpo", "agentevol")} <= set(FILES)


async def test_example_turns_are_the_environments_own():
    """Each conversation is a task of the training split, played to success in the view that the config plays."""
    entry = load_config(find_config("babyai_from_zero")).envs[0]
    service = registry.load(entry.name)()
    path = resources.files("sojourn").joinpath("configs", "few_shot", "babyai.jsonl")
    shown = []
    for conversation in read_conversations(str(path)):
        task = TaskRef.parse(conversation.name)
        assert task in service.tasks().select("train", entry.families)
        world = service.create(entry.view)
        seen, won = (await world.reset(task)).text, False
        said = [message.message["content"] for message in conversation.said]
        for asked, answer in zip(said[::2], said[1::2], strict=True):
            action = FORMATS["react"]().parse(answer).action
            assert asked == seen
            assert action is not None
            result = await world.step(action)
            seen, won = result.observation, result.info["success"]
            shown.append((asked, answer))
        assert won
    assert shown == [(turn.user, turn.assistant) for turn in entry.few_shot or ()]
