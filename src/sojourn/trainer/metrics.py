"""Metrics of a run: `metrics.jsonl` is the source of truth, TensorBoard a copy.

One JSON object a line, with `step` and slash-separated names; what is not a finite number is null. The checkpoint holds
the file's length, so that a resume drops the lines of steps that will be run again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sojourn.protocol.errors import UsageError
from sojourn.trainer.writing import writing


class MetricsWriter:
    """Appends to `metrics.jsonl` in a run directory, and to TensorBoard when asked.

    Args:
        run_dir: the run's directory.
        offset: bytes of the file to keep; what follows is dropped.
        tensorboard: also write event files under `tb/`.
        purge_step: first step whose TensorBoard points are superseded.
    """

    def __init__(self, run_dir: Path, *, offset: int = 0, tensorboard: bool = True, purge_step: int = 0) -> None:
        self.path = run_dir / "metrics.jsonl"
        # Unbuffered: bytes that the disk refused must not come again when the file is closed.
        self._file = self.path.open("ab", buffering=0)
        if self._file.tell() < offset:
            self._file.close()
            raise UsageError(f"{self.path} is shorter than its checkpoint says ({offset} bytes): it was edited")
        self._file.truncate(offset)
        self._board = _board(run_dir / "tb", purge_step) if tensorboard else None

    @property
    def offset(self) -> int:
        """Length of the file in bytes."""
        return self._file.tell()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line; raises `UsageError` when the disk does not take it."""
        line = {"step": step, **{name: _finite(value) for name, value in metrics.items()}}
        left = memoryview(json.dumps(line, allow_nan=False).encode() + b"\n")
        with writing(self.path):
            while left:
                left = left[self._file.write(left) :]
            if self._board:
                for name, value in metrics.items():
                    self._board.add_scalar(name, value, step)

    def sync(self) -> None:
        """Let the disk have it all; raises `UsageError`."""
        with writing(self.path):
            os.fsync(self._file.fileno())
            if self._board:
                self._board.flush()

    def close(self) -> None:
        with writing(self.path):
            self._file.close()
            if self._board:
                self._board.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file; a last line that a crash cut short is left out."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _board(directory: Path, purge_step: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter  # slow to import, and not always wanted

    return SummaryWriter(str(directory), purge_step=purge_step)
