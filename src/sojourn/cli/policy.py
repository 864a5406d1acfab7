"""A policy ready to play: a shipped model, a run's last checkpoint, a directory or a hub id, and its manners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sojourn.cli.extras import needs
from sojourn.protocol.errors import UsageError
from sojourn.protocol.messages import SamplingParams

if TYPE_CHECKING:
    from sojourn.client.interface import Envs
    from sojourn.rollout.few_shot import FewShot
    from sojourn.rollout.player import Player


@dataclass(frozen=True, slots=True)
class Manners:
    """How a policy is talked to. A model plays as it was trained; what it was trained on is not in its weights."""

    views: dict[str, str]
    """View by environment; the environment's first where it is not named."""
    prompt: Literal["full", "none"] = "full"
    format: str = "react"
    max_tokens: int = 256
    system_prompt: bool = False
    few_shot: Mapping[str, FewShot] = field(default_factory=dict)
    """Example turns by environment."""
    inits: Mapping[str, dict[str, Any] | None] = field(default_factory=dict)
    """What the worlds begin with, by environment."""
    temperature: float = 1.0
    """Of the episodes that it learnt from."""
    eval_temperature: float = 1.0
    """Of its evaluations."""


EMBEDDED = Manners({"babyai": "compact", "textcraft": "compact"}, prompt="none", max_tokens=24)


@dataclass(frozen=True, slots=True)
class Policy:
    """What `--model` names."""

    model: str
    manners: Manners


def find_policy(name: str) -> Policy:
    """Read `--model`: the directory of a run stands for its last checkpoint, and plays as it was trained.

    Raises:
        UsageError: a run without a checkpoint, or whose config cannot be read.
    """
    run = Path(name)
    if not (run / "config.yaml").is_file():
        return Policy(name, EMBEDDED if name.startswith("sojourn-tiny") else Manners({}))
    with needs("train"):
        from sojourn.trainer.checkpoint import CheckpointStore
        from sojourn.trainer.config import few_shots
        from sojourn.trainer.offline.config import load_run_config
    config = load_run_config(run / "config.yaml")
    store = CheckpointStore(run / "checkpoints")
    if not store.steps():
        raise UsageError(f"the run in {run} has no checkpoint yet")
    views = {entry.name: entry.view for entry in config.envs if entry.view is not None}
    rollout = config.rollout
    manners = Manners(
        views,
        rollout.prompt,
        rollout.format,
        config.sampling.max_tokens,
        rollout.system_prompt,
        few_shots(config.envs),
        {entry.name: entry.init for entry in config.envs},
        config.sampling.temperature,
        config.eval.temperature,
    )
    return Policy(str(store.path(store.steps()[-1]) / "model"), manners)


def adjusted(manners: Manners, **given: Any) -> Manners:
    """The same, with what a person asked for on the command line (None: not asked).

    Raises:
        UsageError: an example turn without an action in the format.
    """
    from sojourn.rollout.agent import FORMATS
    from sojourn.rollout.few_shot import check_actions

    asked = replace(manners, **{key: value for key, value in given.items() if value is not None})
    for shown in asked.few_shot.values():
        check_actions(shown, FORMATS[asked.format]())
    return asked


def make_player(policy: Policy, envs: Envs, *, temperature: float, seed: int) -> Player:
    """Load the model and put a player together.

    Raises:
        UsageError: an unknown model or action format.
    """
    with needs("train"):
        from sojourn.engines import models
        from sojourn.engines.hf import HFEngine
        from sojourn.rollout.agent import FORMATS
        from sojourn.rollout.player import Player
        from sojourn.rollout.renderer import Renderer
    manners = policy.manners
    if manners.format not in FORMATS:
        raise UsageError(f"no action format {manners.format!r} (known: {', '.join(sorted(FORMATS))})")
    source = models.resolve(policy.model)
    return Player(
        envs=envs,
        engine=HFEngine(models.load_model(source), name=f"hf:{source.name}", share=True),
        renderer=Renderer(models.load_tokenizer(source)),
        format=FORMATS[manners.format](),
        sampling=SamplingParams(max_tokens=manners.max_tokens, temperature=temperature),
        run_seed=seed,
        prompt=manners.prompt,
        system_prompt=manners.system_prompt,
        few_shot=manners.few_shot,
    )
