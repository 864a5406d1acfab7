"""Recordings: every trajectory of a step in one JSONL shard, complete or not there at all.

Line 1 is a header with the schema's version and how much follows; then each group, and after it each of its episodes.
A shard is written under a temporary name, synced and renamed into place. `read` gives back exactly what was written.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sojourn import __version__
from sojourn.files import PARTIAL, sync, write_whole
from sojourn.protocol.errors import UsageError
from sojourn.protocol.trajectory import SCHEMA_VERSION, Trajectory, TrajectoryGroup
from sojourn.protocol.validation import first_problem

_NAME = re.compile(r"(?P<split>[a-z0-9_]+)-(?P<step>[0-9]{6,})\.jsonl(\.gz)?")
_SPLIT = re.compile(r"[a-z0-9_]+")


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Header(_Line):
    """The first line of a shard."""

    kind: Literal["header"] = "header"
    schema_version: int
    sojourn: str
    """Version of the program that wrote it."""
    step: int
    split: str
    groups: int
    episodes: int


class _GroupLine(_Line):
    kind: Literal["group"] = "group"
    group_id: str
    task: str
    dropped: int
    episodes: int
    """Lines that follow it."""


class _EpisodeLine(_Line):
    kind: Literal["episode"] = "episode"
    trajectory: Trajectory


_ANY_LINE: TypeAdapter[Header | _GroupLine | _EpisodeLine] = TypeAdapter(
    Annotated[Header | _GroupLine | _EpisodeLine, Field(discriminator="kind")]
)


class Recorder:
    """Writes shards into one directory.

    Args:
        directory: made when it is not there.
        compress: gzip each shard (the name then ends in `.jsonl.gz`).

    Raises:
        UsageError: when the directory cannot be made or written.
    """

    def __init__(self, directory: str | os.PathLike[str], *, compress: bool = False) -> None:
        self.directory = Path(directory)
        self.compress = compress
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot("write recordings to", self.directory, error) from error

    def path(self, step: int, split: str = "train") -> Path:
        """Where the shard of a step lies."""
        if step < 0 or not _SPLIT.fullmatch(split):
            raise ValueError(f"no shard for step {step} of split {split!r}")
        return self.directory / f"{split}-{step:06d}.jsonl{'.gz' if self.compress else ''}"

    def write(self, step: int, groups: Sequence[TrajectoryGroup], *, split: str = "train") -> Path:
        """Write (or write anew) the shard of a step.

        Raises:
            UsageError: when it cannot be written; nothing half-written stays.
            ValueError: for a value that JSON cannot hold (a log-probability that is not finite).
        """
        path = self.path(step, split)
        data = b"".join(_lines(step, split, groups))
        if self.compress:
            data = gzip.compress(data, mtime=0)
        try:
            write_whole(path, data)
        except OSError as error:
            raise _cannot("write", path, error) from error
        return path

    def discard_after(self, step: int) -> list[Path]:
        """Remove the shards of later steps, of every split, and what a killed writer left; returns what went."""
        gone = [path for number, _, path in _shards(self.directory) if number > step]
        gone += self.directory.glob(f"*{PARTIAL}")
        try:
            for path in gone:
                path.unlink(missing_ok=True)
            sync(self.directory)
        except OSError as error:
            raise _cannot("remove recordings in", self.directory, error) from error
        return gone


def shards(directory: str | os.PathLike[str], *, split: str | None = None) -> list[Path]:
    """The complete shards of a directory by step (and split)."""
    return [path for _, found, path in sorted(_shards(Path(directory))) if split in (None, found)]


def header(path: str | os.PathLike[str]) -> Header:
    """The header of a shard; raises `UsageError` as `read` does."""
    for _, line in _parsed(Path(path)):
        return _checked_header(Path(path), line)
    raise UsageError(f"{path} is empty: not a recording")


def read(path: str | os.PathLike[str]) -> Iterator[TrajectoryGroup]:
    """The groups of a shard, one at a time.

    Raises:
        UsageError: not a recording, of another schema, corrupted or cut off; names the line.
    """
    path = Path(path)
    expected = header(path)
    group: TrajectoryGroup | None = None
    missing = groups = episodes = 0
    number = 1
    for number, line in _parsed(path):
        if number == 1:
            continue
        if isinstance(line, _EpisodeLine) and group is not None and missing:
            group.trajectories.append(line.trajectory)
            missing -= 1
            episodes += 1
        elif isinstance(line, _GroupLine) and not missing:
            if group is not None:
                yield group
            group = TrajectoryGroup(line.group_id, line.task, [], line.dropped)
            missing = line.episodes
            groups += 1
        else:
            raise UsageError(f"{path}, line {number}: a {line.kind} line where none belongs")
    if missing or (groups, episodes) != (expected.groups, expected.episodes):
        raise UsageError(
            f"{path}, line {number}: cut off after {episodes} of {expected.episodes} episodes in {groups} of "
            f"{expected.groups} groups"
        )
    if group is not None:
        yield group


def _lines(step: int, split: str, groups: Sequence[TrajectoryGroup]) -> Iterator[bytes]:
    total = sum(len(group.trajectories) for group in groups)
    yield _dump(
        Header(
            schema_version=SCHEMA_VERSION,
            sojourn=__version__,
            step=step,
            split=split,
            groups=len(groups),
            episodes=total,
        ).model_dump()
    )
    for group in groups:
        line = _GroupLine(
            group_id=group.group_id, task=group.task, dropped=group.dropped, episodes=len(group.trajectories)
        )
        yield _dump(line.model_dump())
        for trajectory in group.trajectories:
            _refuse_infinite(trajectory)
            yield _dump({"kind": "episode", "trajectory": trajectory})


def _dump(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"a recording cannot hold this: {error}") from error


def _refuse_infinite(trajectory: Trajectory) -> None:
    """JSON writes NaN and infinity as null, which would be read back as something else."""
    numbers = [trajectory.score, trajectory.seconds, trajectory.started, *(t.reward for t in trajectory.turns)]
    for segment in trajectory.segments:
        numbers += segment.logprobs
    for number in numbers:
        if not math.isfinite(number):
            raise ValueError(f"{trajectory.episode_id} holds {number}, which a recording cannot")


def _parsed(path: Path) -> Iterator[tuple[int, Header | _GroupLine | _EpisodeLine]]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    raise UsageError(f"{path}, line {number}: cut off in the middle")
                yield number, _ANY_LINE.validate_json(line)
    except ValidationError as error:
        raise UsageError(f"{path}, line {number}: not a recording's line ({first_problem(error)})") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{path}, line {number + 1}: the compressed data end or break here ({error})") from error
    except OSError as error:
        raise _cannot("read", path, error) from error


def _checked_header(path: Path, line: Header | _GroupLine | _EpisodeLine) -> Header:
    if not isinstance(line, Header):
        raise UsageError(f"{path}, line 1: a recording begins with its header")
    if line.schema_version != SCHEMA_VERSION:
        raise UsageError(
            f"{path}, line 1: schema {line.schema_version}, this is Sojourn {__version__} with schema {SCHEMA_VERSION}"
        )
    return line


def _shards(directory: Path) -> list[tuple[int, str, Path]]:
    try:
        found = [(path, _NAME.fullmatch(path.name)) for path in directory.iterdir()]
    except OSError as error:
        raise _cannot("read recordings in", directory, error) from error
    return [(int(match["step"]), match["split"], path) for path, match in found if match]


def _cannot(what: str, path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot {what} {path}: {error.strerror or error}")
