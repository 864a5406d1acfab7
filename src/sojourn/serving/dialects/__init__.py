"""The protocols of others over the same session table: AgentGym's and OpenEnv's.

Each is at `/{dialect}/{env}/...`; one of them, for one environment, may answer at the root path too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from sojourn.protocol.errors import UsageError
from sojourn.serving.config import DialectsConfig
from sojourn.serving.dialects.agentgym import AgentGym
from sojourn.serving.dialects.openenv import OpenEnv
from sojourn.serving.dialects.searchqa import SearchQA
from sojourn.serving.http import http_problem, json_response
from sojourn.serving.operations import Operations

PATHS = {("agentgym", "search"): "searchqa"}
"""Where an environment has another name in a dialect."""

_PREFIXES = ("/agentgym/", "/openenv/")


def dialect_routes(operations: Operations) -> list[BaseRoute]:
    """Every dialect's routes, those at the root path first.

    Raises:
        UsageError: the root path is promised to an environment that is not served, or not in this dialect.
    """
    dialects = (
        ("agentgym", AgentGym(operations)),
        ("agentgym", SearchQA(operations)),
        ("openenv", OpenEnv(operations)),
    )
    offered = {(name, env): dialect for name, dialect in dialects for env in dialect.envs}
    config = operations.config.dialects
    found: list[BaseRoute] = []
    if config.root is not None and config.root_env is not None:
        if (config.root, config.root_env) not in offered:
            known = ", ".join(env for name, env in offered if name == config.root) or "none of the served environments"
            raise UsageError(f"{config.root_env!r} is not served in the {config.root} dialect (it has: {known})")
        found += offered[config.root, config.root_env].routes("", config.root_env)
    for (name, env), dialect in offered.items():
        found += dialect.routes(f"/{name}/{PATHS.get((name, env), env)}", env)
    return found


def no_route(config: DialectsConfig) -> Callable[[Request, Exception], Awaitable[Response]]:
    """What answers an unknown path or method: a problem document, or below a dialect what FastAPI says, of which its
    servers are made.
    """

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        if path.startswith(_PREFIXES) or (config.root is not None and not path.startswith("/v1/")):
            response = json_response(orjson.dumps({"detail": error.detail}), error.status_code)
            response.headers.update(error.headers or {})
            return response
        return await http_problem(request, error)

    return answer
