"""`sojourn demo`: serve, evaluate, train with a growing horizon, evaluate again and draw, in ten minutes."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sojourn.cli.extras import find_config, needs
from sojourn.cli.progress import progress
from sojourn.cli.train import run_training
from sojourn.files import write_whole
from sojourn.protocol.errors import UsageError

if TYPE_CHECKING:
    from sojourn.cli.curve import Curve
    from sojourn.evaluation.report import Evaluation, Gain
    from sojourn.trainer.config import TrainConfig
    from sojourn.trainer.loop import RunSummary

MARKER = ".sojourn-demo"
"""A directory that holds this file was made by the demo, and the next demo may replace it."""


def demo(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the demo's configuration.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of tasks, draws and minibatches.")] = 0,
    run_dir: Annotated[Path, typer.Option(help="Replaced when an earlier demo made it; nothing else is.")] = Path(
        "runs/demo"
    ),
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing before the result.")] = False,
) -> None:
    """Watch an agent get better at a real environment, with the horizon growing as it trains.

    At most ten minutes on two CPU cores.
    """
    began = time.monotonic()
    with needs("train"):
        from sojourn.trainer.config_reading import load_config
    config = load_config(find_config("demo"), [*(overrides or []), f"seed={seed}"])
    if not config.trainer.eval_every:
        raise UsageError("the demo compares evaluations: trainer.eval_every must be above 0")
    console = Console()
    _claim(run_dir, console)
    if not quiet:
        console.print(_plan(config), highlight=False, soft_wrap=True)
    with progress(quiet=quiet) as display:
        summary = asyncio.run(run_training(config, run_dir, display))
    _tell(console, config, summary, time.monotonic() - began)


def _claim(run_dir: Path, console: Console) -> None:
    """Make the directory ours; what an earlier demo left there goes, anything else is refused."""
    try:
        if (run_dir / MARKER).is_file():
            console.print(f"replacing the earlier demo in {run_dir}", highlight=False)
            shutil.rmtree(run_dir)
        elif run_dir.exists() and any(run_dir.iterdir()):
            raise UsageError(f"{run_dir} was not made by a demo: give another --run-dir")
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / MARKER).touch()
    except OSError as error:
        raise UsageError(
            f"cannot write the run directory {run_dir}: {error.strerror} (give another --run-dir)"
        ) from error


def _plan(config: TrainConfig) -> str:
    worlds = "; ".join(f"{e.name} ({', '.join(e.families or ('all families',))})" for e in config.envs)
    episodes = config.rollout.groups_per_step * config.rollout.group_size
    return (
        f"{config.model.name} on {worlds}\n"
        f"{config.trainer.num_steps} steps of {episodes} episodes by {config.algorithm.name}, "
        f"horizon {config.horizon.describe()}; {config.eval.episodes} held-out episodes before and after"
    )


def _tell(console: Console, config: TrainConfig, summary: RunSummary, seconds: float) -> None:
    """Draw the curve, write `summary.json`, print the table and where things lie."""
    from sojourn.cli.curve import draw, terminal
    from sojourn.evaluation.report import paired_gain
    from sojourn.trainer.writing import writing

    run_dir = Path(summary.run_dir)
    steps = sorted(summary.evaluations)
    start, end = summary.evaluations[steps[0]], summary.evaluations[steps[-1]]
    gain = paired_gain(start, end)
    curve = read_curve(run_dir, summary, f"{config.model.name} on {', '.join(e.name for e in config.envs)}")
    document = summarise(start, end, gain, curve, seconds, config.seed)
    with writing(run_dir):
        draw(curve, run_dir / "curve.png")
        write_whole(run_dir / "summary.json", json.dumps(document, indent=1))
    console.print(terminal(curve, width=min(console.width, 100)), highlight=False, markup=False, soft_wrap=True)
    console.print(_table(start, end))
    console.print(
        f"gain {gain.gain:+.3f} (95 % interval {gain.low:+.3f} to {gain.high:+.3f}, {start.overall.episodes} paired "
        f"episodes) in {seconds:.0f} s\n"
        f"curve       {run_dir / 'curve.png'}\n"
        f"summary     {run_dir / 'summary.json'}\n"
        f"recordings  {run_dir / 'trajectories'}\n"
        f"policy      {run_dir} (sojourn eval --model {run_dir} --env {config.envs[0].name})",
        highlight=False,
        soft_wrap=True,
    )


def read_curve(run_dir: Path, summary: RunSummary, title: str) -> Curve:
    """The curve of a finished run, from its metrics and evaluations."""
    from sojourn.cli.curve import Curve, HeldOut
    from sojourn.trainer.metrics import read_metrics

    lines = [line for line in read_metrics(run_dir / "metrics.jsonl") if "horizon/max_turns" in line]
    held_out = [
        HeldOut(step, evaluation.overall.success, evaluation.overall.low, evaluation.overall.high)
        for step, evaluation in sorted(summary.evaluations.items())
    ]
    return Curve(
        title,
        steps=[line["step"] for line in lines],
        success=[line["success_rate"] for line in lines],
        horizon=[int(line["horizon/max_turns"]) for line in lines],
        held_out=held_out,
    )


def summarise(
    start: Evaluation, end: Evaluation, gain: Gain, curve: Curve, seconds: float, seed: int
) -> dict[str, Any]:
    """What `summary.json` holds."""

    def ends(evaluation: Evaluation) -> dict[str, Any]:
        overall = evaluation.overall
        return {
            "success": overall.success,
            "low": overall.low,
            "high": overall.high,
            "episodes": overall.episodes,
            "families": {name: tally.success for name, tally in evaluation.families.items()},
        }

    return {
        "start": ends(start),
        "end": ends(end),
        "gain": {"value": gain.gain, "low": gain.low, "high": gain.high},
        "horizon": {str(step): turns for step, turns in zip(curve.steps, curve.horizon, strict=True)},
        "seconds": round(seconds, 1),
        "seed": seed,
    }


def _table(start: Evaluation, end: Evaluation) -> Table:
    from sojourn.evaluation.report import paired_gain

    table = Table("held-out tasks", box=None, header_style="bold", pad_edge=False)
    for name in ("start", "end", "gain", "95 % interval", "episodes"):
        table.add_column(name, justify="right")
    before, after = start.families, end.families
    for name in before:
        gain = paired_gain(_only(start, name), _only(end, name))
        table.add_row(name, *_cells(before[name].success, after[name].success, gain), str(before[name].episodes))
    gain = paired_gain(start, end)
    table.add_section()
    cells = _cells(start.overall.success, end.overall.success, gain)
    table.add_row("all", *cells, str(start.overall.episodes), style="bold")
    return table


def _only(evaluation: Evaluation, family: str) -> Evaluation:
    results = [result for result in evaluation.results if f"{result.env}/{result.family}" == family]
    return evaluation.model_copy(update={"results": results})


def _cells(before: float, after: float, gain: Gain) -> tuple[str, str, str, str]:
    return f"{before:.3f}", f"{after:.3f}", f"{gain.gain:+.3f}", f"{gain.low:+.3f} .. {gain.high:+.3f}"
