"""The protocols of others over the same session table: AgentGym's and OpenEnv's.

Each is at `/{dialect}/{env}/...`; one of them, for one environment, may answer at the root path too.
"""

from __future__ import annotations

from starlette.routing import BaseRoute

from sojourn.protocol.errors import UsageError
from sojourn.serving.dialects.agentgym import AgentGym
from sojourn.serving.dialects.openenv import OpenEnv
from sojourn.serving.operations import Operations


def dialect_routes(operations: Operations) -> list[BaseRoute]:
    """Every dialect's routes, those at the root path first.

    Raises:
        UsageError: the root path is promised to an environment that is not served, or not in this dialect.
    """
    dialects: dict[str, AgentGym | OpenEnv] = {"agentgym": AgentGym(operations), "openenv": OpenEnv(operations)}
    config = operations.config.dialects
    found: list[BaseRoute] = []
    if config.root is not None and config.root_env is not None:
        dialect = dialects[config.root]
        if config.root_env not in dialect.envs:
            known = ", ".join(dialect.envs) or "none of the served environments"
            raise UsageError(f"{config.root_env!r} is not served in the {config.root} dialect (it has: {known})")
        found += dialect.routes("", config.root_env)
    for name, dialect in dialects.items():
        for env in dialect.envs:
            found += dialect.routes(f"/{name}/{env}", env)
    return found
