"""What the directory of an index says about itself, in `sojourn-index.json`: how far it is, and of which corpus."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sojourn.envs.search.retrieval.analysis import ANALYSIS, ENGINE
from sojourn.files import write_whole
from sojourn.protocol.errors import UsageError

NAME = "sojourn-index.json"
FORMAT = 1


class Point(BaseModel):
    """The first `passages` of a corpus, and their digest (`corpus.CorpusDigest`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    passages: int
    digest: str


class Manifest(BaseModel):
    """One index."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    analysis: str = ANALYSIS
    engine: str = ENGINE
    corpus: str
    """Name of the corpus file."""
    finished: bool = False
    points: tuple[Point, ...] = ()
    """While building, the last commit and the one under way; once finished, the whole corpus."""

    @property
    def whole(self) -> Point:
        """The corpus of a finished index."""
        assert self.finished
        return self.points[-1]

    def write(self, directory: Path) -> None:
        write_whole(directory / NAME, self.model_dump_json(indent=1) + "\n")


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest; None where there is no index, or no directory.

    Raises:
        UsageError: it cannot be read, or is of another version.
    """
    path = directory / NAME
    try:
        document = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        manifest = Manifest.model_validate_json(document)
    except ValidationError as error:
        raise UsageError(f"{path} is damaged, or of another version of Sojourn: build the index again") from error
    if (manifest.format, manifest.analysis) != (FORMAT, ANALYSIS):
        raise UsageError(f"{directory} was built by another version of Sojourn: build the index again")
    return manifest
