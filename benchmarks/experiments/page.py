"""Puts tables, readings and pictures into `docs/results.md`, between the marks that the page has for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.experiments import tables
from benchmarks.experiments.cell import Result, read
from benchmarks.experiments.comparison import Comparison, by_environment
from benchmarks.experiments.figures import draw
from benchmarks.experiments.plan import Plan
from benchmarks.experiments.queue import cells
from benchmarks.experiments.reading import read as reading

from sojourn.files import write_whole
from sojourn.protocol.errors import UsageError


@dataclass(frozen=True, slots=True)
class Shown:
    """An experiment as the page shows it."""

    name: str
    """Of its pictures and marks."""
    plans: Mapping[str, Plan]
    results: Path
    seeds: range
    pairs: Sequence[tuple[str, str]]
    """Arms that are compared, first less second."""
    costs: bool = False
    """Also show the time and memory of a step."""

    def load(self) -> list[Result]:
        """The results that are there, of the seeds; raises `UsageError` for one of another configuration."""
        found = []
        for cell in cells(self.plans, self.seeds):
            result = read(cell, self.results)
            if result is None:
                continue
            if result.key != self.plans[cell.env].key(cell.arm):
                raise UsageError(f"{cell.path(self.results)} is of another configuration than {cell.env}.yaml")
            found.append(result)
        return found


def sections(shown: Shown, assets: Path) -> str:
    """The part of the page of an experiment; draws its pictures."""
    results = shown.load()
    found = by_environment(results)
    parts = [_provenance(results)]
    for env, plan in shown.plans.items():
        parts += _environment(shown, env, plan, found.get(env, Comparison([])), assets)
    return "\n\n".join(parts)


def fill(page: Path, parts: Mapping[str, str]) -> None:
    """Replace what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`, for each name.

    Raises:
        UsageError: the page has no such marks.
    """
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, found, rest = text.partition(begin)
        _, also, after = rest.partition(end)
        if not (found and also):
            raise UsageError(f"{page} has no marks for {name}")
        text = f"{before}{begin}\n{part}\n\n{end}{after}"
    write_whole(page, text)


def _provenance(results: Sequence[Result]) -> str:
    if not results:
        return "*No cell has been run yet.*"
    versions = sorted({result.version for result in results})
    machines = sorted({f"{r.machine['processor']}, {r.machine['cores']} cores" for r in results})
    loads = [result.machine["load"] for result in results]
    hours = sum(result.wall_s for result in results) / 3600
    lost = sum(int(n or 0) for result in results for n in result.steps.get("rollout/dropped", []))
    return (
        f"{len(results)} results, code {', '.join(versions)}; {'; '.join(machines)}; "
        f"{hours:.1f} hours of cells, load at their ends {min(loads):.1f} to {max(loads):.1f}; "
        f"{lost} training episodes lost to infrastructure."
    )


def _environment(shown: Shown, env: str, plan: Plan, found: Comparison, assets: Path) -> Iterator[str]:
    yield f"### {plan.title} {{#{shown.name}-{env}}}"
    yield f"{plan.tokens:,} tokens a cell; {plan.episodes} held-out episodes at {plan.horizon} turns."
    if not found.arms or not found.starts:
        yield "*No cell has been run yet.*"
        return
    picture = assets / f"{shown.name}-{env}.png"
    draw(found, plan, picture)
    yield f"![success by tokens, steps and CPU seconds](assets/{picture.name})"
    yield tables.levels(found, plan)
    yield "Paired differences over seeds:"
    yield tables.differences(found, shown.pairs)
    yield "\n".join(f"- {sentence}" for sentence in reading(found, plan, shown.pairs, len(shown.seeds)))
    yield "Success by family at the end:"
    yield tables.families(found, plan)
    yield "Health in training:"
    yield tables.health(found, plan)
    if shown.costs:
        yield "A training step:"
        yield tables.costs(found, plan)
