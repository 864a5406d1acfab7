"""The harness of the experiments: what a cell is, what is run again, what is compared, and the worlds they bring."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.algorithms.__main__ import ALGORITHMS
from benchmarks.experiments.cell import Cell, Evaluated, Result, read, write
from benchmarks.experiments.command import main
from benchmarks.experiments.comparison import Comparison
from benchmarks.experiments.page import Shown, fill, sections
from benchmarks.experiments.plan import START, Plan, read_plans
from benchmarks.experiments.queue import cells, missing, run
from benchmarks.experiments.running import run_cell
from benchmarks.experiments.tables import one_table
from benchmarks.horizon.__main__ import HORIZON
from benchmarks.horizon.starts import CLONES
from benchmarks.horizon.worlds import fog
from benchmarks.horizon.worlds.crafting import CraftingService
from benchmarks.horizon.worlds.fog import FogConfig, FogService

from sojourn.engines.tiny import build_model, build_tokenizer, save
from sojourn.envs.conformance import run as examine
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import UsageError

PLANS = read_plans(HORIZON.configs)
SEEDS = range(3)


def result(plan: Plan, arm: str, seed: int, points: list[tuple[int, float]], start: str = "weights") -> Result:
    """A made-up cell: (tokens, success) of each evaluation; a step takes 100 tokens, a CPU second 50."""
    return Result(
        env=plan.env, arm=arm, seed=seed, key=plan.key(arm), start=start, version="v", wall_s=1.0, peak_mb=1.0,
        machine={"processor": "p", "cores": 2, "load": 0.0},
        evaluations=[
            Evaluated(step=n // 100, tokens=n, cpu_s=n / 50, success=s, episodes=512, families={"a": s}, turns=1.0)
            for n, s in points
        ],
        steps={"rollout/entropy": [1.0, None, 0.5]},
    )  # fmt: skip


def made_up(plan: Plan) -> list[Result]:
    """`fixed_long` gains .2 in 1,000 tokens, `scaling` .3, `adaptive` .3 and a little noise, `fixed_short` nothing."""
    noise = [0.01, -0.01, 0.0]
    ends = {"fixed_short": 0.4, "fixed_long": 0.6, "scaling": 0.7, "adaptive": 0.71}
    found = [result(plan, START, seed, [(0, 0.4 + noise[seed])]) for seed in SEEDS]
    for arm, end in ends.items():
        found += [
            result(plan, arm, seed, [(500, (0.4 + end) / 2 + noise[seed]), (1000, end + noise[seed])]) for seed in SEEDS
        ]
    return found


def test_plans_are_whole_configurations_and_differ_in_the_horizon_alone():
    assert sorted(PLANS) == ["babyai", "crafting", "fog"]
    for plan in PLANS.values():
        dumps = []
        for arm in plan.arms:
            dump = plan.config(arm, 0, "sojourn-tiny-weak").dump()
            assert dump.pop("horizon")["type"] == plan.arms[arm]["horizon"]["type"]
            dumps.append({**dump, "name": ""})
        assert list(plan.arms) == ["fixed_short", "fixed_long", "scaling", "adaptive"]
        assert all(dump == dumps[0] for dump in dumps)
        constants = plan.config("adaptive", 0, "sojourn-tiny-weak").horizon.model_dump(exclude_defaults=True)
        assert constants.keys() <= {"type", "start", "max_turns"}


def test_algorithms_share_everything_but_what_their_arms_say():
    [plan] = read_plans(ALGORITHMS.configs).values()
    assert sorted(plan.arms) == ["gigpo", "grpo", "grpo_default", "ppo", "reinforce_pp", "rloo"]
    for arm in plan.arms:
        assert plan.config(arm, 3, "sojourn-tiny-weak").algorithm.name == arm.removesuffix("_default")


def test_a_key_changes_with_its_arm_and_what_all_share_and_not_with_other_arms():
    plan = PLANS["fog"]
    other = plan.model_copy(update={"arms": {**plan.arms, "scaling": {"horizon": {"type": "fixed", "turns": 3}}}})
    assert other.key("scaling") != plan.key("scaling")
    assert other.key("adaptive") == plan.key("adaptive")
    longer = plan.model_copy(update={"tokens": plan.tokens + 1})
    assert longer.key("adaptive") != plan.key("adaptive")
    assert longer.key(START) == plan.key(START), "a start trains nothing"
    assert plan.model_copy(update={"start": "x"}).key(START) != plan.key(START)


def test_a_cell_has_a_name_and_a_file():
    cell = Cell("fog", "adaptive", 3)
    assert Cell.parse(str(cell)) == cell
    assert cell.path(Path("r")) == Path("r/fog/adaptive-3.json")
    for wrong in ("fog", "fog/adaptive", "fog/adaptive/x", "fog//1"):
        with pytest.raises(UsageError, match="not a cell"):
            Cell.parse(wrong)


def test_cells_come_seed_by_seed_and_can_be_chosen():
    every = cells(PLANS, [0, 1])
    assert len(every) == 2 * 3 * 5
    assert {cell.seed for cell in every[:15]} == {0}
    assert [str(c) for c in cells(PLANS, [1], ["fog/adaptive", "babyai/start/1"])] == [
        "babyai/start/1",
        "fog/adaptive/1",
    ]
    with pytest.raises(UsageError, match="no cell is called fo"):
        cells(PLANS, [0], ["fo"])


def test_what_is_finished_is_not_run_again(tmp_path):
    plan, wanted = PLANS["fog"], cells(PLANS, [0], ["fog"])
    assert list(missing(PLANS, wanted, tmp_path)) == wanted
    kept = result(plan, "adaptive", 0, [(10, 0.5)])
    assert read(kept.cell, tmp_path) is None
    write(kept, tmp_path)
    assert read(kept.cell, tmp_path) == kept
    assert [p.name for p in (tmp_path / "fog").iterdir()] == ["adaptive-0.json"], "nothing half written is left"
    assert list(missing(PLANS, wanted, tmp_path)) == [cell for cell in wanted if cell != kept.cell]
    write(kept.model_copy(update={"key": "other"}), tmp_path)
    with pytest.raises(UsageError, match="another configuration"):
        list(missing(PLANS, wanted, tmp_path))
    kept.cell.path(tmp_path).write_text("{")
    with pytest.raises(UsageError, match="no result of a cell"):
        list(missing(PLANS, wanted, tmp_path))


def test_the_queue_runs_all_tells_failures_and_stops_in_time(tmp_path, capsys):
    todo = cells(PLANS, [0], ["fog"])
    script = "import sys; print('said', sys.argv[1]); sys.exit(sys.argv[1] == 'fog/scaling/0')"

    def command(cell: Cell) -> list[str]:
        return [sys.executable, "-c", script, str(cell)]

    outcome = run(todo, command, at_once=2, hours=None, logs=tmp_path)
    assert outcome.failed == [Cell("fog", "scaling", 0)]
    assert sorted(outcome.finished) == sorted(set(todo) - {Cell("fog", "scaling", 0)})
    assert not outcome.left
    told = capsys.readouterr()
    assert "said fog/adaptive/0" in told.out
    assert "fog-scaling-0.log" in told.err
    outcome = run(todo, command, at_once=2, hours=-1, logs=tmp_path)
    assert outcome.left == todo


def test_the_command_says_what_is_missing_and_what_is_wrong(tmp_path, capsys):
    arguments = ["--results", str(tmp_path), "--seeds", "0", "--only", "fog"]
    assert main(HORIZON, "about", [*arguments, "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(cell) for cell in cells(PLANS, [0], ["fog"])]
    assert main(HORIZON, "about", ["--only", "nowhere"]) == 2
    assert main(HORIZON, "about", ["--cell", "nowhere/adaptive/0"]) == 2


def test_success_is_compared_where_all_have_spent_the_same():
    plan = PLANS["fog"]
    found = Comparison([*made_up(plan)[:-1], result(plan, "adaptive", 2, [(500, 0.6), (800, 0.66)])])
    assert found.reach("tokens") == 800, "where the cell that went least far ends"
    assert found.reach("step") == 8
    assert found.level("fixed_long", "tokens") == pytest.approx([0.57, 0.55, 0.56])
    assert found.difference("scaling", "fixed_long", "tokens").gain.gain == pytest.approx(0.08)


def test_verdicts_follow_the_intervals():
    plan = PLANS["fog"]
    found = Comparison(made_up(plan))
    gained = found.difference("scaling", "fixed_long", "tokens")
    assert (gained.seeds, gained.better, gained.non_inferior) == (3, "yes", "yes")
    lost = found.difference("fixed_long", "scaling", "cpu_s")
    assert (lost.better, lost.non_inferior) == ("no", "no")
    noisy = [result(plan, START, seed, [(0, 0.4)]) for seed in SEEDS]
    for seed, (one, other) in enumerate([(0.6, 0.5), (0.4, 0.5), (0.5, 0.55)]):
        noisy += [result(plan, "adaptive", seed, [(9, one)]), result(plan, "scaling", seed, [(9, other)])]
    unsure = Comparison(noisy).difference("adaptive", "scaling", "tokens")
    assert (unsure.better, unsure.non_inferior) == ("unresolved", "unresolved")
    alone = Comparison(noisy[:1] + noisy[3:5]).difference("adaptive", "scaling", "tokens")
    assert (alone.gain, alone.non_inferior) == (None, "unresolved")


def test_pairs_are_of_the_seeds_that_both_have():
    plan = PLANS["fog"]
    every = [r for r in made_up(plan) if (r.arm, r.seed) != ("scaling", 1)]
    assert Comparison(every).difference("scaling", "fixed_long", "tokens").seeds == 2


def test_other_weights_are_never_compared():
    plan = PLANS["fog"]
    with pytest.raises(UsageError, match="started from different weights"):
        Comparison([*made_up(plan), result(plan, "adaptive", 3, [(9, 0.5)], start="others")])


def test_the_page_is_filled_from_what_is_there(tmp_path):
    plan, results = PLANS["fog"], tmp_path / "results"
    shown = Shown("horizon", {"fog": plan}, results, range(3), [("adaptive", "scaling"), ("scaling", "fixed_long")])
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin horizon -->\nold\n<!-- end horizon -->\nafter\n")
    fill(page, {"horizon": sections(shown, tmp_path)})
    assert "No cell has been run yet" in page.read_text()
    for one in made_up(plan):
        write(one, results)
    fill(page, {"horizon": sections(shown, tmp_path)})
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("<!-- end horizon -->\nafter\n")
    assert "old" not in text
    assert "`scaling` is above `fixed_long`, +0.100" in text
    assert "All 12 cells are done." in text
    assert "Paired differences" in text
    assert "`fixed_short` has not resolvably moved: +0.000" in text
    assert "`scaling` ends above the start: +0.300" in text
    assert (tmp_path / "horizon-fog.png").read_bytes().startswith(b"\x89PNG")
    table = one_table({"fog": Comparison(made_up(plan))}, {"fog": plan}, {"scaling": "ScalingInter"})
    assert "| Doors and fog | 0.400 ± 0.025 | 0.700 ± 0.025 | 3 |" in table
    with pytest.raises(UsageError, match="no marks for nothing"):
        fill(page, {"nothing": ""})


@pytest.mark.parametrize(
    ("factory", "name"),
    [
        (CraftingService, "crafting"),
        (FogService, "fog"),
        (lambda: FogService(FogConfig(solvable=True)), "fog"),
    ],
    ids=["crafting", "fog", "fog-solvable"],
)
async def test_the_worlds_conform(factory, name):
    found = await examine(factory, name=name, episodes=8, hostile=100, memory_episodes=20)
    assert [r for r in found if not r.passed] == []


async def test_a_cell_trains_until_its_tokens_are_spent_and_is_evaluated_on_the_way(tmp_path):
    tokenizer = build_tokenizer(CLONES["fog"].pieces())
    save(build_model(len(tokenizer), hidden=32, layers=2, heads=4, inner=64), tokenizer, tmp_path / "model")
    plan = PLANS["fog"]
    small = {"group_size": 4, "groups_per_step": 4, "concurrency": 16}
    run = {**plan.run, "rollout": {**plan.run["rollout"], **small}}
    plan = plan.model_copy(update={"run": run, "tokens": 6_000, "evaluations": 2, "episodes": 8})
    found = await run_cell(plan, Cell("fog", "fixed_short", 100), str(tmp_path / "model"))
    steps = len(found.steps["tokens"])
    assert {len(column) for column in found.steps.values()} == {steps}
    assert found.steps["tokens"][-2] < 6_000 <= found.steps["tokens"][-1]
    assert set(found.steps["horizon/max_turns"]) == {4}
    assert [e.episodes for e in found.evaluations] == [8, 8]
    assert 3_000 <= found.evaluations[0].tokens < found.evaluations[1].tokens == found.steps["tokens"][-1]
    assert 0 < found.evaluations[0].cpu_s < found.evaluations[1].cpu_s <= found.steps["cpu_s"][-1]
    begun = await run_cell(plan, Cell("fog", START, 100), str(tmp_path / "model"))
    assert (len(begun.evaluations), begun.evaluations[0].tokens, begun.start) == (1, 0, found.start)


async def test_a_wrong_door_leads_into_a_fog_without_end_or_exit():
    service = FogService(FogConfig(solvable=True))
    world, task = service.create(), TaskRef("fog", "doors4/17")
    await world.reset(task)
    right = (await world.solve()).actions
    assert len(right) == 4
    result = await world.step(right[0])
    assert result.observation == f"sign {fog.signs(task)[1]}"
    wrong = next(action for action in fog.ACTIONS if action != right[1])
    for action in [wrong, *right, *right]:
        result = await world.step(action)
        assert (result.observation, result.reward, result.done) == ("fog", 0.0, False)


async def test_the_right_doors_lead_out_and_signs_hang_by_their_stretch():
    service = FogService(FogConfig(solvable=True))
    world = service.create()
    for family, doors in fog.DOORS.items():
        task = TaskRef("fog", f"{family}/3")
        await world.reset(task)
        results = [await world.step(action) for action in (await world.solve()).actions]
        assert [r.reward for r in results] == [0.0] * (doors - 1) + [1.0]
        assert results[-1].terminated
        sets = ["abcd".index(sign[0]) for sign in fog.signs(task)]
        assert sets == [0, 0, 1, 1, *[2] * 4, *[3] * 8][:doors]


async def test_crafting_starts_with_what_the_task_says_and_never_with_the_goal():
    service = CraftingService()
    world = service.create()
    for task in service.tasks().select("test")[:60]:
        opening = await world.reset(task)
        goal = task.key.partition("/")[0]
        assert f"goal: {goal}\ninventory:" in opening.text
        assert goal not in opening.info["view"]["inventory"]
        assert 1 <= len((await world.solve()).actions) <= 13
