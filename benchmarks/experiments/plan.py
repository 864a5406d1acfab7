"""What an experiment compares: for each environment one run's configuration, and arms that each change one part of it.

A plan is a YAML file of its own for each environment; everything that could change a result is part of its cells' key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sojourn.protocol.errors import UsageError
from sojourn.protocol.validation import first_problem
from sojourn.trainer.config import TrainConfig
from sojourn.trainer.config_reading import parse_config

START = "start"
"""The arm that trains nothing: where the others begin."""
_OF_START = ("env", "server", "start", "episodes", "split", "horizon")


class Plan(BaseModel):
    """One environment and what is compared on it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: str
    """The plan's name, which is its file's."""
    title: str
    server: str
    """What serves the environment: a registered name, or `package.module:Class`."""
    start: str
    """The policy that training begins with."""
    tokens: int = Field(ge=1)
    """Of training episodes, the world's words included: a cell ends with the step that passes this."""
    counted: Literal["episode", "engine"] = "episode"
    """Which tokens: of the episodes, or those that went through the engine's model (what is shared is then free)."""
    evaluations: int = Field(default=4, ge=1)
    """At equal shares of the tokens, the last at the end."""
    episodes: int = Field(default=512, ge=2)
    """Of each evaluation: held-out tasks, the same for all arms of a seed."""
    split: str = "test"
    """Whose tasks are held out."""
    horizon: int = Field(ge=1)
    """Turns of an episode of the evaluation."""
    run: dict[str, Any]
    """A run's configuration without what is said here and in the arms."""
    arms: dict[str, dict[str, Any]]
    """By name: sections of the configuration, laid over `run`."""

    def config(self, arm: str, seed: int, model: str) -> TrainConfig:
        """The configuration of a cell; raises `UsageError` for one that is wrong."""
        sections = {name: {**self.run.get(name, {}), **given} for name, given in self._sections(arm).items()}
        replaced = {name: given for name, given in self._sections(arm).items() if name in ("horizon", "algorithm")}
        trainer = {"save_every": 0, **self.run.get("trainer", {}), **sections.get("trainer", {})}
        return parse_config(
            {
                **self.run,
                **sections,
                **replaced,
                "name": f"{self.env}-{arm}",
                "seed": seed,
                "model": {"name": model},
                "trainer": trainer,
                "logging": {"tensorboard": False, "trajectories": False},
            }
        )

    def key(self, arm: str) -> str:
        """Digest of all that could change a result of an arm, besides the seed and the code (12 characters)."""
        said = self.model_dump(mode="json", exclude={"arms", "title"}) | {"arm": self._sections(arm)}
        for name in ("counted", "split"):
            if said[name] == type(self).model_fields[name].default:
                del said[name]
        if arm == START:
            said = {name: said[name] for name in said if name in _OF_START}
            said |= {name: self.run[name] for name in ("envs", "rollout", "sampling")}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]

    def _sections(self, arm: str) -> dict[str, dict[str, Any]]:
        if arm == START:
            return {"horizon": {"type": "fixed", "turns": self.horizon}}
        if arm not in self.arms:
            raise UsageError(f"{self.env} has no arm {arm!r} (it has: {START}, {', '.join(self.arms)})")
        return self.arms[arm]


def read_plans(folder: Path) -> dict[str, Plan]:
    """The plans of an experiment by environment, in alphabetical order; raises `UsageError` for one that is wrong."""
    return {path.stem: _read(path) for path in sorted(folder.glob("*.yaml"))}


def _read(path: Path) -> Plan:
    data: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        return Plan.model_validate({"env": path.stem, **data})
    except ValidationError as error:
        raise UsageError(f"{path}: {first_problem(error)}") from error
