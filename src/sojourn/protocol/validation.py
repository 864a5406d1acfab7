"""What is wrong with a value that somebody sent or wrote, in half a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

_LONGEST = 80
"""Characters of a field's name: it may be the sender's own."""


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong, as `field: what`; without the field where it is the value as a whole."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where, what = field_of(problem["loc"]), problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "model_type":
        what = "expected an object"
    return printable(f"{where}: {what}" if where else what)


def field_of(location: Iterable[int | str]) -> str:
    """Where a problem is, dots between; names that are too long are cut."""
    return printable(".".join(str(part)[:_LONGEST] for part in location))


def printable(text: str) -> str:
    """With what cannot be printed as it is written in a string: names are the sender's, messages may quote them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
