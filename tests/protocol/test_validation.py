"""What pydantic says, in half a sentence for a person."""

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from sojourn.protocol.validation import first_problem


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner = Inner()
    name: str = ""

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if len(name) > 3:
            raise ValueError("too long a name")
        return name

    @model_validator(mode="after")
    def _fits(self) -> "Outer":
        if self.inner.size > 9:
            raise ValueError("9 at most")
        return self


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"inner": {"size": "x"}}, "inner.size: Input should be a valid integer, unable to parse string as an integer"),
        ({"name": "long"}, "name: too long a name"),
        ({"inner": {"size": 10}}, "9 at most"),
        ([], "expected an object"),
        ({"inner": 3}, "inner: expected an object"),
        ({"x" * 100: 1}, f"{'x' * 80}: Extra inputs are not permitted"),
        ({"a\n\x1b[2Jb": 1}, r"a\n\x1b[2Jb: Extra inputs are not permitted"),
    ],
)
def test_the_first_problem(value, said):
    with pytest.raises(ValidationError) as raised:
        Outer.model_validate(value)
    assert first_problem(raised.value) == said
