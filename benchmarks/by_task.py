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
    try:
        found = {name: [read(path) for path in paths] for name, paths in named(parser.parse_args().evaluations).items()}
        print("\n\n".join(table(found, what) for what in VALUES))
    except (UsageError, OSError) as error:
        parser.error(str(error))


def named(pairs: Sequence[str]) -> dict[str, list[Path]]:
    """`NAME=FILE[,FILE]` taken apart; raises `UsageError` where it is not that, or a name comes twice."""
    found: dict[str, list[Path]] = {}
    for name, _, paths in (pair.partition("=") for pair in pairs):
        if not name or not paths:
            raise UsageError(f"{name or paths!r}: expected NAME=FILE")
        if name in found:
            raise UsageError(f"{name} comes twice: give its files with commas between")
        found[name] = [Path(path) for path in paths.split(",")]
    return found


def read(path: Path) -> Evaluation:
    """An evaluation with its episodes; raises `UsageError` for a file that holds none."""
    try:
        evaluation = Evaluation.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UsageError(f"{path} is no evaluation: write it with sojourn eval --out") from error
    if not evaluation.results:
        raise UsageError(f"{path} has no episodes: write it with sojourn eval --out")
    return evaluation


def table(evaluations: Mapping[str, Sequence[Evaluation]], what: str) -> str:
    """One row a task and one of all; `what` is a key of `VALUES`. What any lost to infrastructure is left out of all.

    Raises:
        UsageError: the evaluations are not of the same episodes and horizon, or all were lost by some.
    """
    every = [found for seeds in evaluations.values() for found in seeds]
    if len({frozenset(r.key for r in found.results) for found in every}) > 1:
        raise UsageError("not the same episodes: evaluate all with one split, families, number and seed")
    if len({tuple(sorted(found.horizon.items())) for found in every}) > 1:
        raise UsageError("not the same horizon: evaluate all with one --horizon")
    lost = {r.key for found in every for r in found.results if r.error}
    runs = {name: _episodes(seeds, lost) for name, seeds in evaluations.items()}
    first = next(iter(runs.values()))
    if not first:
        raise UsageError("no episode was finished in all evaluations")
    gained = ["gain", "95 % interval"] if len(runs) > 1 else []
    rows = [[what, "episodes", *runs, *gained]]
    rows.append(["---"] * len(rows[0]))
    families = sorted({(results[0].env, results[0].family) for results in first.values()})
    several = len({env for env, _ in families}) > 1
    rows += [_row(f"{env}/{family}" if several else family, runs, what, (env, family)) for env, family in families]
    rows.append(_row("all", runs, what))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _episodes(seeds: Sequence[Evaluation], lost: Collection[str]) -> Episodes:
    """By key, one result of each seed."""
    by_key = [{r.key: r for r in found.results} for found in seeds]
    return {key: [results[key] for results in by_key] for key in by_key[0] if key not in lost}


def _row(name: str, runs: Mapping[str, Episodes], what: str, only: tuple[str, str] | None = None) -> list[str]:
    """Of one environment's family, or of everything."""
    values = [
        [_mean([VALUES[what](r) for r in found]) for found in run.values() if only in (None, _family(found[0]))]
        for run in runs.values()
    ]
    cells = [name, str(len(values[0])), *(f"{_mean(column):.3f}" for column in values)]
    if len(values) > 1:
        cells += _gained([after - before for before, after in zip(*values[-2:], strict=True)])
    return cells


def _family(result: EpisodeResult) -> tuple[str, str]:
    return result.env, result.family


def _gained(differences: Sequence[float]) -> list[str]:
    """The mean and its interval, which one episode does not have."""
    if len(differences) < 2:
        return [f"{_mean(differences):+.3f}", "-"]
    gain = paired_interval(differences)
    return [f"{gain.gain:+.3f}", f"{gain.low:+.3f} to {gain.high:+.3f}"]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


if __name__ == "__main__":
    main()
