"""A run as a picture: success as it trains, held-out success before and after, and the horizon drawn in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Success on held-out tasks at the full horizon, with its 95 % interval."""

    step: int
    success: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Curve:
    """What is drawn; all lists are one entry a training step."""

    title: str
    steps: Sequence[int]
    success: Sequence[float]
    """Success of the training episodes, each under the horizon of its step."""
    horizon: Sequence[int]
    held_out: Sequence[HeldOut]


def draw(curve: Curve, path: Path) -> None:
    """Write the picture as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    turns = axis.twinx()
    _draw_horizon(turns, curve)
    axis.plot(curve.steps, curve.success, color="tab:gray", linewidth=1.2, label="training episodes (horizon as drawn)")
    spread = [[h.success - h.low for h in curve.held_out], [h.high - h.success for h in curve.held_out]]
    axis.errorbar(
        [h.step for h in curve.held_out],
        [h.success for h in curve.held_out],
        yerr=spread,
        color="tab:blue",
        marker="o",
        linestyle="--",
        linewidth=1,
        capsize=4,
        label="held-out tasks, full horizon (95 % interval)",
    )
    for point in curve.held_out:
        at = (point.step, point.high)
        axis.annotate(f"{point.success:.3f}", at, (0, 5), textcoords="offset points", ha="center", color="tab:blue")
    axis.set(title=curve.title, xlabel="training step", ylabel="success", ylim=(0, _top(curve)))
    axis.margins(x=0.06)
    axis.set_zorder(turns.get_zorder() + 1)
    axis.patch.set_visible(False)
    axis.spines["top"].set_visible(False)
    turns.spines["top"].set_visible(False)
    axis.legend(loc="upper left", frameon=False)
    figure.savefig(path)


def _draw_horizon(axis: Any, curve: Curve) -> None:
    edges, caps = _steps(curve)
    axis.fill_between(edges, caps, color="tab:orange", alpha=0.15, linewidth=0)
    axis.plot(edges, caps, color="tab:orange", alpha=0.6, linewidth=1)
    axis.set_ylabel("horizon (turns)", color="tab:orange")
    axis.tick_params(axis="y", colors="tab:orange")
    axis.set_ylim(0, max(caps, default=1) * 2)


def terminal(curve: Curve, *, width: int, height: int = 18) -> str:
    """The same as characters for a terminal, without colour."""
    import plotext

    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    figure.title(curve.title)
    figure.label("training step", "x", "lower")
    last = max([*curve.steps, *(h.step for h in curve.held_out)], default=1)
    figure.ruler("x", "lower").lim(0, last).ticks([round(last * i / 5) for i in range(6)])
    figure.ruler("y", "left").lim(0, _top(curve))
    figure.ruler("y", "right").lim(0, 2 * max(curve.horizon, default=1))
    edges, caps = _steps(curve)
    figure.draw(figure.signal(edges, caps, marker="·", yside="right").lines().label("horizon, turns (right)"))
    figure.draw(figure.signal(list(curve.steps), list(curve.success), marker="hd").lines().label("success, training"))
    points = figure.signal([h.step for h in curve.held_out], [h.success for h in curve.held_out], marker="@")
    figure.draw(points.label("success, held-out tasks"))
    return str(plotext.uncolorize(figure.build().string()))


def _steps(curve: Curve) -> tuple[list[float], list[float]]:
    """The horizon's corners: the cap of step i holds from its left edge, i - 1, to its right."""
    edges, caps = [], []
    for step, cap in zip(curve.steps, curve.horizon, strict=True):
        edges += [step - 1.0, float(step)]
        caps += [float(cap), float(cap)]
    return edges, caps


def _top(curve: Curve) -> float:
    """Upper end of the axis of success: a round number with room for the legend."""
    most = max([*curve.success, *(h.high for h in curve.held_out)], default=1.0)
    return min(1.0, math.ceil(most * 1.5 * 5) / 5)
