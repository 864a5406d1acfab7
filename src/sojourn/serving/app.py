"""The native API as a Starlette application: routes, access and replies. What the verbs do is in `operations`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sojourn.envs.base import EnvService
from sojourn.protocol.errors import BadRequest, UsageError
from sojourn.serving import requests as bodies
from sojourn.serving.auth import Access, Guard
from sojourn.serving.batch import BatchResponse, StepBatch
from sojourn.serving.config import ServingConfig
from sojourn.serving.dialects import dialect_routes, no_route
from sojourn.serving.http import Handler, answered, json_response, read_body
from sojourn.serving.idempotency import OnceByKey, detach
from sojourn.serving.metrics import CONTENT_TYPE
from sojourn.serving.openapi import document
from sojourn.serving.operations import Operations
from sojourn.serving.replies import encode


class Verb(NamedTuple):
    """One line of the API's table."""

    method: str
    path: str
    access: Access
    handler: Handler


def create_app(
    services: Sequence[EnvService],
    config: ServingConfig | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Starlette:
    """The environment server as an ASGI application; its lifespan opens and closes the services.

    Raises:
        UsageError: two services of one name, or none at all.
    """
    config = config or ServingConfig()
    if not services:
        raise UsageError("a server needs at least one environment")
    names = [service.spec.name for service in services]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"environment {name!r} is given twice")
    operations = Operations(services, config, clock)
    api = _Api(operations, config)
    app = Starlette(
        routes=[*dialect_routes(operations), *(api.route(verb) for verb in api.verbs())],
        lifespan=api.lifespan,
        exception_handlers={HTTPException: no_route(config.dialects)},
    )
    app.state.operations = operations
    return app


class _Api:
    def __init__(self, operations: Operations, config: ServingConfig) -> None:
        self._do = operations
        self._config = config
        self._guard = Guard(config)
        self._created = OnceByKey()
        self._forked = OnceByKey()
        self._serving = False

    def verbs(self) -> list[Verb]:
        step, control, everybody = Access.STEP, Access.CONTROL, Access.OPEN
        session = "/v1/sessions/{id}"
        return [
            Verb("POST", "/v1/steps", step, self.steps),
            Verb("POST", "/v1/sessions", control, self.create),
            Verb("POST", f"{session}/step", step, self.step),
            Verb("POST", f"{session}/reset", control, self.reset),
            Verb("POST", f"{session}/inject", control, self.inject),
            Verb("POST", f"{session}/restore", control, self.restore),
            Verb("POST", f"{session}/snapshot", control, self.snapshot),
            Verb("POST", f"{session}/fork", control, self.fork),
            Verb("GET", f"{session}/actions", control, self.actions),
            Verb("GET", f"{session}/solution", control, self.solution),
            Verb("POST", f"{session}/renew", control, self.renew),
            Verb("GET", session, control, self.describe),
            Verb("DELETE", session, control, self.delete),
            Verb("GET", "/v1/snapshots/{digest}", control, self.get_snapshot),
            Verb("PUT", "/v1/snapshots/{digest}", control, self.put_snapshot),
            Verb("GET", "/v1/envs", control, self.envs),
            Verb("GET", "/v1/envs/{env}/tasks", control, self.tasks),
            Verb("GET", "/v1/workers", control, self.workers),
            Verb("GET", "/health", everybody, self.health),
            Verb("GET", "/ready", everybody, self.ready),
            Verb("GET", "/metrics", control, self.metrics),
            Verb("GET", "/openapi.json", everybody, self.openapi),
        ]

    def route(self, verb: Verb) -> Route:
        """A verb with its access check, its errors as problem documents and its time measured."""

        async def guarded(request: Request) -> Response:
            self._guard.check(verb.access, request.headers.get("authorization"))
            return await verb.handler(request)

        async def endpoint(request: Request) -> Response:
            started = time.perf_counter()
            response = await answered(guarded, request)
            self._do.metrics.request(f"{verb.method} {verb.path}", response.status_code, time.perf_counter() - started)
            return response

        route = Route(verb.path, endpoint, methods=[verb.method])
        # HEAD comes with GET in Starlette; the document names what is listed, no more.
        assert route.methods is not None
        route.methods.discard("HEAD")
        return route

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self._do.open()
        sweeper = asyncio.get_running_loop().create_task(self._sweep())
        self._serving = True
        try:
            yield
        finally:
            self._serving = False
            sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await sweeper
            await self._do.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._config.sweep_s)
            self._do.sweep()

    # -- sessions --------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        body = await self._body(request, bodies.CreateBody)
        key = request.headers.get("idempotency-key")
        forget = partial(self._created.forget, key)
        reply = await self._created.run(key, body.model_dump_json(), lambda: self._do.create(body, forget))
        return json_response(reply, 201)

    async def fork(self, request: Request) -> Response:
        body = await self._body(request, bodies.ForkBody)
        session = request.path_params["id"]
        key = request.headers.get("idempotency-key")
        fingerprint = bodies.canonical([session, body.count])
        forget = partial(self._forked.forget, key)
        reply = await self._forked.run(key, fingerprint, lambda: self._do.fork(session, body, forget))
        return json_response(reply, 201)

    async def steps(self, request: Request) -> Response:
        body = await self._body(request, bodies.StepsBody)
        if len(body.items) > self._config.max_batch:
            raise BadRequest(f"items: at most {self._config.max_batch} steps in one request")
        return BatchResponse(StepBatch(self._do, body.items))

    async def step(self, request: Request) -> Response:
        body = await self._body(request, bodies.StepBody)
        return json_response(await detach(self._do.step(request.path_params["id"], body.revision, body.action)))

    async def reset(self, request: Request) -> Response:
        body = await self._body(request, bodies.ResetBody)
        return json_response(await detach(self._do.reset(request.path_params["id"], body)))

    async def inject(self, request: Request) -> Response:
        body = await self._body(request, bodies.InjectBody)
        return json_response(await detach(self._do.inject(request.path_params["id"], body)))

    async def restore(self, request: Request) -> Response:
        body = await self._body(request, bodies.RestoreBody)
        return json_response(await detach(self._do.restore(request.path_params["id"], body)))

    async def snapshot(self, request: Request) -> Response:
        return json_response(await detach(self._do.snapshot(request.path_params["id"])), 201)

    async def actions(self, request: Request) -> Response:
        return json_response(await detach(self._do.actions(request.path_params["id"])))

    async def solution(self, request: Request) -> Response:
        return json_response(await detach(self._do.solution(request.path_params["id"])))

    async def describe(self, request: Request) -> Response:
        return json_response(self._do.describe(request.path_params["id"]))

    async def renew(self, request: Request) -> Response:
        body = await self._body(request, bodies.RenewBody)
        return json_response(self._do.renew(request.path_params["id"], body))

    async def delete(self, request: Request) -> Response:
        await self._do.delete(request.path_params["id"])
        return Response(status_code=204)

    # -- snapshots -------------------------------------------------------------------------------------------------

    async def get_snapshot(self, request: Request) -> Response:
        stored = self._do.snapshots.get(request.path_params["digest"]).snapshot
        return Response(stored.data, 200, {"sojourn-env": stored.env}, "application/octet-stream")

    async def put_snapshot(self, request: Request) -> Response:
        data = await read_body(request, self._config.max_snapshot_bytes)
        await self._do.put_snapshot(request.path_params["digest"], data)
        return Response(status_code=204)

    # -- discovery -------------------------------------------------------------------------------------------------

    async def envs(self, _: Request) -> Response:
        specs = [service.spec.model_dump() for service in self._do.worlds.services.values()]
        return json_response(encode({"envs": specs}))

    async def tasks(self, request: Request) -> Response:
        query: dict[str, Any] = dict(request.query_params)
        query["family"] = request.query_params.getlist("family")
        return json_response(self._do.tasks(request.path_params["env"], bodies.parse_query(bodies.TasksQuery, query)))

    async def workers(self, request: Request) -> Response:
        me = {
            "id": self._config.worker,
            "url": str(request.base_url).rstrip("/"),
            "alive": True,
            "sessions": len(self._do.sessions),
            "max_sessions": self._config.max_sessions,
        }
        return json_response(encode({"workers": [me]}))

    async def health(self, _: Request) -> Response:
        return json_response(b'{"status":"ok"}')

    async def ready(self, _: Request) -> Response:
        return json_response(b'{"status":"ready"}') if self._serving else json_response(b'{"status":"not ready"}', 503)

    async def metrics(self, _: Request) -> Response:
        return Response(self._do.metrics.render(len(self._do.sessions)), media_type=CONTENT_TYPE)

    async def openapi(self, _: Request) -> Response:
        return json_response(encode(document()))

    async def _body(self, request: Request, model: type[bodies.Model]) -> bodies.Model:
        return bodies.parse_body(model, await read_body(request, self._config.max_body_bytes))
