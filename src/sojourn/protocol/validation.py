"""What is wrong with a value that somebody sent or wrote, in half a sentence."""

from __future__ import annotations

from pydantic import ValidationError

_LONGEST = 80
"""Characters of a field's name: it may be the sender's own."""


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong, as `field: what`; without the field where it is the value as a whole."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part)[:_LONGEST] for part in problem["loc"])
    what = "expected an object" if problem["type"] == "model_type" else problem["msg"].removeprefix("Value error, ")
    return _one_line(f"{where}: {what}" if where else what)


def _one_line(text: str) -> str:
    """With what cannot be printed as it is written in a string: names are the sender's, messages may quote them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
