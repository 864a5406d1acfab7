"""Algorithms by name: one line each for ours, the entry-point group `sojourn.algorithms` for everybody else's."""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from sojourn.algorithms.base import Algorithm
from sojourn.protocol.errors import UsageError

BUILTIN = {
    "grpo": "sojourn.algorithms.grpo:GRPO",
}


def names() -> list[str]:
    """Every registered algorithm, ours and third-party."""
    return sorted({*BUILTIN, *(point.name for point in entry_points(group="sojourn.algorithms"))})


def load(name: str) -> type[Algorithm[Any]]:
    """The class of an algorithm; imports only that one.

    Raises:
        UsageError: for an unknown name, or an entry point that does not lead to an `Algorithm`.
    """
    if name in BUILTIN:
        module, _, attribute = BUILTIN[name].partition(":")
        found = getattr(import_module(module), attribute)
    else:
        points = {point.name: point for point in entry_points(group="sojourn.algorithms")}
        if name not in points:
            near = difflib.get_close_matches(name, names(), n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"no algorithm {name!r}{hint} (known: {', '.join(names())})")
        found = points[name].load()
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UsageError(f"algorithm {name!r} does not lead to an Algorithm class")
    return found
