"""A disk that will not take what a run writes is the user's to mend: one line, and what was written before stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from sojourn.protocol.errors import UsageError

_MEND = " (make room there, or give another --run-dir)"


@contextmanager
def writing(path: Path, what: str = "") -> Iterator[None]:
    """Inside, a failure to write becomes a `UsageError` that names the path (after `what` it is) and the reason."""
    name = f"{what} {path}" if what else str(path)
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {name}: {error.strerror or error}{_MEND}") from error
    except SafetensorError as error:
        # Its text carries the system's reason; it has no other attribute.
        raise UsageError(f"cannot write {name}: {error}{_MEND}") from error
