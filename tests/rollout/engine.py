"""An engine that says what a script tells it: for tests whose point is scheduling, budgets or failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from sojourn.engines.base import Engine, Request
from sojourn.protocol.errors import EngineError
from sojourn.protocol.messages import Completion
from sojourn.rollout.renderer import Renderer

Script = Callable[[Request], str | Completion | Exception]


def turns(*texts: str) -> Script:
    """A policy that says these texts turn by turn, the last one for ever."""
    return lambda request: texts[min(request.key[-1], len(texts) - 1)]


class ScriptedEngine(Engine):
    """Says the script's text in canonical tokens; `latency_s` of an episode's sibling, when given, is slept first."""

    name = "scripted"

    def __init__(
        self, renderer: Renderer, script: Script, *, max_context: int = 4096, latency_s: Sequence[float] = ()
    ) -> None:
        self.renderer, self.script, self.max_context, self.latency_s = renderer, script, max_context, latency_s
        self.requests: list[Request] = []
        self.batches: list[list[tuple[int, ...]]] = []
        """Keys of each fixed batch."""
        self.playing = 0
        self.most_playing = 0
        self.begun = asyncio.Event()
        self.busy = asyncio.Event()
        """Set at the 64th request."""

    async def generate(self, request: Request) -> Completion:
        self.begun.set()
        self.playing += 1
        self.most_playing = max(self.most_playing, self.playing)
        try:
            sibling = request.key[3]
            await asyncio.sleep(self.latency_s[sibling] if sibling < len(self.latency_s) else 0)
            return self._say(request)
        finally:
            self.playing -= 1

    async def generate_batch(self, requests: Sequence[Request]) -> list[Completion]:
        self.batches.append([request.key for request in requests])
        await asyncio.sleep(0)
        return [self._say(request) for request in requests]

    async def update_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        self.policy_version = version

    def _say(self, request: Request) -> Completion:
        if len(request.ids) + request.sampling.max_tokens > self.max_context:
            raise EngineError(f"{len(request.ids)} prompt tokens leave no room")
        self.requests.append(request)
        if len(self.requests) == 64:
            self.busy.set()
        said = self.script(request)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, Completion):
            return said
        ids = self.renderer.complete(said)
        cut = ids[: request.sampling.max_tokens]
        finish = "stop" if cut[-1] in request.sampling.stop_ids else "length"
        logprobs = [-0.25 - 0.001 * (i % 7) for i in range(len(cut))]
        return Completion(cut, logprobs, finish, self.policy_version, [0.5] * len(cut))
