"""Transports that misbehave as networks do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import httpx


class Lossy(httpx.AsyncBaseTransport):
    """Loses replies: the request arrives and is acted on, its answer does not come back.

    Args:
        inner: what leads to the server.
        lose: how many replies to lose, by `METHOD last-path-segment`.
        before: requests that never arrive instead.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, lose: dict[str, int], before: bool = False) -> None:
        self.inner = inner
        self.lose = dict(lose)
        self.before = before
        self.requests: Counter[str] = Counter()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        name = f"{request.method} {request.url.path.rpartition('/')[2]}"
        self.requests[name] += 1
        losing = self.lose.get(name, 0) > 0
        if losing:
            self.lose[name] -= 1
        if losing and self.before:
            raise httpx.ConnectError("refused", request=request)
        response = await self.inner.handle_async_request(request)
        if losing:
            await response.aread()
            raise httpx.ReadError("the reply was lost", request=request)
        return response


def losing(**lose: int) -> tuple[list[Lossy], Callable[[httpx.AsyncBaseTransport], Lossy]]:
    """A `wrap` for `served`, and the list that it puts its transport into. `POST_step=1` loses one reply."""
    made: list[Lossy] = []

    def wrap(inner: httpx.AsyncBaseTransport) -> Lossy:
        made.append(Lossy(inner, {name.replace("_", " ", 1): count for name, count in lose.items()}))
        return made[0]

    return made, wrap
