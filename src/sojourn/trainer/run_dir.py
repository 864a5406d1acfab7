"""The directory of a run and the rules for entering it: fresh, or to resume exactly.

runs/NAME/
    config.yaml       what was asked for
    metrics.jsonl     one line a step
    horizon.jsonl     why the horizon changed or was held, one line for each step that had a reason
    trajectories/     every episode
    demonstrations/   the oracle's, where a run on fixed data asked for them
    evaluations/      step_000010.json, results by episode
    checkpoints/
    tb/               TensorBoard
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from transformers import PreTrainedTokenizerBase

from sojourn.evaluation.report import Evaluation
from sojourn.files import write_whole
from sojourn.protocol.errors import UsageError
from sojourn.protocol.trajectory import TrajectoryGroup
from sojourn.rollout.recorder import Recorder, read, shards
from sojourn.trainer.checkpoint import Checkpoint, CheckpointStore, Progress, RunState, config_hash
from sojourn.trainer.config import TrainConfig
from sojourn.trainer.metrics import MetricsWriter
from sojourn.trainer.offline.config import OfflineConfig
from sojourn.trainer.policy import TrainPolicy
from sojourn.trainer.resuming import changed_keys
from sojourn.trainer.upgrading import as_read_now
from sojourn.trainer.writing import writing


class RunDir:
    """Looks a run directory over, then (`open`) writes what a run leaves behind. Nothing is written before that.

    Args:
        path: made by `open` when it is not there.
        config: of the run.
        resume: continue the run that is there, from its last checkpoint (from the beginning, if it has none yet).
        on_note: told of what a person should know.

    Raises:
        UsageError: it holds a run already; or (resuming) none, one of another config, or a corrupted checkpoint.
    """

    def __init__(
        self, path: Path, config: TrainConfig | OfflineConfig, *, resume: bool, on_note: Callable[[str], None]
    ) -> None:
        self.path = path
        self.checkpoints = CheckpointStore(path / "checkpoints", keep=config.trainer.keep_checkpoints)
        self.recorder: Recorder | None = None
        self._metrics: MetricsWriter | None = None
        self.checkpoint: Checkpoint | None = None
        if resume:
            self.checkpoint = self._resume(config, on_note)
        else:
            self._refuse_occupied()
        self._config = config

    def open(self) -> None:
        """Make the directory and its files; drop what the checkpoint has not seen.

        Raises:
            UsageError: it cannot be written, or its metrics were edited.
        """
        config, step = self._config, self.checkpoint.state.progress.step if self.checkpoint else 0
        with writing(self.path, "the run directory"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._write("config.yaml", yaml.safe_dump(config.dump(), sort_keys=False))
            self._metrics = MetricsWriter(
                self.path,
                offset=self.checkpoint.state.metrics_offset if self.checkpoint else 0,
                tensorboard=config.logging.tensorboard,
                purge_step=step + 1,
            )
            if isinstance(config, TrainConfig):
                self._write("horizon.jsonl", "".join(self._decisions(step if self.checkpoint else -1)))
        self.recorder = Recorder(self.path / "trajectories") if _records(config) else None
        self._discard_after(step if self.checkpoint else -1)

    @property
    def metrics(self) -> MetricsWriter:
        """The metrics, once the directory is open."""
        assert self._metrics is not None, "the run directory is not open"
        return self._metrics

    def record(self, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        """Keep the episodes of a step, if they are to be kept."""
        if self.recorder:
            self.recorder.write(step, groups)

    def recorded(self) -> Iterator[TrajectoryGroup]:
        """The episodes of all steps that the checkpoint has seen, oldest first."""
        for path in shards(self.path / "trajectories", split="train"):
            yield from read(path)

    def decide(self, step: int, caps: Mapping[str, int], reasons: Sequence[str]) -> None:
        """Keep why the horizon of a step is what it is, if there is a reason to be told."""
        if not reasons:
            return
        line = json.dumps({"step": step, "caps": dict(caps), "reasons": list(reasons)})
        with writing(self.path / "horizon.jsonl"), (self.path / "horizon.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def save(
        self,
        progress: Progress,
        policy: TrainPolicy,
        tokenizer: PreTrainedTokenizerBase,
        algorithm: dict[str, float] | None = None,
    ) -> None:
        """Write a checkpoint, once the metrics that it knows of are on the disk; `algorithm` is its `state()`."""
        self.metrics.sync()
        config = self._config.dump()
        state = RunState(
            progress=progress,
            algorithm=algorithm or {},
            metrics_offset=self.metrics.offset,
            config=config,
            config_hash=config_hash(config),
        )
        self.checkpoints.save(state, policy, tokenizer)

    def write_evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Keep the results of an evaluation; raises `UsageError` when the disk does not take them."""
        with writing(self.path / "evaluations"):
            (self.path / "evaluations").mkdir(exist_ok=True)
            self._write(f"evaluations/step_{step:06d}.json", evaluation.model_dump_json(indent=1))

    def evaluations(self) -> dict[int, Evaluation]:
        """All evaluations of the run by step, those before a resumption included."""
        return {
            int(path.stem.removeprefix("step_")): Evaluation.model_validate_json(path.read_text())
            for path in sorted((self.path / "evaluations").glob("step_*.json"))
        }

    def close(self) -> None:
        if self._metrics:
            self._metrics.close()

    def _decisions(self, last: int) -> list[str]:
        """The lines of the horizon's decisions up to step `last`; one that a crash cut short is left out."""
        path = self.path / "horizon.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= last]

    def _refuse_occupied(self) -> None:
        if (self.path / "config.yaml").exists():
            raise UsageError(f"{self.path} holds a run already: continue it with --resume, or give another name")

    def _resume(self, config: TrainConfig | OfflineConfig, on_note: Callable[[str], None]) -> Checkpoint | None:
        try:
            before = yaml.safe_load((self.path / "config.yaml").read_text())
        except FileNotFoundError as error:
            raise UsageError(f"nothing to resume: there is no run in {self.path}") from error
        except (OSError, yaml.YAMLError) as error:
            raise UsageError(f"cannot resume: {self.path / 'config.yaml'} is unreadable") from error
        checkpoint, note = None, "no checkpoint yet: starting from the beginning"
        if self.checkpoints.steps():
            checkpoint = self.checkpoints.latest(fall_back=config.trainer.resume_fallback, on_note=on_note)
            before = checkpoint.state.config
            note = f"resuming after step {checkpoint.state.progress.step}"
        _refuse_changes(as_read_now(before, config), config.dump())
        on_note(note)
        return checkpoint

    def _discard_after(self, step: int) -> None:
        """Drop what later steps left: they will be run again."""
        if self.recorder:
            self.recorder.discard_after(step)
        for path in (self.path / "evaluations").glob("step_*.json"):
            if int(path.stem.removeprefix("step_")) > step:
                path.unlink()

    def _write(self, name: str, text: str) -> None:
        write_whole(self.path / name, text)


def _records(config: TrainConfig | OfflineConfig) -> bool:
    """Only what a run plays itself: a replay's episodes lie where it takes them from, as does fixed data."""
    return isinstance(config, TrainConfig) and config.logging.trajectories and config.trainer.mode != "replay"


def _refuse_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    if changed := changed_keys(before, after):
        raise UsageError(
            f"cannot resume with a changed config: {', '.join(changed)}; restore what the run had, "
            "or start a run under another name"
        )
