"""From a YAML file and dotted overrides to a configuration of either kind.

Errors are told all at once, on one line, each with its key path and the nearest valid key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from sojourn.algorithms import registry
from sojourn.algorithms.base import AlgorithmConfig
from sojourn.algorithms.grpo import GRPOConfig
from sojourn.algorithms.sft import SFTLossConfig
from sojourn.protocol.errors import UsageError
from sojourn.trainer.config import Section, TrainConfig
from sojourn.trainer.config_errors import problems
from sojourn.trainer.offline.config import OfflineConfig
from sojourn.trainer.overrides import apply_override, one_line

Config = TypeVar("Config", bound=Section)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a YAML file and apply `a.b=value` overrides (values are YAML; `envs.0.weight=2` indexes a list).

    Raises:
        UsageError: the file, an override or a key is wrong; one line that names everything that is.
    """
    return parse_config(_read(path, overrides))


def load_run_config(path: str | Path, overrides: Sequence[str] = ()) -> TrainConfig | OfflineConfig:
    """A config of either kind: that of the algorithm it names. Raises `UsageError` as `load_config` does."""
    data = _read(path, overrides)
    section = data.get("algorithm")
    name = section.get("name") if isinstance(section, dict) else None
    return parse_offline(data) if name in registry.offline_names() else parse_config(data)


def parse_config(data: Mapping[str, Any]) -> TrainConfig:
    """A config of plain values; raises `UsageError` with every problem on one line."""
    return _parsed(TrainConfig, data, lambda name: registry.load(name).Config, GRPOConfig())


def parse_offline(data: Mapping[str, Any]) -> OfflineConfig:
    """A config of plain values; raises `UsageError` with every problem on one line."""
    return _parsed(OfflineConfig, data, lambda name: registry.load_offline(name).Config, SFTLossConfig())


def _parsed(
    kind: type[Config],
    data: Mapping[str, Any],
    algorithm: Callable[[str], type[AlgorithmConfig]],
    default: AlgorithmConfig,
) -> Config:
    data = _model_by_name(dict(data))
    found = list(_algorithm_problems(data.get("algorithm"), algorithm, default.name))
    checked = {**data, "algorithm": default} if found else data
    try:
        config = kind.model_validate(checked)
    except ValidationError as error:
        found = [*problems(error, kind, checked), *found]
    if found:
        raise UsageError("config: " + "; ".join(found))
    return config


def _algorithm_problems(section: Any, algorithm: Callable[[str], type[AlgorithmConfig]], default: str) -> Iterator[str]:
    """What is wrong with `algorithm:`, whose class depends on its name."""
    if not isinstance(section, dict):
        return
    try:
        cls = algorithm(str(section.get("name", default)))
        cls.model_validate(section)
    except ValidationError as error:
        yield from problems(error, cls, section, prefix=("algorithm",))
    except UsageError as error:
        yield f"algorithm.name: {error}"


def _read(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The plain values of a YAML file with overrides applied; raises `UsageError` when there are none to be had."""
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read config {path}: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"config {path} is not YAML: {one_line(error)}") from error
    if not isinstance(data, dict):
        raise UsageError(f"config {path} is not a mapping of keys to values")
    _few_shot_beside(Path(path), data)
    data = _model_by_name(data)
    for override in overrides:
        given = data.get("model")
        apply_override(data, override)
        data = _model_by_name(data, given)
    return data


def _few_shot_beside(path: Path, data: Mapping[str, Any]) -> None:
    """Make the files of example turns that a config names lie where it says: relative to itself."""
    entries = data.get("envs")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("few_shot"), str) and entry["few_shot"]:
            entry["few_shot"] = str(path.parent / Path(entry["few_shot"]).expanduser())


def _model_by_name(data: dict[str, Any], given: Any = None) -> dict[str, Any]:
    """`model: smollm2` is short for its `name`; what was `given` of the model beside the name stays."""
    model = data.get("model")
    if not isinstance(model, str):
        return data
    return {**data, "model": {**(given if isinstance(given, dict) else {}), "name": model}}
