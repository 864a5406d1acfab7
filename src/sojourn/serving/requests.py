"""Bodies and queries of the native API. What does not fit is a 400 that names the field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sojourn.protocol.errors import BadRequest
from sojourn.protocol.validation import field_of, printable

_BRIEF = 256
_STRICT = ConfigDict(extra="forbid", strict=True)


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return value


TaskText = Annotated[str, Field(min_length=1, max_length=512)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Revision = Annotated[int, Field(ge=0, lt=1 << 63)]
Lease = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Change = Annotated[dict[str, Any], AfterValidator(_plain)]


class _Body(BaseModel):
    model_config = _STRICT


class CreateBody(_Body):
    """Open a session on a task, or from a stored snapshot."""

    env: str = Field(max_length=64)
    task: TaskText | None = None
    seed: Seed | None = None
    init: Change | None = None
    snapshot: Digest | None = None
    """Instead of task, seed and init."""
    view: str | None = Field(default=None, max_length=64)
    lease_s: Lease | None = None


class ResetBody(_Body):
    revision: Revision
    task: TaskText | None = None
    """None: the task that the session has."""
    seed: Seed | None = None
    init: Change | None = None


class StepBody(_Body):
    revision: Revision
    action: str


class InjectBody(_Body):
    revision: Revision
    change: Change


class RestoreBody(_Body):
    revision: Revision
    snapshot: Digest


class ForkBody(_Body):
    count: int = Field(ge=1)


class RenewBody(_Body):
    lease_s: Lease | None = None


class StepItem(_Body):
    """One session's step in a batch."""

    id: str
    revision: Revision
    action: str


class StepsBody(_Body):
    items: list[StepItem] = Field(min_length=1)


class TasksQuery(BaseModel):
    """`?split=&family=&family=&offset=&limit=`"""

    model_config = ConfigDict(extra="forbid")

    split: str = Field(max_length=64)
    family: list[str] = Field(default_factory=list)
    offset: int = Field(default=0, ge=0, lt=1 << 63)
    limit: int = Field(default=1000, ge=0, le=10_000)


Model = TypeVar("Model", bound=BaseModel)


def parse_body(model: type[Model], body: bytes) -> Model:
    """Read a JSON body; raises `BadRequest` that names the first wrong field."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _bad(error) from error


def parse_query(model: type[Model], query: Mapping[str, Any]) -> Model:
    """Read query parameters; raises `BadRequest` that names the first wrong one."""
    try:
        return model.model_validate(query)
    except ValidationError as error:
        raise _bad(error) from error


def canonical(value: Any) -> str:
    """One text for equal JSON values, by which a repeated request is known."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def brief(text: str) -> str:
    """A text to remember another one by: itself when it is short, else its digest."""
    return (
        text if len(text) <= _BRIEF else f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
    )


def _bad(error: ValidationError) -> BadRequest:
    errors = [
        {"field": field_of(item["loc"]), "message": printable(item["msg"].removeprefix("Value error, "))}
        for item in error.errors(include_url=False, include_context=False, include_input=False)[:16]
    ]
    first = errors[0]
    return BadRequest(f"{first['field'] or 'body'}: {first['message']}", errors=errors)
