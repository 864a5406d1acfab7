"""The OpenAPI 3.1 document of the native API, made from the very models that check the requests."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import sojourn
from sojourn.protocol.env import EnvSpec
from sojourn.serving import replies, requests

_REF = "#/components/schemas/{model}"


class _Operation(NamedTuple):
    method: str
    path: str
    summary: str
    body: type[BaseModel] | None = None
    reply: type[BaseModel] | None = None
    status: int = 200
    keyed: bool = False
    """Takes an idempotency key."""
    access: str = "control"


_S = "/v1/sessions/{id}"
_OPERATIONS = (
    _Operation("post", "/v1/sessions", "Create and reset", requests.CreateBody, replies.SessionReply, 201, keyed=True),
    _Operation("get", _S, "What a session is and how long its lease runs", reply=replies.SessionState),
    _Operation("delete", _S, "Close a session; again is no error", status=204),
    _Operation("post", f"{_S}/step", "Act", requests.StepBody, replies.StepReply, access="step"),
    _Operation("post", f"{_S}/reset", "Start a task from nothing", requests.ResetBody, replies.SeenReply),
    _Operation("post", f"{_S}/inject", "Change the state mid-episode", requests.InjectBody, replies.SeenReply),
    _Operation("post", f"{_S}/restore", "Go back to a snapshot", requests.RestoreBody, replies.SeenReply),
    _Operation("post", f"{_S}/snapshot", "Freeze the present state", reply=replies.SnapshotReply, status=201),
    _Operation("post", f"{_S}/fork", "Branch the world", requests.ForkBody, replies.ForkReply, 201, keyed=True),
    _Operation("post", f"{_S}/renew", "Extend the lease", requests.RenewBody, replies.RenewReply),
    _Operation("get", f"{_S}/actions", "Actions the world would take now", reply=replies.ActionsReply),
    _Operation("get", f"{_S}/solution", "The scripted solution from here", reply=replies.SolutionReply),
    _Operation("get", "/v1/envs", "Environments served here", reply=replies.EnvsReply),
    _Operation("get", "/v1/workers", "Worker processes and their addresses", reply=replies.WorkersReply),
    _Operation("get", "/health", "Whether the process lives", reply=replies.StatusReply, access="open"),
)


@cache
def document() -> dict[str, Any]:
    """The whole document, as JSON values."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in _OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation)
    paths["/v1/steps"] = {"post": _steps()}
    paths["/v1/envs/{env}/tasks"] = {"get": _tasks()}
    paths["/v1/snapshots/{digest}"] = {"get": _download(), "put": _upload()}
    paths["/ready"] = {"get": _ready()}
    paths["/metrics"] = {"get": _metrics()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sojourn environment service",
            "version": sojourn.__version__,
            "description": "Sessions in worlds: create, step, reset, snapshot, restore, fork, inject.",
        },
        "paths": paths,
        "components": {"schemas": _schemas(), "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _schemas() -> dict[str, Any]:
    models: list[type[BaseModel]] = [requests.StepsBody, replies.StepLine, replies.TasksReply, replies.Problem, EnvSpec]
    for operation in _OPERATIONS:
        models += [model for model in (operation.body, operation.reply) if model is not None]
    unique = list(dict.fromkeys(models))
    _, definitions = models_json_schema([(model, "validation") for model in unique], ref_template=_REF)
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


def _describe(operation: _Operation) -> dict[str, Any]:
    described = _common(operation.summary, operation.access, [_path(name) for name in _names(operation.path)])
    if operation.keyed:
        described["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "The same key and body again gives the same reply and acts once.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
            }
        )
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(operation.body)}
    success: dict[str, Any] = {"description": "Done"}
    if operation.reply is not None:
        success["content"] = _json(operation.reply)
    described["responses"][str(operation.status)] = success
    return described


def _steps() -> dict[str, Any]:
    described = _common("Steps of many sessions; one line of NDJSON for each as it becomes ready", "step", [])
    described["requestBody"] = {"required": True, "content": _json(requests.StepsBody)}
    described["responses"]["200"] = {
        "description": "One `StepLine` a line, in the order of completion; each has its own status",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
    return described


def _tasks() -> dict[str, Any]:
    parameters = [
        _path("env"),
        {"name": "split", "in": "query", "required": True, "schema": {"type": "string", "maxLength": 64}},
        {"name": "family", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}, "explode": True},
        {"name": "offset", "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}},
        {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": 10_000}},
    ]
    described = _common("One page of a split, in a fixed order", "control", parameters)
    described["responses"]["200"] = {"description": "A page", "content": _json(replies.TasksReply)}
    return described


def _download() -> dict[str, Any]:
    described = _common("The bytes of a snapshot", "control", [_digest()])
    described["responses"]["200"] = {"description": "A snapshot", "content": _bytes()}
    return described


def _upload() -> dict[str, Any]:
    described = _common("Store a snapshot from elsewhere", "control", [_digest()])
    described["requestBody"] = {"required": True, "content": _bytes()}
    described["responses"]["204"] = {"description": "Stored"}
    return described


def _ready() -> dict[str, Any]:
    described = _common("Whether sessions can be opened", "open", [])
    described["responses"] |= {
        status: {"description": text, "content": _json(replies.StatusReply)}
        for status, text in (("200", "Ready"), ("503", "Starting or shutting down"))
    }
    return described


def _metrics() -> dict[str, Any]:
    described = _common("Prometheus metrics", "control", [])
    described["responses"]["200"] = {
        "description": "Metrics",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    return described


def _common(summary: str, access: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
    return {
        "summary": summary,
        "parameters": parameters,
        "security": [] if access == "open" else [{"bearer": []}],
        "x-access": access,
        "responses": {
            status: {"description": text, "content": problem}
            for status, text in (("4XX", "Refused, with the reason"), ("5XX", "The environment failed"))
        },
    }


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=model.__name__)}}}


def _bytes() -> dict[str, Any]:
    return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _digest() -> dict[str, Any]:
    return _path("digest") | {"schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}


def _path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _names(path: str) -> list[str]:
    return [part.strip("{}") for part in path.split("/") if part.startswith("{")]
