"""Optional parts of the installation, and configurations that come with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from sojourn.protocol.errors import UsageError


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Imports inside the block come with an extra; one that is missing becomes a `UsageError` that says which."""
    try:
        yield
    except ModuleNotFoundError as missing:
        module = missing.name or "a package"
        if module.partition(".")[0] == "sojourn":
            raise
        raise UsageError(f"this needs {module!r}, which is not installed: pip install 'sojourn[{extra}]'") from missing


def find_config(name: str) -> Path:
    """A YAML file by path, or one that comes with Sojourn by its name.

    Raises:
        UsageError: neither.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = Path(str(resources.files("sojourn"))) / "configs"
    known = {file.stem: file for file in sorted(shipped.glob("*.yaml"))}
    if path.suffix in {"", ".yaml"} and path.stem in known and path.parent.name in {"", "configs"}:
        return known[path.stem]
    raise UsageError(f"no config {name!r}: neither a file nor one that comes with Sojourn ({', '.join(known)})")
