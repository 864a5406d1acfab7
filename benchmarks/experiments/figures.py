"""Curves of success with their 95 % bands over seeds, against tokens, steps and CPU seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.experiments.comparison import AXES, Axis, Comparison
from benchmarks.experiments.plan import Plan

from sojourn.evaluation.report import paired_interval

LABELS: dict[Axis, str] = {"step": "training steps", "cpu_s": "CPU seconds"}
TOKENS = {"episode": "tokens of training episodes", "engine": "engine tokens of training"}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by those who see red and green alike (Okabe and Ito)."""
POINTS = 60


def draw(found: Comparison, plan: Plan, path: Path) -> None:
    """One picture: a panel for each axis, a line for each arm."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(12, 3.6), layout="constrained", dpi=110)
    panels: Sequence[Any] = figure.subplots(1, len(AXES), sharey=True)
    for panel, axis in zip(panels, AXES, strict=True):
        for arm, colour in zip(plan.arms, COLOURS, strict=False):
            _line(panel, found, arm, axis, colour)
        panel.set_xlabel(LABELS.get(axis, TOKENS[plan.counted]))
        panel.set_xlim(left=0)
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"success, horizon {plan.horizon}")
    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle(plan.title, x=0.01, ha="left", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, format="png", metadata={"Software": None})
    partial.replace(path)


def _line(panel: Any, found: Comparison, arm: str, axis: Axis, colour: str) -> None:
    """The mean over seeds as far as all of them went, with its band; evaluations as dots."""
    curves = list(found.curves(arm, axis).values())
    if not curves:
        return
    where = np.linspace(0, found.reach(axis, [arm]), POINTS)
    values = np.array([[curve.value(x) for x in where] for curve in curves])
    middle = values.mean(axis=0)
    panel.plot(
        where,
        middle,
        color=colour,
        label=f"{arm} ({len(curves)} {'seed' if len(curves) == 1 else 'seeds'})",
        linewidth=1.8,
    )
    if len(curves) > 1:
        half = np.array([(gain := paired_interval(list(column))).high - gain.gain for column in values.T])
        panel.fill_between(
            where, np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1), color=colour, alpha=0.15, linewidth=0
        )
    for curve in curves:
        panel.plot(curve.at, curve.success, ".", color=colour, markersize=3, alpha=0.5)
