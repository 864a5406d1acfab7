"""`sojourn train`: a run by a YAML file and dotted overrides."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.environments import EnvUrl, Place, TokenFile, reach
from sojourn.cli.extras import find_config, needs
from sojourn.cli.progress import Display, progress
from sojourn.protocol.errors import UsageError

if TYPE_CHECKING:
    from sojourn.client.interface import Envs
    from sojourn.trainer.config import TrainConfig
    from sojourn.trainer.loop import RunSummary
    from sojourn.trainer.offline.config import OfflineConfig


def train(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of one that comes with Sojourn.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="E.g. optim.lr=1e-4 horizon.stages=[10,20].")
    ] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Where everything goes; runs/NAME by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    rollout_only: Annotated[
        bool, typer.Option("--rollout-only", help="Play and record; the weights stay as they are.")
    ] = False,
    replay: Annotated[
        Path | None,
        typer.Option(help="Train on recordings (a shard, or a run's trajectories/), one a step; nothing is played."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while training.")] = False,
    env_url: EnvUrl = None,
    token_file: TokenFile = None,
) -> None:
    """Train an agent: on what it plays, or on fixed data (algorithm sft or dpo).

    The run's directory holds config.yaml, metrics.jsonl, horizon.jsonl, trajectories/, evaluations/, checkpoints/ and
    tb/.
    """
    with needs("train"):
        from sojourn.trainer.config_reading import load_run_config
    settings = load_run_config(find_config(config), [*_mode(rollout_only, replay), *(overrides or [])])
    directory = run_dir or Path("runs") / settings.name
    with progress(quiet=quiet) as display:
        summary = asyncio.run(run_training(settings, directory, display, resume, env_url, token_file))
    if not quiet:
        last = summary.evaluations[max(summary.evaluations)] if summary.evaluations else None
        if last is not None:
            print(last.table())
        print(f"{summary.steps} steps in {summary.seconds:.0f} s; everything is in {summary.run_dir}")


def _mode(rollout_only: bool, replay: Path | None) -> list[str]:
    """What the flags stand for, as overrides; those that are given win over them."""
    from sojourn.trainer.replaying import recordings

    if rollout_only and replay:
        raise UsageError("--rollout-only plays and --replay plays nothing: give one of them")
    if rollout_only:
        return ["trainer.mode=rollout"]
    if replay is None:
        return []
    steps = len(recordings(replay))
    return ["trainer.mode=replay", f"trainer.replay={replay}", "trainer.eval_every=0", f"trainer.num_steps={steps}"]


async def run_training(
    config: TrainConfig | OfflineConfig,
    run_dir: Path,
    display: Display,
    resume: bool = False,
    urls: list[str] | None = None,
    token_file: Path | None = None,
) -> RunSummary:
    """Train against the servers at `urls`, else those that the config names, else one of our own.

    A run on recordings that evaluates nothing needs none.
    """
    from sojourn.trainer.loop import Trainer
    from sojourn.trainer.offline.config import OfflineConfig
    from sojourn.trainer.offline_loop import OfflineTrainer
    from sojourn.trainer.replaying import Nowhere

    def trainer(envs: Envs) -> Trainer | OfflineTrainer:
        if isinstance(config, OfflineConfig):
            return OfflineTrainer(config, envs, run_dir=run_dir, resume=resume, observer=display)
        return Trainer(config, envs, run_dir=run_dir, resume=resume, observer=display)

    if isinstance(config, OfflineConfig):
        needed, length = config.reaches_environments, f"{config.trainer.epochs} epochs"
    else:
        needed = config.trainer.mode != "replay" or bool(config.trainer.eval_every)
        length = f"{config.trainer.num_steps} steps"
    if not needed:
        return await trainer(Nowhere()).run()
    places = [Place(entry.name, tuple(urls or entry.urls or ()), entry.dialect) for entry in config.envs]
    async with reach(places, token_file) as envs:
        ready = trainer(envs)
        first = "; the start is evaluated first" if config.trainer.eval_every and not resume else ""
        display.on_note(f"{config.name}: {length}, in {run_dir}{first}")
        # Model and libraries stay to the end: no search for garbage need look through them again.
        gc.collect()
        gc.freeze()
        return await ready.run()
