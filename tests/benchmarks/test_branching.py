"""The comparison of trees with plain groups: what differs between its arms, and what its tables say."""

from __future__ import annotations

import json

from benchmarks.branching import BRANCHING, PAIRS, episodes, fill_page, quick, run
from benchmarks.experiments.comparison import Comparison
from benchmarks.experiments.plan import START, read_plans

from benchmarks import branching
from tests.benchmarks.test_horizon import result

PLANS = read_plans(BRANCHING.configs)


def test_arms_differ_in_the_tree_and_the_estimator_alone():
    assert sorted(PLANS) == ["babyai", "textcraft"]
    for plan in PLANS.values():
        assert plan.counted == "engine"
        assert {arm for pair in PAIRS for arm in pair} == set(plan.arms)
        dumps = {arm: plan.config(arm, 0, plan.start).dump() for arm in plan.arms}
        for dump in dumps.values():
            assert dump["rollout"]["group_size"] == 8
            for part in (dump["rollout"], dump["algorithm"], dump):
                for key in ("branch", "name", "intra", "inter", "shared", "std_eps", "preset"):
                    part.pop(key, None)
        assert len({json.dumps(dump, sort_keys=True) for dump in dumps.values()}) == 1


def test_tokens_of_episodes_leave_a_plans_key_as_it_was():
    """Results of other experiments must not be called another configuration's."""
    plan = PLANS["babyai"]
    by_episode = plan.model_copy(update={"counted": "episode"})
    assert by_episode.key("plain") != plan.key("plain")
    assert "counted" not in json.dumps(plan.model_dump(include={"env", "server", "start", "episodes", "horizon"}))
    assert by_episode.key(START) == plan.key(START)


async def test_a_tree_gives_more_episodes_for_the_same_tokens():
    plain, tree = [await quick(PLANS["babyai"], arm, 2) for arm in ("plain", "entropy")]
    assert plain["rollout/episodes"] == tree["rollout/episodes"] == 16
    assert tree["rollout/branches"] == 12
    assert tree["rollout/episodes_per_engine_token"] > plain["rollout/episodes_per_engine_token"]
    assert tree["rollout/reused_tokens"] > tree["rollout/shared_tokens"] > 0


def cells(plan, arm, engine_tokens, success):
    found = []
    for seed in BRANCHING.seeds:
        cell = result(plan, arm, seed, [(1000, success + 0.01 * seed)])
        steps = {"rollout/episodes": [100.0, 100.0], "rollout/engine_tokens": [engine_tokens / 2] * 2}
        steps |= {name: [1.0, 2.0] for name in ("rollout_s", "update_s", "cpu_s")}
        found.append(cell.model_copy(update={"steps": steps}))
    return found


def test_the_page_says_what_the_cells_say(tmp_path, monkeypatch, capsys):
    plan = PLANS["babyai"]
    played = [
        *cells(plan, START, 1000, 0.4),
        *cells(plan, "plain", 1000, 0.5),
        *cells(plan, "random", 500, 0.6),
        *cells(plan, "entropy", 400, 0.5),
    ]
    found = Comparison(played)
    table = episodes({"babyai": plan}, {"babyai": found})
    assert "plain | 3 | 200.00 ± 0.00 | 1.00" in table
    assert "random | 3 | 400.00 ± 0.00 | 2.00" in table
    assert "entropy_grpo | 0 | - | -" in table
    page = tmp_path / "branching.md"
    page.write_text(branching.PAGE.read_text())
    monkeypatch.setattr(branching, "PAGE", page)
    monkeypatch.setattr(branching, "ASSETS", tmp_path)
    monkeypatch.setattr(branching.Shown, "load", lambda self: played)
    assert fill_page(PLANS)["babyai"]["random"]["episodes_per_1000"] == [400.0] * 3
    assert "`random` is above `plain`" in page.read_text()
    assert "](../assets/branching-babyai.png)" in page.read_text()
    assert run(["--page", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["babyai"]["entropy"]["episodes_per_1000"] == [500.0] * 3


def test_the_rest_of_the_command_is_the_experiments(tmp_path, capsys):
    assert run(["--list", "--only", "textcraft/entropy/11", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == "textcraft/entropy/11"
