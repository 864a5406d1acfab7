"""Rebuilds the tables, readings and pictures of `docs/results.md` from the results of cells that are there.

make results
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.algorithms.__main__ import ALGORITHMS
from benchmarks.crafting_rl.__main__ import CRAFTING
from benchmarks.experiments.comparison import by_environment
from benchmarks.experiments.page import Shown, fill, sections
from benchmarks.experiments.plan import read_plans
from benchmarks.experiments.tables import one_table
from benchmarks.horizon.__main__ import HORIZON

from sojourn.protocol.errors import SojournError

PAGE = Path("docs/results.md")
ASSETS = Path("docs/assets")
SCHEDULES = {"fixed_long": "fixed horizon", "scaling": "ScalingInter", "adaptive": "Adaptive"}
HORIZON_PAIRS = (
    ("scaling", "fixed_long"),
    ("adaptive", "fixed_long"),
    ("adaptive", "scaling"),
    ("fixed_long", "fixed_short"),
)
ALGORITHM_PAIRS = tuple((name, "grpo") for name in ("reinforce_pp", "ppo", "rloo", "gigpo"))
CRAFTING_PAIRS = (("gigpo_slow", "gigpo"),)


def main() -> int:
    """Fill the page; the exit code."""
    try:
        horizon = Shown("horizon", read_plans(HORIZON.configs), HORIZON.results, HORIZON.seeds, HORIZON_PAIRS)
        algorithms = Shown(
            "algorithms",
            read_plans(ALGORITHMS.configs),
            ALGORITHMS.results,
            ALGORITHMS.seeds,
            ALGORITHM_PAIRS,
            costs=True,
        )
        crafting = Shown(
            "crafting", read_plans(CRAFTING.configs), CRAFTING.results, CRAFTING.seeds, CRAFTING_PAIRS, costs=True
        )
        parts = {shown.name: sections(shown, ASSETS) for shown in (horizon, algorithms, crafting)}
        parts["table"] = one_table(by_environment(horizon.load()), horizon.plans, SCHEDULES)
        fill(PAGE, parts)
    except SojournError as error:
        print(error, file=sys.stderr)
        return 2
    counts = f"{len(horizon.load())} results of schedules, {len(algorithms.load())} of algorithms"
    print(f"{PAGE}: {counts}, {len(crafting.load())} of TextCraft")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
