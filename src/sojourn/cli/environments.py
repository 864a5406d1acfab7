"""Where a command finds its environments: servers that run already, or one of its own for as long as it lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from sojourn.client.pool import EnvPool
from sojourn.client.session import EnvClient

EnvUrl = Annotated[
    list[str] | None,
    typer.Option(
        "--env-url", help="An environment server that runs already; repeatable. Without one, a server is started."
    ),
]
TokenFile = Annotated[Path | None, typer.Option("--token-file", help="File with the bearer token of these servers.")]


@asynccontextmanager
async def environments(
    names: Sequence[str], urls: Sequence[str] | None = None, token_file: Path | None = None
) -> AsyncIterator[EnvPool]:
    """A pool over the servers at `urls`; without any, over a server of our own, which ends with the block.

    Raises:
        TransportError: no server answers.
        UsageError: an environment that cannot be served, or a token file that cannot be read.
    """
    from sojourn.serving.auth import read_token
    from sojourn.serving.local import LocalServer

    async with AsyncExitStack() as stack:
        token = read_token(token_file)
        if not urls:
            urls = [await stack.enter_async_context(LocalServer(list(dict.fromkeys(names))))]
        secret = token.get_secret_value() if token else None
        pool = await stack.enter_async_context(EnvPool([EnvClient(url, token=secret) for url in dict.fromkeys(urls)]))
        await pool.specs()
        yield pool
