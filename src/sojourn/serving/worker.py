"""One server process: the environments it is told to serve, under uvicorn, until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import importlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette

from sojourn.envs import registry
from sojourn.envs.base import EnvService
from sojourn.protocol.errors import UsageError
from sojourn.protocol.validation import first_problem
from sojourn.serving.connection import Connection
from sojourn.serving.lifeline import Lifeline

_GRACE_S = 5.0
_BACKLOG = 2048


class EnvEntry(BaseModel):
    """An environment to serve, with its own options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """A registered name, or `package.module:ServiceClass`."""
    config: dict[str, Any] = Field(default_factory=dict)


def as_entries(envs: Sequence[EnvEntry | str] | Mapping[str, Mapping[str, Any]]) -> tuple[EnvEntry, ...]:
    """Environments by name, by entry, or by name with options; raises `UsageError` for none at all."""
    if isinstance(envs, Mapping):
        found = tuple(EnvEntry(name=name, config=dict(config)) for name, config in envs.items())
    else:
        found = tuple(EnvEntry(name=env) if isinstance(env, str) else env for env in envs)
    if not found:
        raise UsageError("a server needs at least one environment")
    return found


def build_services(entries: Sequence[EnvEntry]) -> list[EnvService]:
    """The services of the entries, each with its checked config.

    Raises:
        UsageError: an unknown environment, or an option that it does not have.
    """
    services = []
    for entry in entries:
        cls = _import(entry.name) if ":" in entry.name else registry.load(entry.name)
        try:
            config = cls.Config.model_validate(entry.config)
        except ValidationError as error:
            known = ", ".join(cls.Config.model_fields) or "none"
            raise UsageError(f"environment {entry.name!r}: {first_problem(error)} (options: {known})") from error
        services.append(cls(config))
    return services


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        UsageError: the address is taken, not ours, or not an address.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return sock


def url_of(sock: socket.socket) -> str:
    """The address at which a client on this machine reaches a listening socket."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def run_app(
    app: Starlette, sock: socket.socket, on_ready: Callable[[], None], drain_s: float, lifeline: Lifeline | None = None
) -> None:
    """Serve until SIGINT, SIGTERM or the end of the parent; then drain, close the services and return."""
    # Entered here and not by uvicorn, so that what keeps a service from opening reaches the caller as it is.
    async with app.router.lifespan_context(app):
        _settle_garbage()
        config = uvicorn.Config(
            app,
            loop="none",
            http=Connection,
            ws="websockets-sansio",
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=max(1, round(drain_s)),
            timeout_keep_alive=75,
        )
        server = _Server(config, on_ready)
        if lifeline is not None:
            lifeline.on_end(server.stop, drain_s + _GRACE_S)
        await server.serve(sockets=[sock])


def _settle_garbage() -> None:
    """Look for garbage among what requests make, not among what the server is: a fifth less CPU time a step.

    Code and worlds stay as long as the process: to look through them for garbage halts everybody for 40 ms. And a
    request lets go of more objects than Python's own threshold (700), at which those of its neighbours still live.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def run(main: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run` on the fastest loop there is."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own raises the signal again when it is done, which would skip the closing of our services.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Ask for a graceful end, from any thread."""
        self._loop.call_soon_threadsafe(setattr, self, "should_exit", True)


def _import(path: str) -> type[EnvService]:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot import the environment {path!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, EnvService)):
        raise UsageError(f"{path!r} is not an EnvService class")
    return found
