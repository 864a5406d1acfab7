"""Environments by name: one line each for ours, the entry-point group `sojourn.envs` for everybody else's."""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points

from sojourn.envs.base import EnvService
from sojourn.protocol.errors import UsageError

BUILTIN = {
    "babyai": "sojourn.envs.babyai:BabyAIService",
    "sciworld": "sojourn.envs.sciworld:SciWorldService",
    "textcraft": "sojourn.envs.textcraft:TextCraftService",
}


def names() -> list[str]:
    """Every registered environment, ours and third-party."""
    return sorted({*BUILTIN, *(point.name for point in entry_points(group="sojourn.envs"))})


def lacking() -> dict[str, str]:
    """The registered environments that cannot be opened on this machine, each with the line that says why."""
    found: dict[str, str] = {}
    for name in names():
        try:
            lack = load(name).lack()
        except UsageError as error:
            lack = str(error)
        if lack is not None:
            found[name] = lack
    return found


def load(name: str) -> type[EnvService]:
    """The service class of an environment; imports only that environment.

    Raises:
        UsageError: for an unknown name, or an environment whose extra is not installed.
    """
    if name in BUILTIN:
        module, _, attribute = BUILTIN[name].partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith("sojourn"):
                raise
            raise UsageError(f"environment {name!r} needs {error.name!r}: pip install 'sojourn[{name}]'") from error
    else:
        points = {point.name: point for point in entry_points(group="sojourn.envs")}
        if name not in points:
            near = difflib.get_close_matches(name, names(), n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"no environment {name!r}{hint} (known: {', '.join(names())})")
        found = points[name].load()
    if not (isinstance(found, type) and issubclass(found, EnvService)):
        raise UsageError(f"environment {name!r} does not lead to an EnvService class")
    return found
