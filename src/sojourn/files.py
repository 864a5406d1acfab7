"""Files that others find whole or not at all, and that a loss of power does not take back."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import get_ident

PARTIAL = ".partial"
"""Ends the name of what is being written; what a killed writer left ends so, too."""


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file, text in UTF-8: until its last byte is on the disk, `path` is what it was before.

    A pipe or a device is written to as it is; of a link, the file that it leads to is replaced.

    Raises:
        OSError: it cannot be written; nothing half-written stays.
    """
    content = data.encode() if isinstance(data, str) else data
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    target = path.resolve()
    partial = target.with_name(f"{target.name}.{os.getpid()}.{get_ident()}{PARTIAL}")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync(target.parent)


def sync(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
