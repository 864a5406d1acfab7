"""What the routes of every dialect share: access, metrics, and errors turned into replies."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sojourn.protocol.errors import Forbidden, ServiceError, Unauthorized
from sojourn.serving.auth import Access, Guard
from sojourn.serving.http import problem_response, unexpected
from sojourn.serving.metrics import Metrics

Handler = Callable[[Request], Awaitable[Response]]
OnError = Callable[[ServiceError], Response]


class Endpoints:
    """Makes routes of handlers.

    Args:
        guard: who may do what.
        metrics: where requests are counted.
        on_error: the reply that an error stands for in this dialect; a lack of rights is a problem document in all.
    """

    def __init__(self, guard: Guard, metrics: Metrics, on_error: OnError = problem_response) -> None:
        self._guard = guard
        self._metrics = metrics
        self._on_error = on_error

    def route(self, method: str, path: str, access: Access, handler: Handler) -> Route:
        """One route; `path` may be empty for the root."""

        async def endpoint(request: Request) -> Response:
            started = time.perf_counter()
            try:
                self._guard.check(access, bearer(request.headers.get("authorization")))
                response = await handler(request)
            except (Unauthorized, Forbidden) as error:
                response = problem_response(error)
            except ServiceError as error:
                response = self._on_error(error)
            except ClientDisconnect:
                response = Response(status_code=400)
            except Exception as error:
                response = self._on_error(unexpected(error))
            self._metrics.request(f"{method} {path}", response.status_code, time.perf_counter() - started)
            return response

        return Route(path or "/", endpoint, methods=[method])


def bearer(authorization: str | None) -> str | None:
    """The header; a Basic password counts as a token, since some clients can be given `http://any:TOKEN@host` only."""
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        _, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return authorization
    return f"Bearer {password}"
