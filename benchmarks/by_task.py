"""Evaluations of the same episodes side by side, by task, as a Markdown table: success, score, and what was gained.

    python -m benchmarks.by_task untrained=a.json SFT=b.json GRPO=c.json

Each file is what `sojourn eval --out` or a run's `evaluations/` holds. Several files of one name, with commas between,
are runs from several seeds: shown is their mean. The gain is of the last over the one before it, paired by episode.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from sojourn.evaluation.report import EpisodeResult, Evaluation, paired_interval
from sojourn.protocol.errors import UsageError

Value = Callable[[EpisodeResult], float]
Episodes = Mapping[str, Sequence[EpisodeResult]]
"""The results of each run, by the episode's key."""
VALUES: dict[str, Value] = {"success": lambda r: float(r.success), "score": lambda r: r.score}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.by_task", description=__doc__.splitlines()[0])
    parser.add_argument("evaluations", nargs="+", metavar="NAME=FILE[,FILE]")
    pairs = [pair.partition("=") for pair in parser.parse_args().evaluations]
    try:
        found = {name: [read(Path(path)) for path in paths.split(",")] for name, _, paths in pairs}
        print("\n\n".join(table(found, what) for what in VALUES))
    except (UsageError, OSError, ValidationError) as error:
        parser.error(str(error))


def read(path: Path) -> Evaluation:
    """An evaluation with its episodes; raises `UsageError` for a file that holds none."""
    evaluation = Evaluation.model_validate_json(path.read_text(encoding="utf-8"))
    if not evaluation.results:
        raise UsageError(f"{path} has no episodes: write it with sojourn eval --out")
    return evaluation


def table(evaluations: Mapping[str, Sequence[Evaluation]], what: str) -> str:
    """One row a task and one of all; `what` is a key of `VALUES`. What any lost to infrastructure is left out of all.

    Raises:
        UsageError: the evaluations are not of the same episodes.
    """
    every = [found for seeds in evaluations.values() for found in seeds]
    if len({frozenset(r.key for r in found.results) for found in every}) > 1:
        raise UsageError("not the same episodes: evaluate all with one split, families, number and seed")
    lost = {r.key for found in every for r in found.results if r.error}
    runs = {name: _episodes(seeds, lost) for name, seeds in evaluations.items()}
    first = next(iter(runs.values()))
    gained = ["gain", "95 % interval"] if len(runs) > 1 else []
    rows = [[what, "episodes", *runs, *gained]]
    rows.append(["---"] * len(rows[0]))
    families = sorted({results[0].family for results in first.values()})
    rows += [_row(family, runs, what) for family in [*families, "all"]]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _episodes(seeds: Sequence[Evaluation], lost: Collection[str]) -> Episodes:
    """By key, one result of each seed."""
    by_key = [{r.key: r for r in found.results} for found in seeds]
    return {key: [results[key] for results in by_key] for key in by_key[0] if key not in lost}


def _row(family: str, runs: Mapping[str, Episodes], what: str) -> list[str]:
    """Of one family, or of `all`."""
    values = [
        [_mean([VALUES[what](r) for r in found]) for found in run.values() if family in ("all", found[0].family)]
        for run in runs.values()
    ]
    cells = [family, str(len(values[0])), *(f"{_mean(column):.3f}" for column in values)]
    if len(values) > 1:
        gain = paired_interval([after - before for before, after in zip(*values[-2:], strict=True)])
        cells += [f"{gain.gain:+.3f}", f"{gain.low:+.3f} to {gain.high:+.3f}"]
    return cells


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


if __name__ == "__main__":
    main()
