"""The configuration of a run: each component's own, assembled, and what has to hold between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator, model_validator

from sojourn.algorithms import registry
from sojourn.algorithms.base import AlgorithmConfig
from sojourn.algorithms.grpo import GRPOConfig
from sojourn.algorithms.rft import FilterConfig
from sojourn.engines.hf import HFEngineConfig
from sojourn.protocol.errors import UsageError
from sojourn.protocol.messages import SamplingParams
from sojourn.rollout.agent import FORMATS
from sojourn.rollout.branching import Branching
from sojourn.rollout.few_shot import FewShot, check_actions, read_few_shot
from sojourn.rollout.horizon import HorizonConfig
from sojourn.rollout.player import Limits
from sojourn.trainer.curriculum import CurriculumConfig, Shuffle
from sojourn.trainer.optimizer import OptimConfig
from sojourn.trainer.policy import LoraConfig
from sojourn.trainer.rewards import Reward, Rewards, Score, parse_rewards


class Section(BaseModel):
    """Part of a run's configuration: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(Section):
    """The policy."""

    name: str = "sojourn-tiny"
    """A shipped model, a directory, or a Hugging Face id."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights in training; small updates vanish in bfloat16."""
    autocast: Literal["bfloat16"] | None = None
    """Of matrix products in training, while the weights keep their dtype."""
    lora: LoraConfig | None = None
    device: str = "cpu"
    """As torch names it: `cpu`, `cuda`, `cuda:1`."""


class EnvEntry(Section):
    """One environment of the mixture."""

    name: str
    """As `sojourn envs` lists it."""
    view: str | None = None
    """How the world is worded; None: the environment's first view."""
    split: str = "train"
    """Of its tasks."""
    families: tuple[str, ...] | None = None
    """Only these families of tasks, in evaluations too."""
    init: dict[str, Any] | None = None
    """What its worlds begin with, as the environment's page says; in evaluations too."""
    few_shot: FewShot | None = None
    """Example turns in every prompt, before the first observation: a file of conversations in AgentGym's or OpenAI's
    form (its path is relative to the config that names it), or a list of `{user, assistant}`. They are kept in the
    run's own config."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Share of the groups, relative to the other entries."""
    reward: tuple[SerializeAsAny[Reward], ...] = (Score(),)
    """What an episode is paid: one term by its name (`score`, `success`), or a list of terms, each with its weight
    and its options."""
    eval_split: str | None = None
    """Split of the periodic evaluation; None: `eval.split`."""
    urls: tuple[str, ...] | None = None
    """Servers that offer it; None: the command line serves it itself."""
    dialect: Literal["native", "agentgym"] = "native"
    """What these servers speak. An AgentGym server lists no tasks: its splits are ranges of indices, as in `0:374`."""

    @model_validator(mode="after")
    def _foreign_servers_are_named(self) -> EnvEntry:
        if self.dialect != "native" and not self.urls:
            raise ValueError(f"dialect {self.dialect} needs urls: what is served here speaks the native one")
        return self

    @field_validator("few_shot", mode="before")
    @classmethod
    def _few_shot_from_file(cls, value: Any) -> Any:
        if value is None or isinstance(value, (list, tuple)):
            return value
        if not isinstance(value, str) or not value:
            raise ValueError(f"expected a file of conversations, or a list of {{user, assistant}}, not {value!r}")
        try:
            return read_few_shot(Path(value).expanduser())
        except UsageError as error:
            raise ValueError(str(error)) from error

    @field_validator("reward", mode="before")
    @classmethod
    def _reward_by_name(cls, value: Any) -> Any:
        return parse_rewards(value)


class RolloutConfig(Section):
    """How episodes are collected."""

    group_size: int = Field(default=8, ge=1)
    """Episodes of one task."""
    groups_per_step: int = Field(default=32, ge=1)
    """Tasks of one training step."""
    fork_turn: int | None = Field(default=None, ge=1)
    """Siblings share this many turns by forking the world: short for a `branch` of one tree with one branch point at
    this turn. None: they begin apart."""
    branch: Branching | None = None
    """A group is a tree, or several; `group_size` is then what they come to."""
    refill_rounds: int = Field(default=0, ge=0)
    """Dynamic sampling (DAPO, arXiv 2503.14476): groups whose episodes were all paid the same are set aside and others
    played in their place, for at most this many rounds; 0: everything that was played is trained."""
    concurrency: int = Field(default=256, ge=1)
    """Episodes in flight."""
    patience_s: float = Field(default=300.0, ge=0)
    """How long a step waits for environment servers that do not answer."""
    format: str = "react"
    """How actions are written: `react` or `tagged`."""
    prompt: Literal["full", "none"] = "full"
    """`none` shows the observation alone: for small models that know the rules by heart."""
    system_prompt: bool = False
    """The instructions come as a system message rather than before the first observation."""
    deterministic: bool = False
    """Fixed batches in a fixed order: on a CPU the same run gives the same bits."""
    limits: Limits = Field(default_factory=Limits)

    @field_validator("format")
    @classmethod
    def _known_format(cls, value: str) -> str:
        if value not in FORMATS:
            raise ValueError(f"no action format {value!r} (known: {', '.join(sorted(FORMATS))})")
        return value

    @model_validator(mode="after")
    def _one_shape(self) -> RolloutConfig:
        if self.branch and self.fork_turn is not None:
            raise ValueError("fork_turn is short for a branch: give one of them")
        if self.branch and self.branch.size != self.group_size:
            raise ValueError(
                f"branch makes groups of {self.branch.size}, trees * (1 + expansions * per_expansion): "
                f"group_size {self.group_size} must be that"
            )
        return self

    @property
    def branching(self) -> Branching | None:
        """How the groups are trees."""
        return self.branch if self.fork_turn is None else Branching.at(self.fork_turn, self.group_size)


class TrainerConfig(Section):
    """The loop."""

    num_steps: int = Field(default=100, ge=1)
    """Training steps: each collects, then updates."""
    minibatches: int = Field(default=1, ge=1)
    """Optimiser steps of one pass over a collection."""
    epochs: int = Field(default=1, ge=1)
    """Passes over one collection."""
    target_kl: float | None = Field(default=None, gt=0)
    """Divergence from the policy before the step (`policy/kl`, nats a token) at which the rest of a collection's
    minibatches is left out."""
    token_budget: int = Field(default=8192, ge=1)
    """Padded tokens of one micro-batch."""
    save_every: int = Field(default=10, ge=0)
    """Steps between checkpoints; the last step always has one; 0: only that."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """The youngest so many stay."""
    eval_every: int = Field(default=0, ge=0)
    """Steps between evaluations, besides those of the start and of the end; 0: none at all."""
    max_staleness: int = Field(default=0, ge=0)
    """Updates that a collection may be old when it is trained; 0: synchronous."""
    resume_fallback: bool = False
    """Resume from the checkpoint before, where the last one is corrupted."""
    mode: Literal["train", "rollout", "replay"] = "train"
    """`rollout`: play and record, the weights stay; `replay`: train on the recordings at `replay`, play nothing."""
    replay: str | None = None
    """A shard, or the `trajectories/` of a run: a shard a step, from the first again after the last."""
    max_skipped_steps: int = Field(default=8, ge=1)
    """Optimiser steps in a row whose gradient was not finite that end a run."""


class EvalConfig(Section):
    """The periodic evaluation: the same episodes each time."""

    split: str = "test"
    episodes: int = Field(default=256, ge=1)
    """For each entry of `envs`; what two entries share is played once."""
    horizon: int | None = Field(default=None, ge=1)
    """None: the environment's published one."""
    temperature: float = Field(default=1.0, ge=0)
    """0 is greedy."""
    seed: int = 0
    """Decides the tasks and the draws."""
    concurrency: int = Field(default=256, ge=1)
    """Episodes in flight."""


class LoggingConfig(Section):
    """What a run writes beside its metrics."""

    tensorboard: bool = True
    """The metrics as TensorBoard's event files under `tb/`, too."""
    trajectories: bool = True
    """Record every episode under `trajectories/`."""


class TrainConfig(Section):
    """One run. See `configs/` for whole examples."""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Of its directory, `runs/NAME`."""
    seed: int = Field(default=0, ge=0)
    """Of tasks, worlds, draws and minibatches."""
    model: ModelConfig = Field(default_factory=ModelConfig)
    engine: HFEngineConfig = Field(default_factory=HFEngineConfig)
    envs: tuple[EnvEntry, ...] = Field(min_length=1)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    sampling: SamplingParams = Field(default_factory=SamplingParams)
    horizon: HorizonConfig
    curriculum: CurriculumConfig = Field(default_factory=Shuffle)
    algorithm: SerializeAsAny[AlgorithmConfig] = Field(default_factory=GRPOConfig)
    optim: OptimConfig = Field(default_factory=OptimConfig)
    trainer: TrainerConfig = Field(default_factory=TrainerConfig)
    eval: EvalConfig = Field(default_factory=EvalConfig)
    logging: LoggingConfig = Field(default_factory=LoggingConfig)

    @field_validator("algorithm", mode="before")
    @classmethod
    def _algorithm_by_name(cls, value: Any) -> Any:
        return _algorithm_class(value).model_validate(value) if isinstance(value, dict) else value

    @field_validator("sampling")
    @classmethod
    def _unbiased(cls, value: SamplingParams) -> SamplingParams:
        if value.top_p != 1.0 or value.top_k != 0:
            raise ValueError("training samples with top_p 1 and top_k 0: anything else biases importance ratios")
        if value.temperature == 0:
            raise ValueError("training needs a temperature above 0: greedy episodes do not differ")
        return value

    @model_validator(mode="after")
    def _one_reward_an_environment(self) -> TrainConfig:
        if any(entry.reward != self.rewards()[entry.name] for entry in self.envs):
            raise ValueError("entries of envs that share a name must share their reward")
        return self

    @model_validator(mode="after")
    def _what_is_set_by_environment_is_of_one(self) -> TrainConfig:
        known = {entry.name for entry in self.envs}
        sections = {"horizon.by_env": self.horizon.by_env, "algorithm.thresholds": _thresholds(self.algorithm)}
        for path, section in sections.items():
            if unknown := sorted(section.keys() - known):
                raise ValueError(f"{path}: {unknown[0]!r} is not named in envs (named: {', '.join(sorted(known))})")
        return self

    @model_validator(mode="after")
    def _examples_are_answers(self) -> TrainConfig:
        check_few_shot(self.envs, self.rollout.format)
        return self

    @model_validator(mode="after")
    def _forks_where_the_protocol_has_them(self) -> TrainConfig:
        foreign = [entry.name for entry in self.envs if entry.dialect == "agentgym"]
        if foreign and (self.rollout.fork_turn is not None or self.rollout.branch):
            key = "branch" if self.rollout.branch else "fork_turn"
            raise ValueError(f"rollout.{key}: AgentGym's protocol cannot fork {foreign[0]}; leave it out")
        return self

    @model_validator(mode="after")
    def _refill_is_synchronous(self) -> TrainConfig:
        if self.rollout.refill_rounds and self.trainer.max_staleness:
            raise ValueError("rollout.refill_rounds needs trainer.max_staleness 0: the next step's tasks come after")
        return self

    @model_validator(mode="after")
    def _replay_of_something(self) -> TrainConfig:
        if (self.trainer.mode == "replay") != (self.trainer.replay is not None):
            raise ValueError("trainer.mode=replay and trainer.replay (a path to recordings) belong together")
        return self

    @model_validator(mode="after")
    def _what_was_kept_is_recorded(self) -> TrainConfig:
        if not registry.load(self.algorithm.name).restarts:
            return self
        if not self.logging.trajectories or self.rollout.refill_rounds or self.trainer.mode == "replay":
            raise ValueError(
                f"algorithm {self.algorithm.name} resumes from its recordings of all that was played: it needs "
                "logging.trajectories, rollout.refill_rounds 0, and trainer.mode train"
            )
        return self

    @model_validator(mode="after")
    def _deterministic_is_synchronous(self) -> TrainConfig:
        if self.rollout.deterministic and self.trainer.max_staleness:
            raise ValueError(
                "rollout.deterministic needs trainer.max_staleness 0: what runs ahead depends on the clock"
            )
        return self

    def dump(self) -> dict[str, Any]:
        """Plain values, as `config.yaml` and checkpoints hold them."""
        return self.model_dump(mode="json")

    def rewards(self) -> dict[str, Rewards]:
        """How each environment pays."""
        return {entry.name: entry.reward for entry in self.envs}


def _thresholds(algorithm: AlgorithmConfig) -> Mapping[str, float]:
    return algorithm.thresholds if isinstance(algorithm, FilterConfig) else {}


def few_shots(envs: Sequence[EnvEntry]) -> dict[str, FewShot]:
    """The example turns of the environments that have some."""
    return {entry.name: entry.few_shot for entry in envs if entry.few_shot}


def check_few_shot(envs: Sequence[EnvEntry], action_format: str) -> None:
    """See that each environment has one set of example turns, and each of them an action in the format.

    Raises:
        ValueError: names the entry at fault.
    """
    shown = few_shots(envs)
    for i, entry in enumerate(envs):
        if (entry.few_shot or ()) != shown.get(entry.name, ()):
            raise ValueError("entries of envs that share a name must share their few_shot")
        try:
            check_actions(entry.few_shot or (), FORMATS[action_format]())
        except UsageError as error:
            raise ValueError(f"envs.{i}.few_shot: {error}") from error


def _algorithm_class(section: Mapping[str, Any]) -> type[AlgorithmConfig]:
    name = section.get("name", "grpo")
    try:
        return registry.load(str(name)).Config
    except UsageError as error:
        raise ValueError(str(error)) from error
