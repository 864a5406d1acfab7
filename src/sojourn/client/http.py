"""One server over HTTP: kept-alive connections, problem documents as exceptions, retries of what is safe to repeat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import orjson
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from sojourn.protocol.errors import ServiceError, TooMany, TransportError, UsageError, from_problem

T = TypeVar("T")

ATTEMPTS = 5
_IN_LINE_S = 300.0
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_LIMITS = httpx.Limits(max_connections=256, max_keepalive_connections=16, keepalive_expiry=60.0)
"""Many connections only where worlds are slow: a streamed batch holds one until its last step is ready."""


def retrying() -> AsyncRetrying:
    """Attempts with jittered, growing pauses, for requests that act once however often they arrive."""
    return AsyncRetrying(
        retry=retry_if_exception_type(TransportError),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        reraise=True,
    )


async def in_line(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` returns, asked again as long as the server has too much to do, after the pauses that it names.

    Raises:
        TooMany: it still has after five minutes.
    """

    def named(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return float(error.extra.get("retry_after", 1.0)) if isinstance(error, TooMany) else 1.0

    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(TooMany), stop=stop_after_delay(_IN_LINE_S), wait=named, reraise=True
    ):
        with attempt:
            return await ask()
    raise AssertionError


class Connection:
    """Requests to one server (and to its workers, by absolute address).

    Args:
        base_url: `http://host:port`.
        token: bearer token.
        timeout_s: silence after which a request counts as lost.
        transport: the seam for tests and for the one-process default, such as `httpx.ASGITransport(app)`.

    Raises:
        UsageError: `base_url` is not an HTTP address.
    """

    def __init__(
        self, base_url: str, token: str | None, timeout_s: float, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        try:
            url = httpx.URL(self.base_url)
        except httpx.InvalidURL as error:
            raise UsageError(f"not an address of a server: {base_url!r} ({error})") from error
        if url.scheme not in {"http", "https"} or not url.host:
            raise UsageError(f"not an address of a server: {base_url!r} (expected http://host:port)")
        self._http = httpx.AsyncClient(
            transport=transport,
            headers={"authorization": f"Bearer {token}"} if token else None,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0), pool=None),
            limits=_LIMITS,
            # A proxy meant for the internet must not swallow what goes to this very machine.
            trust_env=url.host not in _LOOPBACK,
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        base: str | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        """A request that is safe to repeat, repeated when no reply came.

        Raises:
            TransportError: no reply, after several attempts.
            ServiceError: the server's problem document, as the exception it stands for.
        """
        url = (base or self.base_url) + path
        if self._http.is_closed:
            raise TransportError(f"{url}: the client is closed")
        sent = dict(headers or {})
        if body is not None:
            content = orjson.dumps(body)
            sent["content-type"] = "application/json"
        async for attempt in retrying():
            with attempt:
                with transport_errors(url):
                    response = await self._http.request(method, url, content=content, headers=sent, params=params)
                check(response, response.content)
        return response

    async def once(self, method: str, url: str, body: Any = None) -> httpx.Response:
        """One attempt at what must not be repeated; the reply whatever its status. Raises `TransportError`."""
        content = None if body is None else orjson.dumps(body)
        headers = {} if body is None else {"content-type": "application/json"}
        with transport_errors(url):
            return await self._http.request(method, url, content=content, headers=headers)

    @asynccontextmanager
    async def stream(self, url: str, body: bytes) -> AsyncIterator[httpx.Response]:
        """One attempt at a POST whose reply is read as it comes."""
        headers = {"content-type": "application/json"}
        with transport_errors(url):
            async with self._http.stream("POST", url, content=body, headers=headers) as response:
                if response.status_code != 200:
                    check(response, await response.aread())
                yield response

    async def probe(self, path: str) -> bool:
        """Whether one GET is answered with success."""
        try:
            return (await self._http.get(self.base_url + path, timeout=5.0)).is_success
        except httpx.TransportError:
            return False

    async def aclose(self) -> None:
        await self._http.aclose()


class transport_errors:
    """Turns what httpx raises into `TransportError` with the address."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
            raise TransportError(f"cannot connect to {self._url}: {error or 'timed out'}") from error
        if isinstance(error, httpx.TimeoutException):
            raise TransportError(f"no reply from {self._url} in time") from error
        if isinstance(error, httpx.TransportError | httpx.StreamError):
            raise TransportError(f"{self._url} broke off: {error or type(error).__name__}") from error


def check(response: httpx.Response, content: bytes) -> None:
    """Raise what a reply that is not success stands for."""
    if response.is_success:
        return
    status, url = response.status_code, response.url
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        try:
            document = orjson.loads(content)
        except orjson.JSONDecodeError:
            document = None
        if isinstance(document, dict) and status != 502:
            raise from_problem(document, status)
    if status in {502, 503, 504}:
        raise TransportError(f"{url}: HTTP {status} from something in between")
    raise ServiceError(f"{url}: HTTP {status} that is not a problem document; is this a Sojourn server?")
