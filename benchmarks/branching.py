"""Plain groups against groups that are trees, at equal engine tokens: episodes for them, and held-out success.

    python -m benchmarks.branching              every cell that has no result yet, a stopped one goes on where it was
    python -m benchmarks.branching --quick      episodes per engine token alone, of the start policies; trains nothing
    python -m benchmarks.branching --page       docs/benchmarks/branching.md from the results that are there

--json ends either of the last two with one line of JSON. Cells, seeds and hours are chosen as in `benchmarks.horizon`;
`trees/configs/` says what is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments.command import Experiment, main
from benchmarks.experiments.comparison import Comparison, by_environment
from benchmarks.experiments.page import Shown, fill, sections
from benchmarks.experiments.plan import Plan, read_plans
from benchmarks.experiments.tables import mean, table

from sojourn.protocol.errors import SojournError

PAGE, ASSETS = Path("docs/benchmarks/branching.md"), Path("docs/assets")
PAIRS = (("random", "plain"), ("entropy", "plain"), ("entropy_grpo", "plain"), ("entropy", "random"))
QUICK_SEED = 100
"""Not one of the experiment's own."""


async def shipped(name: str) -> str:
    """The starts come with the package."""
    return name


BRANCHING = Experiment("benchmarks.branching", Path(__file__).parent / "trees", seeds=range(10, 13), start=shipped)


async def quick(plan: Plan, arm: str, groups: int) -> dict[str, float]:
    """What one collection of an arm costs, under the policy that training starts from."""
    import torch

    from sojourn.client.session import EnvClient
    from sojourn.serving.local import LocalServer
    from sojourn.trainer.loop import Trainer
    from sojourn.trainer.statistics import collection_metrics

    torch.set_num_threads(1)
    config = plan.config(arm, QUICK_SEED, plan.start)
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update={"groups_per_step": groups})})
    with tempfile.TemporaryDirectory() as folder:
        async with LocalServer([plan.server]) as url, EnvClient(url) as client:
            trainer = Trainer(config, client, run_dir=Path(folder) / "run", resume=False, observer=_Silent())
            try:
                await trainer.start()
                collection = await trainer.collector.collect(await trainer.plan(0))
            finally:
                await trainer.close()
    return collection_metrics(collection, config.rewards())


class _Silent:
    """An observer of nothing."""

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None: ...

    def on_eval(self, step: int, metrics: dict[str, float]) -> None: ...

    def on_note(self, text: str) -> None: ...


def run_quick(plans: Mapping[str, Plan], groups: int) -> dict[str, dict[str, dict[str, float]]]:
    """Environment, arm, numbers. Arms that differ in the algorithm alone collect the same: one of them is played."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for env, plan in plans.items():
        distinct = {json.dumps(given.get("rollout"), sort_keys=True): arm for arm, given in reversed(plan.arms.items())}
        for arm in (arm for arm in plan.arms if arm in distinct.values()):
            said = asyncio.run(quick(plan, arm, groups))
            found.setdefault(env, {})[arm] = {
                "episodes": said["rollout/episodes"],
                "engine_tokens": said["rollout/engine_tokens"],
                "reused_tokens": said["rollout/reused_tokens"],
                "episodes_per_1000": 1000 * said["rollout/episodes_per_engine_token"],
                "sampled_tokens": said["rollout/tokens"],
                "shared_tokens": said.get("rollout/shared_tokens", 0.0),
                "groups_with_signal": said["rollout/groups_with_signal"],
                "success": said["success_rate"],
                "seconds": said["time/rollout"],
            }
    return found


def show_quick(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Markdown."""
    head = [
        "",
        "",
        "episodes",
        "engine tokens",
        "taken over",
        "episodes per 1,000",
        "against plain",
        "with signal",
        "s",
    ]
    rows = [
        [
            env,
            arm,
            f"{said['episodes']:.0f}",
            f"{said['engine_tokens']:,.0f}",
            f"{said['reused_tokens']:,.0f}",
            f"{said['episodes_per_1000']:.2f}",
            f"{said['episodes_per_1000'] / arms['plain']['episodes_per_1000']:.2f}",
            f"{said['groups_with_signal']:.2f}",
            f"{said['seconds']:.1f}",
        ]
        for env, arms in found.items()
        for arm, said in arms.items()
    ]
    return table(head, rows)


def episodes(plans: Mapping[str, Plan], found: Mapping[str, Comparison]) -> str:
    """Episodes per 1,000 engine tokens over whole cells, mean over seeds."""
    rows = []
    for env, plan in plans.items():
        by_arm = {arm: _rates(found.get(env, Comparison([])), arm) for arm in plan.arms}
        plain = by_arm["plain"]
        for arm, rates in by_arm.items():
            ratio = f"{sum(rates) / len(rates) / (sum(plain) / len(plain)):.2f}" if rates and plain else "-"
            rows.append([plan.title, arm, str(len(rates)), mean(rates, 2), ratio])
    return table(["", "", "seeds", "episodes per 1,000 engine tokens", "against plain"], rows)


def _rates(found: Comparison, arm: str) -> list[float]:
    return [
        1000 * sum(n or 0 for n in r.steps["rollout/episodes"]) / sum(n or 0 for n in r.steps["rollout/engine_tokens"])
        for r in found.arms.get(arm, {}).values()
    ]


def fill_page(plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Write the page; what it says in numbers."""
    shown = Shown("branching", plans, BRANCHING.results, BRANCHING.seeds, PAIRS, costs=True)
    found = by_environment(shown.load())
    text = sections(shown, ASSETS).replace("](assets/", "](../assets/")
    fill(PAGE, {"episodes": episodes(plans, found), "branching": text})
    return {
        env: {
            arm: {"episodes_per_1000": _rates(cells, arm), "success_at_equal_tokens": cells.level(arm, "tokens")}
            for arm in plans[env].arms
        }
        for env, cells in found.items()
    }


def run(arguments: Sequence[str] | None = None) -> int:
    """The command; the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--groups", type=int, default=8)
    options, rest = parser.parse_known_args(arguments)
    if not (options.quick or options.page):
        return main(BRANCHING, __doc__ or "", rest)
    try:
        plans = read_plans(BRANCHING.configs)
        said = run_quick(plans, options.groups) if options.quick else fill_page(plans)
    except SojournError as error:
        print(error, file=sys.stderr)
        return 2
    print(show_quick(said) if options.quick else f"{PAGE}: {sum(map(len, said.values()))} arms with results")
    if options.json:
        print(json.dumps(said))
    return 0


if __name__ == "__main__":
    raise SystemExit(run())
