"""The configuration of a run on fixed data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from sojourn.algorithms import registry
from sojourn.algorithms.base import AlgorithmConfig
from sojourn.algorithms.sft import SFTLossConfig
from sojourn.engines.hf import HFEngineConfig
from sojourn.protocol.messages import SamplingParams
from sojourn.trainer.config import (
    EnvEntry,
    EvalConfig,
    LoggingConfig,
    ModelConfig,
    RolloutConfig,
    Section,
    check_few_shot,
)
from sojourn.trainer.offline.order import DecayingOptimConfig
from sojourn.trainer.offline.pairs import PairsConfig


class Recordings(Section):
    """Episodes that were played before: exact tokens, so the model's tokenizer must be that of whoever played."""

    type: Literal["recordings"] = "recordings"
    path: str
    """A shard, or a directory of shards such as a run's `trajectories/`."""
    split: str | None = None
    """Only shards of this split."""
    min_score: float | None = None
    """Only episodes that were scored at least this; null: only those that succeeded. Pairs see all."""
    max_per_task: int | None = Field(default=None, ge=1)
    """At most so many episodes of one task."""


class Oracle(Section):
    """Demonstrations by the environment's scripted solution, played when the run starts and kept in its directory."""

    type: Literal["oracle"] = "oracle"
    env: str
    """One of `envs`, whose view is shown."""
    split: str = "train"
    families: tuple[str, ...] | None = None
    episodes: int = Field(default=256, ge=1)
    horizon: int | None = Field(default=None, ge=1)
    """A demonstration of more turns is left out; null: the environment's published horizon."""
    noise: float = Field(default=0.0, ge=0, le=1)
    """Chance at each turn of a wrong action, which is shown but not learnt."""
    thoughts: bool = True
    """Write the oracle's reasons before its actions."""


class Conversations(Section):
    """Conversations in AgentGym's or OpenAI's form; see `rollout.conversations`."""

    type: Literal["conversations"] = "conversations"
    path: str


Data = Annotated[Recordings | Oracle | Conversations, Field(discriminator="type")]


class OfflineLoop(Section):
    """The loop over fixed data: one step is one batch."""

    epochs: int = Field(default=1, ge=1)
    batch_size: int = Field(default=32, ge=1)
    """Examples of one optimiser step."""
    token_budget: int = Field(default=8192, ge=1)
    """Tokens of one micro-batch, padding included."""
    packing: bool = True
    """Short rows share a line without seeing each other; false: every row is padded."""
    max_tokens: int | None = Field(default=None, ge=2)
    """Longer rows are left out, never cut; null: the model's context."""
    held_out: int = Field(default=0, ge=0)
    """Examples that are not learnt from: their loss is measured with each evaluation, and at the end."""
    save_every: int = Field(default=50, ge=0)
    """Steps between checkpoints; the last step always has one; 0: only that."""
    keep_checkpoints: int = Field(default=2, ge=1)
    eval_every: int = Field(default=0, ge=0)
    """Steps between evaluations in `envs`; 0: none."""
    resume_fallback: bool = False
    """Resume from the checkpoint before, where the last one is corrupted."""
    max_skipped_steps: int = Field(default=8, ge=1)
    """Steps in a row whose gradient was not finite that end a run."""


class OfflineConfig(Section):
    """One run on fixed data."""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    seed: int = Field(default=0, ge=0)
    model: ModelConfig = Field(default_factory=ModelConfig)
    engine: HFEngineConfig = Field(default_factory=HFEngineConfig)
    algorithm: SerializeAsAny[AlgorithmConfig] = Field(default_factory=SFTLossConfig)
    data: tuple[Data, ...] = Field(min_length=1)
    pairs: PairsConfig = Field(default_factory=PairsConfig)
    optim: DecayingOptimConfig = Field(default_factory=DecayingOptimConfig)
    trainer: OfflineLoop = Field(default_factory=OfflineLoop)
    envs: tuple[EnvEntry, ...] = ()
    """Where it is evaluated, and where demonstrations are played."""
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """How the agent is talked to: `prompt`, `system_prompt`, `format`, `limits`; also that of demonstrations."""
    sampling: SamplingParams = Field(default_factory=SamplingParams)
    """Of evaluations, but for the temperature, which is `eval.temperature`."""
    eval: EvalConfig = Field(default_factory=EvalConfig)
    logging: LoggingConfig = Field(default_factory=LoggingConfig)

    @field_validator("algorithm", mode="before")
    @classmethod
    def _algorithm_by_name(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return registry.load_offline(str(value.get("name"))).Config.model_validate(value)

    @model_validator(mode="after")
    def _environments_are_named(self) -> OfflineConfig:
        known = {entry.name for entry in self.envs}
        for i, source in enumerate(self.data):
            if not isinstance(source, Oracle):
                continue
            if source.env not in known:
                raise ValueError(f"data.{i}.env: {source.env!r} is not named in envs")
            entries = [entry for entry in self.envs if entry.name == source.env]
            if any((e.view, e.init or {}) != (entries[0].view, entries[0].init or {}) for e in entries):
                raise ValueError(f"data.{i}.env: entries of {source.env} differ in view or init: keep one of them")
        if self.trainer.eval_every and not self.envs:
            raise ValueError("trainer.eval_every needs envs to evaluate in")
        return self

    @model_validator(mode="after")
    def _examples_are_answers(self) -> OfflineConfig:
        check_few_shot(self.envs, self.rollout.format)
        return self

    @model_validator(mode="after")
    def _pairs_come_from_groups(self) -> OfflineConfig:
        if self.compares and not all(isinstance(source, Recordings) for source in self.data):
            raise ValueError(f"algorithm {self.algorithm.name} compares episodes of one task: data must be recordings")
        return self

    @property
    def compares(self) -> bool:
        """Whether an example is a pair."""
        return registry.load_offline(self.algorithm.name).rows == 2

    @property
    def reaches_environments(self) -> bool:
        """Whether a run needs servers at all."""
        return bool(self.trainer.eval_every) or any(isinstance(source, Oracle) for source in self.data)

    def dump(self) -> dict[str, Any]:
        """Plain values, as `config.yaml` and checkpoints hold them."""
        return self.model_dump(mode="json")
