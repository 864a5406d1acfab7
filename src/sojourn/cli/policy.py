"""A policy ready to play: a shipped model, a run's last checkpoint, a directory or a hub id, and its manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sojourn.cli.extras import needs
from sojourn.protocol.errors import UsageError
from sojourn.protocol.messages import SamplingParams

if TYPE_CHECKING:
    from sojourn.client.interface import Envs
    from sojourn.evaluation.tasks import EvalTask
    from sojourn.rollout.few_shot import FewShot
    from sojourn.rollout.player import Limits, Player
    from sojourn.trainer.config import EnvEntry, TrainConfig
    from sojourn.trainer.offline.config import OfflineConfig


@dataclass(frozen=True, slots=True)
class Manners:
    """How a policy is talked to. A model plays as it was trained; what it was trained on is not in its weights."""

    views: Mapping[str, str | None]
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
    sampling: SamplingParams = field(default_factory=SamplingParams)
    """How completions are drawn beside."""
    limits: Limits | None = None
    """What an episode may cost; None: the defaults."""
    several: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of `views` and `inits`, by environment, what it learnt with more than one of."""


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
        from sojourn.trainer.config_reading import load_run_config
    config = load_run_config(run / "config.yaml")
    store = CheckpointStore(run / "checkpoints")
    if not store.steps():
        raise UsageError(f"the run in {run} has no checkpoint yet")
    return Policy(str(store.path(store.steps()[-1]) / "model"), manners_of(config))


def adjusted(manners: Manners, env: str, **given: Any) -> Manners:
    """The same, with what a person asked for on the command line (None: not asked), to play in `env`.

    Raises:
        UsageError: an example turn without an action in the format, or a run that played there in several ways and
            nobody says in which.
    """
    from sojourn.rollout.agent import FORMATS
    from sojourn.rollout.few_shot import check_actions

    asked = {key: value for key, value in given.items() if value is not None}
    open_ = [key.removesuffix("s") for key in manners.several.get(env, ()) if key not in asked]
    if open_:
        raise UsageError(
            f"the run has entries of {env} that differ in {' and '.join(open_)} (envs in its config.yaml): say which "
            f"to play with {' and '.join(f'--{key}' for key in open_)}"
        )
    found = replace(manners, **asked)
    check_actions(found.few_shot.get(env, ()), FORMATS[found.format]())
    return found


async def tasks_for(
    manners: Manners, envs: Envs, env: str, *, split: str, episodes: int, families: Sequence[str] | None, seed: int
) -> list[EvalTask]:
    """Episodes of a split in the worlds that the manners say; raises `UsageError` as `eval_tasks` does."""
    from sojourn.evaluation.tasks import eval_tasks

    view, init = manners.views.get(env), manners.inits.get(env)
    return await eval_tasks(
        envs, env, split=split, episodes=episodes, view=view, families=families, init=init, seed=seed
    )


def make_player(policy: Policy, envs: Envs, *, temperature: float, seed: int) -> Player:
    """Load the model and put a player together.

    Raises:
        UsageError: an unknown model or action format.
    """
    with needs("train"):
        from sojourn.engines import models
        from sojourn.engines.hf import HFEngine
        from sojourn.rollout.agent import FORMATS
        from sojourn.rollout.player import Limits, Player
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
        sampling=manners.sampling.model_copy(update={"max_tokens": manners.max_tokens, "temperature": temperature}),
        limits=manners.limits or Limits(),
        run_seed=seed,
        prompt=manners.prompt,
        system_prompt=manners.system_prompt,
        few_shot=manners.few_shot,
    )


def manners_of(config: TrainConfig | OfflineConfig) -> Manners:
    """How a run talks to its policy."""
    from sojourn.trainer.config import few_shots

    rollout, bounds = config.rollout, (config.rollout.limits.max_context, config.engine.max_context)
    context = min((bound for bound in bounds if bound is not None), default=None)
    return Manners(
        {entry.name: _view_of(entry) for entry in config.envs},
        rollout.prompt,
        rollout.format,
        config.sampling.max_tokens,
        rollout.system_prompt,
        few_shots(config.envs),
        {entry.name: entry.init for entry in config.envs},
        config.sampling.temperature,
        config.eval.temperature,
        config.sampling,
        rollout.limits.model_copy(update={"max_context": context}),
        _several(config.envs),
    )


def _several(entries: Sequence[EnvEntry]) -> dict[str, list[str]]:
    """What entries of one environment do not agree on."""
    firsts: dict[str, EnvEntry] = {}
    found: dict[str, list[str]] = {}
    for entry in entries:
        first, differ = firsts.setdefault(entry.name, entry), found.setdefault(entry.name, [])
        differ += ["views"] if _view_of(entry) != _view_of(first) and "views" not in differ else []
        differ += ["inits"] if (entry.init or {}) != (first.init or {}) and "inits" not in differ else []
    return found


def _view_of(entry: EnvEntry) -> str | None:
    """What an AgentGym server says is a view of its own, which other servers have, too."""
    return entry.view or ("agentgym" if entry.dialect == "agentgym" else None)
