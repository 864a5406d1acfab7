"""Lock-step generation: the episodes that are live draw each turn together, as one batch in a fixed order.

An engine gives the same bits for the same batch. So that a run can be repeated to the bit, who shares a batch must not
depend on timing: a batch is drawn when every live episode waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sojourn.engines.base import Engine, Request
from sojourn.protocol.errors import EngineError
from sojourn.protocol.messages import Completion

if TYPE_CHECKING:
    from torch import Tensor

Order = tuple[int, int]
"""Place of an episode in every batch: (plan, sibling)."""


class Lockstep:
    """The table around which live episodes sit.

    Args:
        engine: draws the batches.
        deadline_s: for one batch; None waits as long as it takes.
    """

    def __init__(self, engine: Engine, *, deadline_s: float | None = None) -> None:
        self.engine = engine
        self.batches = 0
        """Batches drawn so far."""
        self._deadline_s = deadline_s
        self._seated: set[Order] = set()
        self._waiting: dict[Order, tuple[Request, asyncio.Future[Completion]]] = {}
        self._drawing: set[asyncio.Task[None]] = set()

    def seat(self, order: Order) -> LockstepSeat:
        """Join at once: from now on no batch is drawn without this episode's request, until it leaves."""
        if order in self._seated:
            raise ValueError(f"the place {order} is taken")
        self._seated.add(order)
        return LockstepSeat(self, order)

    def leave(self, order: Order) -> None:
        """The episode is over; the others need not wait for it."""
        self._seated.discard(order)
        self._withdraw(order)
        self._draw_when_ready()

    async def generate(self, order: Order, request: Request) -> Completion:
        """Wait for the batch that holds this request."""
        if order not in self._seated:
            raise EngineError(f"the episode at {order} has left the table")
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting[order] = (request, future)
        self._draw_when_ready()
        try:
            return await future
        finally:
            if self._waiting.get(order, (None, None))[1] is future:
                self._withdraw(order)

    async def aclose(self) -> None:
        """Wait for the batches that are being drawn; their results go nowhere."""
        for task in self._drawing:
            task.cancel()
        await asyncio.gather(*self._drawing, return_exceptions=True)

    def _withdraw(self, order: Order) -> None:
        self._waiting.pop(order, None)

    def _draw_when_ready(self) -> None:
        if not self._seated or self._waiting.keys() != self._seated:
            return
        batch = [self._waiting[order] for order in sorted(self._waiting)]
        self._waiting = {}
        self.batches += 1
        task = asyncio.create_task(self._draw(batch))
        self._drawing.add(task)
        task.add_done_callback(self._drawing.discard)

    async def _draw(self, batch: Sequence[tuple[Request, asyncio.Future[Completion]]]) -> None:
        futures = [future for _, future in batch]
        try:
            async with asyncio.timeout(self._deadline_s):
                completions = await self.engine.generate_batch([request for request, _ in batch])
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        except Exception as error:  # whoever waits must hear of it, whatever it is
            _fail(futures, error)
        else:
            if len(completions) != len(futures):
                _fail(futures, EngineError(f"{len(futures)} requests gave {len(completions)} completions"))
                return
            for future, completion in zip(futures, completions, strict=True):
                if not future.done():
                    future.set_result(completion)


class LockstepSeat(Engine):
    """The table as one episode sees it: an engine."""

    def __init__(self, table: Lockstep, order: Order) -> None:
        self.table, self.order = table, order
        self.name = table.engine.name
        self.policy_version = table.engine.policy_version
        self.max_context = table.engine.max_context

    async def generate(self, request: Request) -> Completion:
        return await self.table.generate(self.order, request)

    async def generate_batch(self, requests: Sequence[Request]) -> list[Completion]:
        raise EngineError("an episode draws one completion at a time")

    async def update_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        raise EngineError("weights are given to the engine itself, between groups")

    def leave(self) -> None:
        """Give the seat up."""
        self.table.leave(self.order)


def _fail(futures: Iterable[asyncio.Future[Completion]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
