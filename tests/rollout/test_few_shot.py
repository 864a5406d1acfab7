"""Example turns: read from both forms, refused in one line, and part of the prompt of every episode, never trained."""

from __future__ import annotations

import json
import random

import pytest

from sojourn.client.session import EnvClient
from sojourn.envs.textcraft import TextCraftService
from sojourn.protocol.errors import UsageError
from sojourn.protocol.messages import SamplingParams
from sojourn.rollout.agent import ReAct, Tagged
from sojourn.rollout.demonstration import demonstrate
from sojourn.rollout.episode import run_episode
from sojourn.rollout.few_shot import Exchange, check_actions, read_few_shot
from sojourn.rollout.player import Player
from sojourn.rollout.renderer import Renderer
from sojourn.rollout.tree import Node, branch
from tests.conftest import serve_in_process
from tests.models import QWEN3, TEMPLATES, byte_tokenizer
from tests.rollout.engine import ScriptedEngine, turns

SHOWN = (
    Exchange("You stand on step 3.", "Thought: nearly\nAction: up"),
    Exchange("You stand on step 4.", "Action: up"),
)
UP = "Action: up"


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def file(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


async def play(player, **options):
    ask = {"horizon": 8, "group_id": "g", "sibling": 0, "view": "full"} | options
    return await run_episode(player, "stairs", "stairs_3", **ask)


def test_both_forms_are_read_and_conversations_follow_each_other(tmp_path):
    agentgym = [{"from": "human", "value": SHOWN[0].user, "loss": None}, {"from": "gpt", "value": SHOWN[0].assistant}]
    openai = [user(SHOWN[1].user), {**said(SHOWN[1].assistant), "weight": 0}]
    path = file(tmp_path / "shown.jsonl", {"conversations": agentgym}, {"messages": openai})
    assert read_few_shot(path) == SHOWN
    whole = tmp_path / "shown.json"
    whole.write_text(json.dumps([{"messages": [m for e in SHOWN for m in (user(e.user), said(e.assistant))]}]))
    assert read_few_shot(whole) == SHOWN


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([user("a")], "line 1: ends with the user's turn"),
        ([user("a"), said("b"), user("c")], "line 1: ends with the user's turn"),
        ([said("b")], "message 1 is the assistant's where the user's belongs"),
        ([user("a"), user("b")], "message 2 is the user's where the assistant's belongs"),
        ([{"role": "system", "content": "rules"}, user("a"), said("b")], "a system message is no example"),
        ([{"role": "tool", "content": "x"}], "with the 'role' user, assistant or system"),
        ([], "no messages"),
    ],
)
def test_what_is_no_example_is_told_in_one_line(tmp_path, messages, why):
    path = file(tmp_path / "shown.jsonl", {"messages": messages})
    with pytest.raises(UsageError, match=why) as told:
        read_few_shot(path)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_missing_or_empty(tmp_path):
    with pytest.raises(UsageError, match=r"absent\.jsonl: No such file"):
        read_few_shot(tmp_path / "absent.jsonl")
    with pytest.raises(UsageError, match="holds no conversation"):
        read_few_shot(file(tmp_path / "empty.jsonl"))


def test_an_answer_without_an_action_in_the_format():
    check_actions(SHOWN, ReAct())
    check_actions((Exchange("a", "<search>b</search>"),), Tagged())
    with pytest.raises(UsageError, match="few-shot turn 2 answers 'go up': No action found"):
        check_actions((SHOWN[0], Exchange("a", "go up")), ReAct())


@pytest.mark.parametrize("template", sorted(TEMPLATES))
@pytest.mark.parametrize("manners", [{}, {"system_prompt": True}, {"prompt": "none"}])
async def test_the_prompt_is_the_templates_and_nothing_of_it_is_trained(make, template, manners):
    renderer = Renderer(byte_tokenizer(TEMPLATES[template]))
    player = make(turns(UP), renderer=renderer, few_shot={"stairs": SHOWN, "else": (Exchange("x", UP),)}, **manners)
    t = await play(player)
    assert t.success
    rules = ReAct().instructions("Climb the stairs with up.")
    shown = [user(SHOWN[0].user), said(SHOWN[0].assistant), user(SHOWN[1].user), said(SHOWN[1].assistant)]
    if manners.get("system_prompt"):
        shown = [{"role": "system", "content": rules}, *shown]
    elif not manners:
        shown[0] = user(f"{rules}\n\n{SHOWN[0].user}")
    opening = [*shown, user("You stand on step 0.")]
    assert t.opening == "You stand on step 0."
    assert t.segments[0].ids == renderer.template_ids(opening)
    assert not any(t.segments[0].mask)
    assert not any(t.segments[0].logprobs)
    assert [s.turn for s in t.segments] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    spec = await player.envs.spec("stairs")
    conversation = player.conversation(spec, t)
    assert conversation[: len(opening)] == opening
    # The last completion ends the episode: what it was drawn after is the whole conversation but the last two.
    assert list(make.engine.requests[-1].ids) == renderer.template_ids(conversation[:-2])


async def test_an_environment_that_is_not_named_is_shown_nothing(make):
    plain = await play(make(turns(UP)))
    other = await play(make(turns(UP), few_shot={"else": SHOWN}))
    assert [s.ids for s in other.segments] == [s.ids for s in plain.segments]


async def test_a_branch_goes_on_behind_the_same_examples(make):
    player = make(turns(UP), few_shot={"stairs": SHOWN})
    frozen = {}

    async def keep(trajectory, session, stop):
        if len(trajectory.turns) == 2:
            frozen["snapshot"] = await session.fetch_snapshot(await session.snapshot())

    trunk = await play(player, after_turn=keep)
    shared = branch(Node(trunk, 2, 0.0, frozen["snapshot"]))
    t = await play(player, prefix=shared, snapshot=frozen["snapshot"], sibling=1)
    assert t.success
    assert [s.ids for s in t.segments] == [s.ids for s in trunk.segments]
    spec = await player.envs.spec("stairs")
    assert player.conversation(spec, t) == player.conversation(spec, trunk)


async def test_a_window_keeps_the_examples_and_the_first_observation(make):
    renderer = Renderer(byte_tokenizer(), window=1)
    player = make(turns(UP), renderer=renderer, few_shot={"stairs": SHOWN})
    t = await play(player)
    assert [s.parent for s in t.segments] == [None, 0, 1, 2, None, 4, None, 6, None, 8]
    spec = await player.envs.spec("stairs")
    messages = player.conversation(spec, t)
    last = t.chain(t.turns[-1].segment)[:-1]
    assert [i for n in last for i in t.segments[n].ids] == renderer.template_ids([*messages[:5], *messages[-4:-2]])


async def test_thoughts_of_the_policy_are_stripped_behind_examples(make):
    """Where the template rewrites history, a new root holds the examples, too."""
    renderer = Renderer(byte_tokenizer(QWEN3))
    player = make(turns("<think>\nhm\n</think>\n\nAction: up", UP), renderer=renderer, few_shot={"stairs": SHOWN})
    t = await play(player)
    assert [i for i, s in enumerate(t.segments) if s.parent is None] == [0, 2]
    messages = player.conversation(await player.envs.spec("stairs"), t)
    assert t.segments[2].ids == renderer.template_ids(messages[:7])


async def test_demonstrations_begin_as_the_players_episodes_do():
    renderer = Renderer(byte_tokenizer())
    shown = (Exchange("goal: craft 1 stick", "Action: inventory"),)
    async with serve_in_process([TextCraftService()]) as client:
        assert isinstance(client, EnvClient)
        task = (await client.tasks("textcraft", "train", families=["depth1"], limit=1)).tasks[0].task
        engine = ScriptedEngine(renderer, turns("Action: inventory"), max_context=65536)
        for manners in ({"prompt": "none"}, {"prompt": "full", "system_prompt": True}):
            player = Player(
                client, engine, renderer, ReAct(), SamplingParams(), few_shot={"textcraft": shown}, **manners
            )
            played = await run_episode(player, "textcraft", task, horizon=1, group_id="g", sibling=0, view="compact")
            learnt = await demonstrate(
                client,
                renderer,
                ReAct(),
                "textcraft",
                task,
                view="compact",
                horizon=30,
                rng=random.Random(0),
                few_shot=shown,
                **manners,
            )
            assert learnt is not None
            assert learnt.segments[0].ids == played.segments[0].ids
            assert not any(learnt.segments[0].mask)


async def test_examples_that_leave_no_room_for_an_episode(make):
    long = (Exchange("word " * 2000, UP),)
    with pytest.raises(UsageError, match=r"the example turns of stairs are .* exceed the context of 4096"):
        make(turns(UP), few_shot={"stairs": long})
    assert make(turns(UP), few_shot={"stairs": SHOWN}).max_context == 4096
