"""The table of lock-step: who is waited for, in what order they are drawn, and what failure does to them."""

from __future__ import annotations

import asyncio

import pytest

from sojourn.engines.base import Engine, Request
from sojourn.protocol.errors import EngineError
from sojourn.protocol.messages import Completion, SamplingParams
from sojourn.rollout.lockstep import Lockstep

SAMPLING = SamplingParams()


class Echo(Engine):
    """Says the first id of each prompt; `fail` is raised instead, `gate` is waited for."""

    name, max_context, policy_version = "echo", 99, 3

    def __init__(self):
        self.batches = []
        self.fail = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.short = False

    async def generate(self, request):
        raise NotImplementedError

    async def generate_batch(self, requests):
        self.batches.append([r.ids[0] for r in requests])
        await self.gate.wait()
        if self.fail:
            raise self.fail
        return [Completion([r.ids[0]], [0.0], "stop", 3) for r in requests][int(self.short) :]

    async def update_weights(self, weights, version):
        raise NotImplementedError


def ask(seat, number):
    return asyncio.create_task(seat.generate(Request([number], SAMPLING)))


async def test_a_batch_is_drawn_when_everybody_waits_in_order_of_their_places():
    table = Lockstep(Echo())
    seats = [table.seat(order) for order in [(1, 0), (0, 1), (0, 0)]]
    tasks = [ask(seat, n) for n, seat in enumerate(seats[:2])]
    await asyncio.sleep(0.01)
    assert table.engine.batches == []
    tasks.append(ask(seats[2], 2))
    assert [c.ids for c in await asyncio.gather(*tasks)] == [[0], [1], [2]]
    assert table.engine.batches == [[2, 1, 0]]
    assert (seats[0].name, seats[0].max_context, seats[0].policy_version) == ("echo", 99, 3)


async def test_leaving_lets_the_others_go_on():
    table = Lockstep(Echo())
    first, second = table.seat((0, 0)), table.seat((0, 1))
    waiting = ask(first, 7)
    await asyncio.sleep(0)
    second.leave()
    assert (await waiting).ids == [7]
    first.leave()
    assert table.batches == 1
    with pytest.raises(EngineError, match="left the table"):
        await first.generate(Request([1], SAMPLING))


async def test_nobody_is_no_batch():
    table = Lockstep(Echo())
    table.seat((0, 0)).leave()
    await asyncio.sleep(0)
    assert table.engine.batches == []


async def test_who_is_cancelled_is_not_drawn_and_the_others_wait_until_it_leaves():
    table = Lockstep(Echo())
    first, second, third = (table.seat((0, n)) for n in range(3))
    gone, kept = ask(first, 1), ask(second, 2)
    await asyncio.sleep(0)
    gone.cancel()
    last = ask(third, 3)
    await asyncio.sleep(0.01)
    assert table.engine.batches == []
    first.leave()
    assert [c.ids for c in await asyncio.gather(kept, last)] == [[2], [3]]
    assert table.engine.batches == [[2, 3]]


@pytest.mark.parametrize("error", [EngineError("out of memory"), RuntimeError("a bug")])
async def test_everybody_hears_of_a_failed_batch(error):
    table = Lockstep(Echo())
    table.engine.fail = error
    tasks = [ask(table.seat((0, n)), n) for n in range(3)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(r) for r in results] == [type(error)] * 3


async def test_a_batch_has_a_deadline():
    table = Lockstep(Echo(), deadline_s=0.02)
    table.engine.gate.clear()
    with pytest.raises(TimeoutError):
        await ask(table.seat((0, 0)), 0)


async def test_an_engine_that_gives_too_little_is_told_off():
    table = Lockstep(Echo())
    table.engine.short = True
    results = await asyncio.gather(*[ask(table.seat((0, n)), n) for n in range(2)], return_exceptions=True)
    assert [str(r) for r in results] == ["2 requests gave 1 completions"] * 2


async def test_closing_ends_the_batch_under_way():
    table = Lockstep(Echo())
    table.engine.gate.clear()
    waiting = ask(table.seat((0, 0)), 0)
    await asyncio.sleep(0.01)
    await table.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_seat_is_for_one_and_for_completions_alone():
    table = Lockstep(Echo())
    seat = table.seat((0, 0))
    with pytest.raises(ValueError, match="taken"):
        table.seat((0, 0))
    with pytest.raises(EngineError, match="one completion"):
        await seat.generate_batch([])
    with pytest.raises(EngineError, match="weights"):
        await seat.update_weights([], 1)
