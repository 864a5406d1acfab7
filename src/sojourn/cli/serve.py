"""`sojourn serve`: put environments behind the HTTP API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sojourn.files import write_whole
from sojourn.protocol.errors import UsageError
from sojourn.protocol.validation import first_problem

LIMITS = ("threads", "max_fork", "max_batch", "max_body_bytes", "max_snapshot_bytes", "snapshot_store_bytes")
"""Of `ServingConfig`, those that have no option of their own."""


def serve(
    envs: Annotated[
        list[str] | None, typer.Argument(metavar="ENV...", help="Environments to serve, e.g. textcraft babyai.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; another than loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Server processes.")] = 1,
    token_file: Annotated[Path | None, typer.Option(help="File with the token that may do everything.")] = None,
    step_token_file: Annotated[Path | None, typer.Option(help="File with a second token that may only step.")] = None,
    env_config: Annotated[
        list[str] | None, typer.Option(metavar="ENV.KEY=VALUE", help="An option of an environment; repeatable.")
    ] = None,
    max_sessions: Annotated[int | None, typer.Option(min=1, help="Open sessions of one process.")] = None,
    lease_s: Annotated[float | None, typer.Option(help="Seconds that an unused session lives.")] = None,
    deadline_s: Annotated[float | None, typer.Option(help="Seconds that one operation on a world may take.")] = None,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help=f"Another limit: {', '.join(LIMITS)}; repeatable.")
    ] = None,
    dialect: Annotated[
        str | None, typer.Option(help="agentgym or openenv: what one environment speaks at the root path, too.")
    ] = None,
    env: Annotated[str | None, typer.Option(help="That environment, where more than one is served.")] = None,
    legacy_scoring: Annotated[
        bool, typer.Option("--legacy-scoring", help="BabyAI's running score, in the agentgym dialect.")
    ] = False,
    goal_map: Annotated[
        Path | None, typer.Option(help="TextCraft's goals by data_idx, from import-goal-map, in the agentgym dialect.")
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Written with the address once requests are answered.")
    ] = None,
) -> None:
    """Serve environments over HTTP until interrupted.

    Sessions can be reset, stepped, frozen, restored, forked and changed; the API is described at /openapi.json. Clients
    of AgentGym and of OpenEnv find what they know at /agentgym/ENV and /openenv/ENV, or with --dialect at the root.
    """
    from sojourn.serving.auth import STEP_TOKEN_VARIABLE, read_token
    from sojourn.serving.config import ServingConfig
    from sojourn.serving.supervisor import serve as serve_envs

    envs = list(dict.fromkeys([*(envs or []), *([env] if env else [])]))
    if not envs:
        raise UsageError("Missing argument 'ENV...': name an environment to serve (see: sojourn serve --help)")
    _only_where_it_means_something(envs, legacy_scoring, goal_map)
    dialects = {**_root(envs, dialect, env), "legacy_scoring": legacy_scoring, "goal_map": goal_map}
    limits = {"max_sessions": max_sessions, "lease_s": lease_s, "deadline_s": deadline_s}
    token, step_token = read_token(token_file), read_token(step_token_file, STEP_TOKEN_VARIABLE)
    config = _serving_config(
        {
            "token": token,
            "step_token": step_token,
            "dialects": dialects,
            **{key: value for key, value in limits.items() if value is not None},
            **parse_limits(limit or []),
        },
        ServingConfig,
    )

    def ready(url: str) -> None:
        print(f"serving {', '.join(envs)} at {url} (Ctrl-C stops)", flush=True)
        if ready_file is not None:
            write_ready(ready_file, url)

    serve_envs(
        parse_env_config(envs, env_config or []), host=host, port=port, workers=workers, config=config, on_ready=ready
    )


def _root(envs: list[str], dialect: str | None, env: str | None) -> dict[str, str | None]:
    """Who answers at the root path, and in what dialect; raises `UsageError` when that is not clear."""
    if dialect is None:
        if env is not None:
            raise UsageError(f"--env {env} says who speaks a --dialect, and there is none")
        return {"root": None, "root_env": None}
    if env is None and len(envs) > 1:
        raise UsageError(f"--dialect {dialect}: say with --env which of {', '.join(envs)} answers at the root path")
    return {"root": dialect, "root_env": env or envs[0]}


def _only_where_it_means_something(envs: list[str], legacy_scoring: bool, goal_map: Path | None) -> None:
    """Raises `UsageError` for an option of an environment that is not served."""
    for option, env, given in (
        ("--legacy-scoring", "babyai", legacy_scoring),
        ("--goal-map", "textcraft", goal_map is not None),
    ):
        if given and env not in envs:
            raise UsageError(f"{option} is about {env}, which is not among the served ({', '.join(envs)})")


def parse_env_config(envs: list[str], options: list[str]) -> dict[str, dict[str, Any]]:
    """Options by environment from `ENV.KEY=VALUE` words; values are read as YAML.

    Raises:
        UsageError: a word of another shape, or an environment that is not served.
    """
    import yaml

    found: dict[str, dict[str, Any]] = {name: {} for name in envs}
    for option in options:
        path, equals, text = option.partition("=")
        env, dot, key = path.partition(".")
        if not (equals and dot and key):
            raise UsageError(f"--env-config {option!r}: expected ENV.KEY=VALUE")
        if env not in found:
            raise UsageError(f"--env-config {option!r}: {env!r} is not among the served ({', '.join(envs)})")
        try:
            found[env][key] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(f"--env-config {option!r}: the value is not YAML") from error
    return found


def parse_limits(options: list[str]) -> dict[str, str]:
    """Limits from `KEY=VALUE` words; raises `UsageError` for a word of another shape, or no such limit."""
    found = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key not in LIMITS:
            raise UsageError(f"--limit {option!r}: expected KEY=VALUE, the key one of {', '.join(LIMITS)}")
        found[key] = value
    return found


def _serving_config(values: dict[str, Any], cls: Any) -> Any:
    from pydantic import ValidationError

    try:
        return cls.model_validate(values)
    except ValidationError as error:
        raise UsageError(first_problem(error)) from error


def write_ready(path: Path, url: str) -> None:
    """Whoever waits for the file must not read half of it."""
    try:
        write_whole(path, url)
    except OSError as error:
        raise UsageError(f"cannot write --ready-file {path}: {error.strerror}") from error
