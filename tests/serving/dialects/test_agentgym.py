"""AgentGym's protocol, byte by byte: shapes, ids, errors; leases and limits behind them."""

from __future__ import annotations

import asyncio
import base64
import io

import pytest
from PIL import Image
from pydantic import SecretStr

from sojourn.envs.babyai import BabyAIService
from sojourn.protocol.errors import Gone, NotFound, UsageError
from sojourn.serving.app import create_app
from sojourn.serving.config import DialectsConfig, ServingConfig
from sojourn.serving.dialects.goals import write_goals
from sojourn.serving.dialects.seats import Seat, Seats
from tests.serving.conftest import Clock
from tests.serving.worlds import CounterService

TEXTCRAFT, BABYAI = "/agentgym/textcraft", "/agentgym/babyai"
OPENING = "Crafting commands:\ncraft 4 acacia planks using 1 acacia logs\n\nGoal: craft acacia planks."


async def post(http, path, body):
    reply = await http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply


async def test_textcraft_from_create_to_close(dialects):
    async with dialects() as http:
        assert (await http.get(f"{TEXTCRAFT}/")).text == '"This is environment TextCraft."'
        created = await post(http, f"{TEXTCRAFT}/create", {"minecraft_dir": "x/", "commands": None, "goal": None})
        assert list(created.json().items()) == [("id", 0), ("observation", OPENING), ("done", False), ("reward", 0)]
        for action, text in [
            ("inventory", '{"observation":"Inventory: You are not carrying anything.","reward":0,"done":false}'),
            ("get 1 acacia logs", '{"observation":"Got 1 acacia logs","reward":0,"done":false}'),
            (
                "craft 4 acacia planks using 1 acacia logs",
                '{"observation":"Crafted 4 minecraft:acacia_planks","reward":1,"done":true}',
            ),
        ]:
            assert (await post(http, f"{TEXTCRAFT}/step", {"id": 0, "action": action})).text == text
        assert (await http.get(f"{TEXTCRAFT}/observation?id=0")).text == '"Crafted 4 minecraft:acacia_planks"'
        detail = '{"observation":"Crafted 4 minecraft:acacia_planks","done":true,"reward":1,"deleted":false}'
        assert (await http.get(f"{TEXTCRAFT}/detail?id=0")).text == detail
        after = (await post(http, f"{TEXTCRAFT}/step", {"id": 0, "action": "inventory"})).json()
        assert (after["reward"], after["done"]) == (0, True)
        reset = await post(http, f"{TEXTCRAFT}/reset", {"id": 0})
        assert reset.json() == created.json()
        assert (await post(http, f"{TEXTCRAFT}/close", {"id": 0})).text == "true"
        assert (await post(http, f"{TEXTCRAFT}/close", {"id": 0})).text == "false"
        assert len(http.app.state.operations.sessions) == 0


async def test_textcraft_resets_itself_to_its_id_and_counts_goals_round(dialects):
    async with dialects() as http:
        created = [(await post(http, f"{TEXTCRAFT}/create", {})).json() for _ in range(3)]
        assert [one["id"] for one in created] == [0, 1, 2]
        for index in (2, 2 + 544, 2 - 544):
            reset = (await post(http, f"{TEXTCRAFT}/reset", {"id": 0, "data_idx": index})).json()
            assert (reset["id"], reset["observation"]) == (0, created[2]["observation"])


async def test_babyai_from_create_to_close(dialects):
    async with dialects() as http:
        assert (await http.get(f"{BABYAI}/")).text == '"This is environment BabyAI."'
        assert (await http.post(f"{BABYAI}/create")).text == '{"id":0}'
        assert (await post(http, f"{BABYAI}/step", {"id": 0, "action": "drop"})).text == '{"error":"0"}'
        before = (await http.get(f"{BABYAI}/observation?id=0")).json()
        assert before["observation"] == "Environment not initialized"
        reset = (await post(http, f"{BABYAI}/reset", {"id": 0, "data_idx": 3})).json()
        assert list(reset) == ["observation", "reward", "score", "deleted", "done"]
        assert reset["observation"].startswith("Your goal: ")
        step = await post(http, f"{BABYAI}/step", {"id": 0, "action": "turn left"})
        assert list(step.json()) == ["observation", "reward", "score", "done"]
        assert step.text.endswith('"reward":0,"score":0,"done":false}')
        seen = (await http.get(f"{BABYAI}/observation?id=0")).json()
        assert seen == {**step.json(), "deleted": False}
        assert (await post(http, f"{BABYAI}/close", {"id": 0})).text == "true"


async def test_babyai_renders_the_grid(dialects):
    async with dialects() as http:
        await http.post(f"{BABYAI}/create")
        assert (await post(http, f"{BABYAI}/render", {"id": 0})).json() == {"error": "0"}
        await post(http, f"{BABYAI}/reset", {"id": 0, "data_idx": 0})
        prefix, _, data = (await post(http, f"{BABYAI}/render", {"id": 0})).json().partition(",")
        assert prefix == "data:image/png;base64"
        image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
        assert (image.format, image.mode, image.size) == ("PNG", "RGB", (8 * 32, 8 * 32))
        before = (await http.get(f"{BABYAI}/observation?id=0")).json()
        assert before["observation"].startswith("Your goal: ")
        missing = {"error": "The id 7 is not valid."}
        assert (await post(http, f"{BABYAI}/render", {"id": 7})).json() == missing
        assert (await http.post(f"{BABYAI}/render", json={})).status_code == 422


async def test_textcraft_tells_commands_and_goal(dialects):
    async with dialects() as http:
        await http.post(f"{TEXTCRAFT}/create", json={})
        for _ in range(2):
            commands = (await http.get(f"{TEXTCRAFT}/commands?id=0")).text
            assert commands == '"craft 4 acacia planks using 1 acacia logs"'
            assert (await http.get(f"{TEXTCRAFT}/goal?id=0")).text == '"acacia planks"'
            await post(http, f"{TEXTCRAFT}/step", {"id": 0, "action": "get 1 acacia logs"})


async def solved(http, index, *, idle=0):
    """The last two replies of an episode of the oracle that first wastes `idle` steps; and its id."""
    number = (await http.post(f"{BABYAI}/create")).json()["id"]
    await post(http, f"{BABYAI}/reset", {"id": number, "data_idx": index})
    for _ in range(idle):
        await post(http, f"{BABYAI}/step", {"id": number, "action": "turn left"})
    *_, session = http.app.state.operations.sessions
    for action in (await session.world.solve()).actions:
        reply = (await post(http, f"{BABYAI}/step", {"id": number, "action": action})).json()
    return number, reply


AFTER = ("turn left", "check available actions", "turn right", "fly", "turn left")


async def test_babyai_scores_stay_in_bounds_and_success_is_the_end(dialects):
    async with dialects() as http:
        number, last = await solved(http, 0, idle=44)
        assert 0 < last["reward"] <= 0.5
        assert (last["score"], last["done"]) == (last["reward"], True)
        again = await post(http, f"{BABYAI}/step", {"id": number, "action": "check available actions"})
        assert again.json() == {"error": f"The task with environment {number} has finished."}


async def test_babyai_legacy_scoring_adds_the_latest_reward_at_every_step(dialects):
    async with dialects(legacy_scoring=True) as http:
        number, last = await solved(http, 0, idle=44)
        assert 0 < last["reward"] <= 0.5
        assert (last["score"], last["done"]) == (last["reward"], False)
        for times in (2, 3):
            again = (await post(http, f"{BABYAI}/step", {"id": number, "action": "check available actions"})).json()
            assert again["score"] == pytest.approx(times * last["reward"])
            assert not again["done"]
        # The world goes on: what is done in it sets the reward anew, and to reach the goal once more pays once more.
        steps = [(await post(http, f"{BABYAI}/step", {"id": number, "action": action})).json() for action in AFTER]
        again = last["reward"] - 0.9 * 2 / 64
        assert [step["reward"] for step in steps] == pytest.approx([0, 0, again, again, 0])
        paid = 3 * last["reward"]
        scores = [paid, paid, paid + again, paid + 2 * again, paid + 2 * again]
        assert [step["score"] for step in steps] == pytest.approx(scores)
        assert not any(step["done"] for step in steps)
        assert "The task is completed." in steps[2]["observation"]
        assert "The task is completed." not in steps[0]["observation"] + steps[3]["observation"]
        for _ in range(30):
            late = (await post(http, f"{BABYAI}/step", {"id": number, "action": "turn left"})).json()
            assert not late["done"]
        number, last = await solved(http, 40)
        assert last["done"]
        finished = {"error": f"The task with environment {number} has finished."}
        assert (await post(http, f"{BABYAI}/step", {"id": number, "action": "drop"})).json() == finished
        assert last["score"] == last["reward"] > 0.5


@pytest.mark.parametrize("path", [TEXTCRAFT, BABYAI])
async def test_ids_that_lead_nowhere(dialects, path):
    async with dialects() as http:
        unknown = {"error": "The id 5 is not valid."}
        for verb, body in [("step", {"action": "x"}), ("reset", {"data_idx": 0})]:
            assert (await post(http, f"{path}/{verb}", {"id": 5, **body})).json() == unknown
        assert (await http.get(f"{path}/observation?id=5")).json() == unknown
        assert (await post(http, f"{path}/close", {"id": 5})).json() is False
        await http.post(f"{path}/create", json={})
        await post(http, f"{path}/close", {"id": 0})
        gone = {"error": "The task with environment 0 has been deleted."}
        assert (await post(http, f"{path}/step", {"id": 0, "action": "x"})).json() == gone
        assert (await http.get(f"{path}/observation?id=0")).json() == gone


async def test_refused_resets_leave_the_id_as_it_was(dialects):
    async with dialects() as http:
        await http.post(f"{BABYAI}/create")
        await post(http, f"{BABYAI}/reset", {"id": 0, "data_idx": 1})
        for index in (-1, 10**15):
            assert "error" in (await post(http, f"{BABYAI}/reset", {"id": 0, "data_idx": index})).json()
        assert "observation" in (await post(http, f"{BABYAI}/step", {"id": 0, "action": "turn left"})).json()


@pytest.mark.parametrize(
    ("verb", "content", "fault"),
    [
        ("create", b"", {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}),
        (
            "step",
            b'{"id":0}',
            {"type": "missing", "loc": ["body", "action"], "input": {"id": 0}},
        ),
        ("reset", b'{"id":"x"}', {"type": "int_parsing", "loc": ["body", "id"], "input": "x"}),
        ("step", b"{", {"type": "json_invalid", "msg": "JSON decode error"}),
    ],
)
async def test_wrong_bodies_are_422_as_fastapi_words_them(dialects, verb, content, fault):
    async with dialects() as http:
        reply = await http.post(f"{TEXTCRAFT}/{verb}", content=content)
        assert reply.status_code == 422
        assert reply.json()["detail"][0].items() >= fault.items()


async def test_wrong_queries_are_422(dialects):
    async with dialects() as http:
        reply = await http.get(f"{TEXTCRAFT}/observation")
        assert reply.status_code == 422
        assert reply.json()["detail"][0]["loc"] == ["query", "id"]


@pytest.mark.parametrize("root", [{}, {"root": "agentgym", "root_env": "textcraft"}])
async def test_what_is_not_there_is_told_as_fastapi_words_it_and_ours_as_we_do(dialects, root):
    async with dialects(**root) as http:
        for prefix in (TEXTCRAFT, *([""] if root else [])):
            reply = await http.post(f"{prefix}/nothing", json={})
            assert (reply.status_code, reply.json()) == (404, {"detail": "Not Found"})
            reply = await http.put(f"{prefix}/step", json={})
            assert (reply.status_code, reply.json()) == (405, {"detail": "Method Not Allowed"})
            assert reply.headers["allow"] == "POST"
        reply = await http.get("/v1/nothing")
        assert (reply.status_code, reply.json()["type"]) == (404, "urn:sojourn:problem:not-found")


async def test_a_lease_that_runs_out_takes_the_id_with_it(dialects):
    clock = Clock()
    async with dialects(ServingConfig(lease_s=100, sweep_s=3600), clock) as http:
        await http.post(f"{TEXTCRAFT}/create", json={})
        for _ in range(3):
            clock.now += 60
            assert "observation" in (await post(http, f"{TEXTCRAFT}/step", {"id": 0, "action": "inventory"})).json()
        clock.now += 101
        assert http.app.state.operations.sweep() == 1
        gone = {"error": "The task with environment 0 has been deleted."}
        assert (await post(http, f"{TEXTCRAFT}/step", {"id": 0, "action": "inventory"})).json() == gone


def test_ids_of_lost_sessions_are_forgotten():
    opened = []
    seats = Seats(ServingConfig(), lambda session: session in opened[-20:])
    for _ in range(1000):
        number = seats.claim()
        opened.append(str(number))
        seats.add(Seat(number, str(number), started=True))
        assert len(seats) < 120
    assert seats.find(999).session == "999"
    with pytest.raises(Gone, match="has been deleted"):
        seats.find(3)
    with pytest.raises(NotFound, match="is not valid"):
        seats.find(1000)


async def test_a_full_server_is_429(dialects):
    async with dialects(ServingConfig(max_sessions=1)) as http:
        await http.post(f"{BABYAI}/create")
        reply = await http.post(f"{BABYAI}/create")
        assert reply.status_code == 429
        assert "retry-after" in reply.headers
        assert list(reply.json()) == ["error"]


async def test_requests_for_one_id_act_one_after_the_other(dialects):
    async with dialects() as http:
        await http.post(f"{TEXTCRAFT}/create", json={})
        body = {"id": 0, "action": "get 1 acacia logs"}
        replies = await asyncio.gather(*(http.post(f"{TEXTCRAFT}/step", json=body) for _ in range(8)))
        assert {reply.text for reply in replies} == {'{"observation":"Got 1 acacia logs","reward":0,"done":false}'}
        held = await post(http, f"{TEXTCRAFT}/step", {"id": 0, "action": "inventory"})
        assert held.json()["observation"] == "Inventory: [acacia logs] (8) "


async def test_the_session_is_one_of_the_native_api(dialects):
    async with dialects() as http:
        await http.post(f"{TEXTCRAFT}/create", json={})
        session = next(iter(http.app.state.operations.sessions))
        forked = await http.post(f"/v1/sessions/{session.id}/fork", json={"count": 1})
        child = forked.json()["sessions"][0]
        assert child["view"] == "agentgym"
        reply = await http.act(child["id"], 0, "get 1 acacia logs")
        assert reply.json()["observation"] == "Got 1 acacia logs"


async def test_tokens(dialects):
    config = ServingConfig(token=SecretStr("boss"), step_token=SecretStr("hand"))
    async with dialects(config) as http:
        assert (await http.get(f"{TEXTCRAFT}/")).status_code == 200
        assert (await http.post(f"{TEXTCRAFT}/create", json={})).status_code == 401
        basic = {"authorization": "Basic " + base64.b64encode(b"any:boss").decode()}
        assert (await http.post(f"{TEXTCRAFT}/create", json={}, headers=basic)).json()["id"] == 0
        hand = {"authorization": "Bearer hand"}
        step = {"id": 0, "action": "inventory"}
        assert (await http.post(f"{TEXTCRAFT}/step", json=step, headers=hand)).status_code == 200
        assert (await http.post(f"{TEXTCRAFT}/reset", json={"id": 0}, headers=hand)).status_code == 403
        broken = {"authorization": "Basic %%%"}
        assert (await http.post(f"{TEXTCRAFT}/create", json={}, headers=broken)).status_code == 401


async def test_the_root_path_speaks_one_dialect(dialects):
    async with dialects(root="agentgym", root_env="textcraft") as http:
        assert (await http.post("/create", json={})).json()["observation"] == OPENING
        assert (await http.post("/step", json={"id": 0, "action": "inventory"})).json()["reward"] == 0
        assert (await http.get("/health")).json() == {"status": "ok"}
        assert len((await http.get("/v1/envs")).json()["envs"]) == 2


def test_the_root_path_needs_an_environment_that_is_served_in_the_dialect(services):
    for env, served in [("sciworld", services), ("counter", [CounterService()])]:
        config = ServingConfig(dialects=DialectsConfig(root="agentgym", root_env=env))
        with pytest.raises(UsageError, match="agentgym dialect"):
            create_app(served, config)


async def test_a_goal_map_orders_the_goals(dialects, tmp_path):
    write_goals(tmp_path / "goals.json", ["chest", "acacia_planks"])
    async with dialects(goal_map=tmp_path / "goals.json") as http:
        openings = [(await post(http, f"{TEXTCRAFT}/create", {})).json()["observation"] for _ in range(3)]
        assert [text.rpartition("craft ")[2] for text in openings] == ["chest.", "acacia planks.", "chest."]


def test_goal_maps_that_are_none(services, tmp_path):
    path = tmp_path / "goals.json"
    config = ServingConfig(dialects=DialectsConfig(goal_map=path))
    with pytest.raises(UsageError, match="cannot read the goal map"):
        create_app(services, config)
    for text in ("[]", '{"goals": []}', "{"):
        path.write_text(text)
        with pytest.raises(UsageError, match="not a goal map"):
            create_app(services, config)
    write_goals(path, ["chest", "excalibur"])
    with pytest.raises(UsageError, match="index 1: no recipe makes 'excalibur'"):
        create_app(services, config)
    create_app([BabyAIService()], config)
