"""MkDocs hook: tables of every configuration key, read from the classes themselves: they cannot be out of date."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

MARKER = "<!-- configuration tables -->"
OFFLINE_MARKER = "<!-- offline configuration tables -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables in place of the marker."""
    if OFFLINE_MARKER in markdown:
        return markdown.replace(OFFLINE_MARKER, offline_tables())
    return markdown.replace(MARKER, tables()) if MARKER in markdown else markdown


def tables() -> str:
    """One table for the top, one for each section."""
    from sojourn.algorithms import registry
    from sojourn.trainer.config import TrainConfig

    sections: list[tuple[str, list[type[BaseModel]]]] = []
    top = []
    for name, field in TrainConfig.model_fields.items():
        algorithms = [registry.load(algorithm).Config for algorithm in registry.BUILTIN]
        models = algorithms if name == "algorithm" else models_of(field.annotation)
        if models:
            sections.append((f"{name}[]" if name == "envs" else name, models))
        else:
            top.append((name, field))
    text = [table(TrainConfig, top)]
    for name, models in sections:
        for model in models:
            tag = model.model_fields.get("type") or model.model_fields.get("name")
            title = (
                f"{name} ({tag.default})"
                if tag is not None and name in {"horizon", "curriculum", "algorithm"}
                else name
            )
            text += [f"## {title}", inspect.getdoc(model) or "", table(model, list(rows(model)))]
    return "\n\n".join(text)


def offline_tables() -> str:
    """What a run on fixed data has besides the sections that all runs share."""
    from sojourn.algorithms import registry
    from sojourn.trainer.offline.config import OfflineConfig

    text = []
    for name in ("data", "pairs", "trainer", "optim", "algorithm"):
        methods = [registry.load_offline(method).Config for method in registry.OFFLINE]
        for model in methods if name == "algorithm" else models_of(OfflineConfig.model_fields[name].annotation):
            tag = model.model_fields.get("type") or model.model_fields.get("name")
            title = f"{name} ({tag.default})" if tag is not None else name
            text += [f"### {title}", inspect.getdoc(model) or "", table(model, list(rows(model)))]
    return "\n\n".join(text)


def rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Keys of a section, those of sections within it by their dotted path."""
    for name, field in model.model_fields.items():
        inner = models_of(field.annotation)
        if inner:
            for nested in inner:
                yield from rows(nested, f"{prefix}{name}{step(field.annotation)}.")
        else:
            yield f"{prefix}{name}", field


def step(annotation: Any) -> str:
    """What stands between the key of a list or of a mapping by environment and the keys of its items."""
    origin = get_origin(annotation)
    return "[]" if origin is tuple else ".ENV" if origin is dict else ""


def table(model: type[BaseModel], fields: list[tuple[str, FieldInfo]]) -> str:
    """A Markdown table of key, type, default and what the key is for."""
    lines = ["| key | type | default | |", "|---|---|---|---|"]
    for name, field in fields:
        what = documentation(model, name).replace("|", "\\|")
        lines.append(f"| `{name}` | {spelled(field.annotation)} | {default(field)} | {what} |")
    return "\n".join(lines)


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """The configuration classes that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_of(inner)]


def documentation(model: type[BaseModel], path: str) -> str:
    """The string under a field in its class, as one line."""
    name, _, rest = path.partition(".")
    if rest:
        field = model.model_fields[name.removesuffix("[]")]
        return documentation(models_of(field.annotation)[0], rest.removeprefix("ENV."))
    for owner in model.__mro__:
        if name in vars(owner).get("__annotations__", {}) and (found := _strings(owner).get(name)):
            return found
    return ""


def _strings(model: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[field.target.id] = " ".join(after.value.value.split())
    return found


def spelled(annotation: Any) -> str:
    """A type as a reader of YAML would say it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin is Annotated:
        return spelled(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(map(spelled, arguments))
    if origin is tuple:
        return f"list of {spelled(arguments[0])}"
    if origin is not None:
        return f"{origin.__name__} of {', '.join(map(spelled, arguments))}"
    return str(annotation.__name__)


def default(field: FieldInfo) -> str:
    """A default as YAML would spell it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "null"
    return "" if isinstance(value, BaseModel) else f"`{json.dumps(value)}`".replace('"', "")
