"""Environments that make trouble while they are imported or opened."""

from __future__ import annotations

import os

from tests.serving.worlds import CounterService


class Fatal(CounterService):
    async def open(self) -> None:
        os._exit(7)


class Chatty(CounterService):
    async def open(self) -> None:
        print('{"url": "not me"}', flush=True)
