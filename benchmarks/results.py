"""Rebuilds the tables, readings and pictures of `docs/results.md` from the results of cells that are there.

make results
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.algorithms.__main__ import ALGORITHMS
from benchmarks.crafting_rl.__main__ import CRAFTING
from benchmarks.experiments.command import Experiment
from benchmarks.experiments.comparison import by_environment
from benchmarks.experiments.page import Shown, fill, sections
from benchmarks.experiments.plan import read_plans
from benchmarks.experiments.tables import one_table
from benchmarks.horizon.__main__ import HORIZON
from benchmarks.sciworld_rl.__main__ import SCIWORLD

from sojourn.protocol.errors import SojournError

PAGE = Path("docs/results.md")
ASSETS = Path("docs/assets")
SCHEDULES = {"fixed_long": "fixed horizon", "scaling": "ScalingInter", "adaptive": "Adaptive"}
SCHEDULE_PAIRS = (("scaling", "fixed_long"), ("adaptive", "fixed_long"), ("adaptive", "scaling"))
HORIZON_PAIRS = (*SCHEDULE_PAIRS, ("fixed_long", "fixed_short"))
ALGORITHM_PAIRS = tuple((name, "grpo") for name in ("grpo_default", "reinforce_pp", "ppo", "rloo", "gigpo"))
CRAFTING_PAIRS = (("gigpo_slow", "gigpo"),)


def main() -> int:
    """Fill the page; the exit code."""
    try:
        horizon = _shown("horizon", HORIZON, HORIZON_PAIRS)
        sciworld = _shown("sciworld", SCIWORLD, SCHEDULE_PAIRS, costs=True)
        algorithms = _shown("algorithms", ALGORITHMS, ALGORITHM_PAIRS, costs=True)
        crafting = _shown("crafting", CRAFTING, CRAFTING_PAIRS, costs=True)
        parts = {shown.name: sections(shown, ASSETS) for shown in (horizon, algorithms, crafting, sciworld)}
        scheduled = by_environment([*horizon.load(), *sciworld.load()])
        parts["table"] = one_table(scheduled, {**horizon.plans, **sciworld.plans}, SCHEDULES)
        fill(PAGE, parts)
    except SojournError as error:
        print(error, file=sys.stderr)
        return 2
    counts = f"{len(horizon.load())} results of schedules, {len(algorithms.load())} of algorithms"
    print(f"{PAGE}: {counts}, {len(crafting.load())} of TextCraft, {len(sciworld.load())} of SciWorld")
    return 0


def _shown(name: str, experiment: Experiment, pairs: Sequence[tuple[str, str]], *, costs: bool = False) -> Shown:
    return Shown(name, read_plans(experiment.configs), experiment.results, experiment.seeds, pairs, costs)


if __name__ == "__main__":
    raise SystemExit(main())
