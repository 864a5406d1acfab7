"""Failures told to a person: one line on stderr that says what to do, and an exit code."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from sojourn.protocol.errors import ServiceError, TransportError, UsageError

MENDABLE = (UsageError, ServiceError, TransportError)


def report(error: BaseException, arguments: Sequence[str]) -> int:
    """Print one line about `error` and return the exit code; with SOJOURN_DEBUG set, the traceback comes first."""
    error = _first_leaf(error)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        _say("interrupted")
        return 130
    if os.environ.get("SOJOURN_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, TyperException):
        _say(f"{error.format_message()} (see: {_help_command(arguments)})")
        return 2
    if isinstance(error, MENDABLE):
        _say(str(error))
        return 2
    _say(f"{type(error).__name__}: {error} (a bug; the traceback is in {_keep(error)})")
    return 1


def require_extra(module: str, extra: str) -> None:
    """Import `module` now, before work begins, or raise a `UsageError` that names the extra which brings it."""
    try:
        __import__(module)
    except ModuleNotFoundError as missing:
        raise UsageError(f"this needs {missing.name!r}: pip install 'sojourn[{extra}]'") from missing


def _first_leaf(error: BaseException) -> BaseException:
    """The exception inside the groups that task groups wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _say(text: str) -> None:
    print("sojourn: " + " ".join(text.split()), file=sys.stderr)


def _help_command(arguments: Sequence[str]) -> str:
    command = next((a for a in arguments if not a.startswith("-")), None)
    return f"sojourn {command} --help" if command else "sojourn --help"


def _keep(error: BaseException) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="sojourn-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    return log.name
