"""The command line of an experiment: run what is missing, run one cell, say what is there."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.experiments.cell import Cell, write
from benchmarks.experiments.plan import Plan, read_plans
from benchmarks.experiments.queue import cells, missing, run

from sojourn.protocol.errors import SojournError, UsageError


class Experiment(NamedTuple):
    """Where an experiment lies."""

    module: str
    """`python -m MODULE` runs it."""
    folder: Path
    """Holds `configs/` and `results/`."""
    seeds: range
    """Its own, on which nothing was chosen; calibration used others, from 100 on."""
    start: Callable[[str], Awaitable[str]]
    """What a plan's `start` is to be loaded as; made when it is not there yet."""

    @property
    def configs(self) -> Path:
        return self.folder / "configs"

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def command(self, cell: Cell, results: Path) -> list[str]:
        """What runs one cell in a process of its own."""
        return [sys.executable, "-m", self.module, "--cell", str(cell), "--results", str(results)]


def main(experiment: Experiment, about: str, arguments: Sequence[str] | None = None) -> int:
    """Run an experiment's command; the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {experiment.module}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="CELL", help="ENV, ENV/ARM or ENV/ARM/SEED")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(experiment.seeds), metavar="N")
    parser.add_argument("--hours", type=float, help="begin no cell after this many hours")
    parser.add_argument("--at-once", type=int, default=2, help="cells side by side, one thread each (2)")
    parser.add_argument("--results", type=Path, default=experiment.results, help="folder of the results")
    parser.add_argument("--list", action="store_true", help="say which cells have no result, and run none")
    parser.add_argument("--cell", help="run this one here and now, and write its result")
    options = parser.parse_args(arguments)
    try:
        plans = read_plans(experiment.configs)
        if options.cell:
            return asyncio.run(_run_one(experiment, plans, Cell.parse(options.cell), options.results))
        todo = list(missing(plans, cells(plans, options.seeds, options.only), options.results))
        if options.list:
            print("\n".join(map(str, todo)) or "every cell has its result")
            return 0
        for name in {plans[cell.env].start for cell in todo}:  # here, so that cells side by side need not both make it
            asyncio.run(experiment.start(name))
        outcome = run(
            todo,
            lambda cell: experiment.command(cell, options.results),
            at_once=options.at_once,
            hours=options.hours,
            logs=Path("build") / "cells" / experiment.folder.name,
        )
    except SojournError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(outcome.finished)} done, {len(outcome.failed)} failed, {len(outcome.left)} not begun")
    return 1 if outcome.failed else 0


async def _run_one(experiment: Experiment, plans: Mapping[str, Plan], cell: Cell, folder: Path) -> int:
    from benchmarks.experiments.running import run_cell  # torch: only where something is trained

    if cell.env not in plans:
        raise UsageError(f"no environment {cell.env!r} (known: {', '.join(plans)})")
    plan = plans[cell.env]
    result = await run_cell(plan, cell, await experiment.start(plan.start))
    write(result, folder)
    last = result.evaluations[-1]
    print(
        f"success {last.success:.3f} after {last.step} steps, {last.tokens} tokens, {last.cpu_s:.0f} CPU-s of training"
    )
    return 0
