"""What is wrong with a configuration, told to a person: key paths, and the nearest key that would have been right."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError


def problems(
    error: ValidationError, root: type[BaseModel], data: Mapping[str, Any], prefix: tuple[str, ...] = ()
) -> Iterator[str]:
    """One phrase for each thing that is wrong.

    Args:
        error: what pydantic says.
        root: the model that was validated.
        data: the plain values that it was given.
        prefix: path of `data` in the whole configuration.
    """
    found = error.errors(include_url=False)
    for problem in found:
        if problem["type"] == "too_short" and any(_below(other["loc"], problem["loc"]) for other in found):
            continue  # the list lacks only the items that are wrong themselves
        location = _without_tags(problem["loc"], data)
        path = ".".join(map(str, (*prefix, *location)))
        if problem["type"] == "extra_forbidden":
            valid = _valid_keys(root, location[:-1], data)
            near = difflib.get_close_matches(str(location[-1]), valid, n=1, cutoff=0.5)
            above = path.rpartition(".")[0]
            hint = (
                f", did you mean {'.'.join(filter(None, (above, *near)))!r}?"
                if near
                else f" (valid: {', '.join(valid)})"
            )
            yield f"unknown key {path!r}{hint}"
        elif problem["type"] == "missing":
            yield f"{path!r} is missing"
        else:
            message = problem["msg"].removeprefix("Value error, ")
            # a check of our own says what it was given, where that helps
            whole = problem["type"] == "value_error" or isinstance(problem["input"], (dict, list, BaseModel))
            given = "" if whole else f", not {problem['input']!r}"
            yield f"{path}: {message}{given}" if path else message


def _below(location: Sequence[int | str], above: Sequence[int | str]) -> bool:
    return len(location) > len(above) and tuple(location[: len(above)]) == tuple(above)


def _without_tags(location: tuple[int | str, ...], data: Any) -> tuple[int | str, ...]:
    """Leave out the discriminators that pydantic puts into an error's location."""
    kept: list[int | str] = []
    for i, part in enumerate(location):
        inside = isinstance(data, Mapping) and part in data
        indexed = isinstance(data, (list, tuple)) and isinstance(part, int) and part < len(data)
        if not inside and not indexed and i < len(location) - 1:
            continue
        kept.append(part)
        data = data[part] if inside or indexed else None
    return tuple(kept)


def _valid_keys(root: type[BaseModel], location: Sequence[int | str], data: Any) -> list[str]:
    """The keys that the section at `location` takes."""
    models: list[type[BaseModel]] = [root]
    for part in location:
        data = data[part]
        if isinstance(part, str):
            models = [m for model in models if part in model.model_fields for m in _models(model.model_fields[part])]
    tagged = [m for m in models if isinstance(data, Mapping) and _tag(m) in {None, data.get("type")}]
    return sorted({key for model in tagged or models for key in model.model_fields})


def _tag(model: type[BaseModel]) -> Any:
    return model.model_fields["type"].default if "type" in model.model_fields else None


def _models(annotated: Any) -> list[type[BaseModel]]:
    """The models that a field's annotation mentions."""
    annotation = getattr(annotated, "annotation", annotated)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, tuple, list, Annotated):
        return [model for inner in get_args(annotation) for model in _models(inner)]
    return []
