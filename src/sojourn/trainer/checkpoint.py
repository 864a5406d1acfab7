"""Checkpoints: everything an exact resume needs, written whole or not at all.

    checkpoints/step_000010/
        model/            the policy as a Hugging Face directory, adapters merged in: usable by itself
        trained.safetensors    the parameters in training (only where they are not the model: LoRA)
        critic.safetensors     the critic's (only where there is one)
        optimizer.safetensors
        state.json        step, task order, horizon, the algorithm's state, metrics offset, config and its hash
        manifest.json     SHA-256 of every other file

A directory appears under its name by one rename, after every file has reached the disk.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sojourn.files import sync
from sojourn.protocol.errors import UsageError
from sojourn.rollout.horizon import HorizonState, HorizonStatistics
from sojourn.trainer.curriculum import Estimates
from sojourn.trainer.policy import TrainPolicy
from sojourn.trainer.tasks import SamplerState
from sojourn.trainer.writing import writing


class Progress(BaseModel):
    """What a run knows after a step, besides its weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int = 0
    """Finished training steps; also the version of the weights."""
    sampler: SamplerState = Field(default_factory=SamplerState)
    horizon: HorizonState
    statistics: HorizonStatistics = Field(default_factory=HorizonStatistics)
    """Of the last collection: what the next horizon is chosen by."""
    estimates: Estimates = ()
    """How hard tasks have proved: what the next ones are chosen by."""
    skipped: int = 0
    """Optimiser steps skipped since the last that was not."""


class RunState(BaseModel):
    """What a run is besides its tensors."""

    model_config = ConfigDict(extra="forbid")

    progress: Progress
    algorithm: dict[str, float] = Field(default_factory=dict)
    """What `Algorithm.state` gave."""
    metrics_offset: int
    config: dict[str, Any]
    config_hash: str


class Checkpoint(NamedTuple):
    """One that was read and proved whole."""

    path: Path
    state: RunState
    trained: dict[str, Tensor]
    """The critic's weights among them."""
    optimizer: dict[str, Tensor]
    torch_rng: Tensor

    def restore_rng(self) -> None:
        """Set torch's generator as it was."""
        torch.set_rng_state(self.torch_rng)


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        directory: `checkpoints/` of the run.
        keep: how many of the last to keep.
    """

    def __init__(self, directory: Path, *, keep: int = 2) -> None:
        self.directory = directory
        self.keep = keep

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, oldest first."""
        found = self.directory.glob("step_*") if self.directory.is_dir() else ()
        return sorted(int(path.name.removeprefix("step_")) for path in found)

    def path(self, step: int) -> Path:
        return self.directory / f"step_{step:06d}"

    def save(self, state: RunState, policy: TrainPolicy, tokenizer: PreTrainedTokenizerBase | None = None) -> Path:
        """Write the checkpoint of `state.progress.step`, then drop those beyond the last `keep`.

        Those of later steps go too: this run began before them, for they were corrupted (`resume_fallback`), and they
        would pass for the last.

        Raises:
            UsageError: it cannot be written; the checkpoints before it are untouched.
        """
        target = self.path(state.progress.step)
        scratch = self.directory / f".writing_{target.name}"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            with writing(target):
                _write(scratch, state, policy, tokenizer)
                shutil.rmtree(target, ignore_errors=True)
                scratch.rename(target)
                sync(self.directory)
        except UsageError:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        steps = self.steps()
        last = steps.index(state.progress.step) + 1
        for step in [*steps[: max(0, last - self.keep)], *steps[last:]]:
            shutil.rmtree(self.path(step))
        return target

    def latest(self, *, fall_back: bool = False, on_note: Callable[[str], None] = lambda _: None) -> Checkpoint:
        """Read the last checkpoint.

        Args:
            fall_back: take the one before where the last is corrupted, and say so through `on_note`.

        Raises:
            UsageError: there is none, or the last one is corrupted.
        """
        steps = self.steps()
        if not steps:
            raise UsageError(f"nothing to resume: no checkpoint in {self.directory}")
        for step in reversed(steps):
            try:
                return read(self.path(step))
            except UsageError as error:
                if not fall_back or step == steps[0]:
                    raise
                on_note(f"{error}; falling back")
        raise AssertionError("unreachable")


def _write(directory: Path, state: RunState, policy: TrainPolicy, tokenizer: PreTrainedTokenizerBase | None) -> None:
    directory.mkdir(parents=True)
    save_model(directory / "model", policy.model, policy.named_weights(), tokenizer)
    if policy.adapted:
        save_file(_contiguous(policy.trained_weights()), directory / "trained.safetensors")
    if policy.critic:
        save_file(_contiguous(policy.critic_weights()), directory / "critic.safetensors")
    tensors = {**policy.optimizer_tensors(), "torch_rng": torch.get_rng_state()}
    save_file(_contiguous(tensors), directory / "optimizer.safetensors")
    (directory / "state.json").write_text(state.model_dump_json(indent=1))
    _seal(directory)


def save_model(
    directory: Path,
    model: PreTrainedModel,
    weights: Iterable[tuple[str, Tensor]],
    tokenizer: PreTrainedTokenizerBase | None,
) -> None:
    """Write a policy as a Hugging Face directory that `model: PATH` and `transformers` load."""
    directory.mkdir(parents=True)
    save_file(_contiguous(dict(weights)), directory / "model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(directory)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(directory)
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)


def read(path: Path) -> Checkpoint:
    """Read one checkpoint.

    Raises:
        UsageError: it is not whole; the message names it and the file at fault.
    """
    _verify(path)
    try:
        state = RunState.model_validate_json((path / "state.json").read_text())
    except ValidationError as error:
        raise UsageError(f"checkpoint {path} is of another version of Sojourn: {error.error_count()} keys") from error
    adapters = path / "trained.safetensors"
    trained = load_file(adapters if adapters.exists() else path / "model" / "model.safetensors")
    critic = path / "critic.safetensors"
    trained |= load_file(critic) if critic.exists() else {}
    optimizer = load_file(path / "optimizer.safetensors")
    return Checkpoint(path, state, trained, optimizer, optimizer.pop("torch_rng"))


def config_hash(config: dict[str, Any]) -> str:
    """SHA-256 of a config's canonical JSON."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _seal(directory: Path) -> None:
    """Write the manifest and bring every file to the disk."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    manifest = {str(path.relative_to(directory)): _sha256(path) for path in files}
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=1))
    for path in directory.rglob("*"):
        sync(path)
    sync(directory)


def _verify(path: Path) -> None:
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        broken = [name for name, digest in manifest.items() if _sha256(path / name) != digest]
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"checkpoint {path} is corrupted: {error}") from error
    if broken:
        raise UsageError(f"checkpoint {path} is corrupted: {', '.join(broken)} changed since it was written")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
