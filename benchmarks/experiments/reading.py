"""An honest reading of a comparison, sentence by sentence, from its intervals alone: the unresolved is called so."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.experiments.comparison import AXES, MARGIN, Axis, Comparison
from benchmarks.experiments.plan import Plan
from benchmarks.experiments.tables import interval

AT: Axis = "tokens"
"""What the sentences compare at; the table has the other costs."""


def read(found: Comparison, plan: Plan, pairs: Sequence[tuple[str, str]], seeds: int) -> list[str]:
    """Sentences.

    Args:
        pairs: arms to compare, first less second.
        seeds: those that the experiment has when it is complete.
    """
    expected = seeds * len(plan.arms)
    cells = sum(len(by_seed) for by_seed in found.arms.values())
    said = [f"{cells} of {expected} cells are done." if cells < expected else f"All {expected} cells are done."]
    for arm in plan.arms:
        rise = found.rise(arm)
        verdict = {
            "yes": "ends above the start",
            "no": "ends BELOW the start",
            "unresolved": "has not resolvably moved",
        }
        if rise.gain:
            said.append(f"`{arm}` {verdict[rise.better]}: {interval(rise.gain)}.")
    said += [_compare(found, first, second) for first, second in pairs if found.difference(first, second, AT).gain]
    return said


def _compare(found: Comparison, first: str, second: str) -> str:
    one = found.difference(first, second, AT)
    above = {"yes": "is above", "no": "is below", "unresolved": "is not resolvably apart from"}[one.better]
    return (
        f"At {AXES[AT]} `{first}` {above} `{second}`, {interval(one.gain)}; "
        f"non-inferior by {MARGIN:g}: {one.non_inferior}."
    )
