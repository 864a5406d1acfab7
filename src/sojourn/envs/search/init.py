"""What `init` and `inject` may say: a question of one's own, and passages beside the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from sojourn.protocol.errors import InvalidInit
from sojourn.protocol.validation import first_problem

MOST_ADDED = 100
"""Passages that an episode may have beside the corpus."""
_Model = TypeVar("_Model", bound=BaseModel)
Line = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"\S")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=20_000, pattern=r"\S")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class OwnQuestion(_Strict):
    """A question in place of the task's."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=5_000, pattern=r"\S")]
    answers: list[Line] = Field(min_length=1, max_length=100)
    """All that is accepted."""


class OwnPassage(_Strict):
    """A passage that the corpus lacks: news, a contradiction, a trap."""

    title: Line
    text: Text


class SearchInit(_Strict):
    """How an episode starts otherwise than with the task's question and the corpus as it is."""

    question: OwnQuestion | None = None
    passages: list[OwnPassage] = Field(default_factory=list, max_length=MOST_ADDED)
    """Found by queries that share their words (at least half), before what the retriever finds."""


class SearchInject(_Strict):
    """A change in the middle of an episode: another question, further passages."""

    question: OwnQuestion | None = None
    """What was paid stays paid; the oracle knows nothing of it."""
    passages: list[OwnPassage] = Field(default_factory=list, max_length=MOST_ADDED)


def parse_init(init: Mapping[str, Any] | None) -> SearchInit:
    """Read an `init`; raises `InvalidInit` with the first reason."""
    return _validate(SearchInit, init or {})


def parse_inject(change: Mapping[str, Any]) -> SearchInject:
    """Read an `inject`, which has to change something; raises `InvalidInit` with the first reason."""
    found = _validate(SearchInject, change)
    if found.question is None and not found.passages:
        raise InvalidInit("inject needs a question or passages")
    return found


def _validate(model: type[_Model], value: object) -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInit(first_problem(error)) from error
