"""The hf engine: what it reports equals a plain forward pass, whatever was cached and whoever shared the batch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM, PreTrainedModel

from sojourn.engines.base import Request
from sojourn.engines.hf import HFEngine, HFEngineConfig
from sojourn.protocol.errors import EngineError
from sojourn.protocol.messages import Completion, SamplingParams
from tests.models import tiny_llama, tiny_qwen2

VOCAB = 271
MODELS = {"llama": tiny_llama, "qwen2": tiny_qwen2}


@asynccontextmanager
async def engine(model: PreTrainedModel | None = None, **config: Any) -> AsyncIterator[HFEngine]:
    made = HFEngine(model or tiny_llama(), name="hf:test", config=HFEngineConfig(cache_mb=64).model_copy(update=config))
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def prompt(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(7, VOCAB), k=length)


def request(ids: list[int], *key: int, **sampling: Any) -> Request:
    return Request(ids, SamplingParams(**{"max_tokens": 8, **sampling}), key or (0,))


@torch.no_grad()
def distribution(model: PreTrainedModel, ids: list[int], completion: Completion) -> torch.Tensor:
    """Log-probabilities at each token of the completion by one plain forward pass.  # [T, V]"""
    logits = model(torch.tensor([[*ids, *completion.ids]])).logits[0, len(ids) - 1 : -1]
    return torch.log_softmax(logits.float(), -1)


async def under_way(made: HFEngine) -> None:
    """Wait until the engine has generated a few tokens."""
    while made.statistics()["tokens_generated"] < 5:  # noqa: ASYNC110 (the counter is another thread's)
        await asyncio.sleep(0.001)


async def episode(made: HFEngine, seed: int, sibling: int, turns: int = 4) -> list[tuple[list[int], Completion]]:
    """A conversation whose every prompt extends the one before by its completion and an observation."""
    ids, out = prompt(seed, 20 + 5 * seed), []
    for turn in range(turns):
        done = await made.generate(request(ids, 7, seed, sibling, turn, max_tokens=4 + seed, stop_ids=(11, 12, 13)))
        out.append((ids, done))
        await asyncio.sleep(0.0005 * ((seed + sibling + turn) % 3))
        ids = [*ids, *done.ids, *prompt(100 * seed + sibling + turn, 3 + turn)]
    return out


async def play(made: HFEngine, groups: Iterable[tuple[int, int]]) -> list[list[tuple[list[int], Completion]]]:
    return list(await asyncio.gather(*(episode(made, seed, sibling) for seed, sibling in groups)))


GROUPS = [(seed, sibling) for seed in range(4) for sibling in range(3)]


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
async def test_logprobs_and_entropy_equal_a_plain_forward_pass(build: Callable[[], PreTrainedModel]):
    model = build()
    async with engine(model) as made:
        episodes = await play(made, GROUPS)
        assert made.statistics()["tokens_reused"] > made.statistics()["tokens_prefilled"]
    for ids, done in [turn for played in episodes for turn in played]:
        expected = distribution(model, ids, done)
        np.testing.assert_allclose(done.logprobs, expected[range(len(done.ids)), done.ids].numpy(), atol=1e-5)
        np.testing.assert_allclose(done.entropy, -(expected.exp() * expected).sum(-1).numpy(), atol=1e-4)
        ended = done.ids[-1] in (11, 12, 13)
        assert done.finish == ("stop" if ended else "length")
        assert not {11, 12, 13} & set(done.ids[:-1])


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
async def test_reuse_equals_recomputation(build: Callable[[], PreTrainedModel]):
    model = build()
    async with engine(model) as with_reuse, engine(model, reuse=False) as without:
        kept, computed = await play(with_reuse, GROUPS), await play(without, GROUPS)
        assert without.statistics()["tokens_reused"] == 0
        assert with_reuse.statistics()["tokens_prefilled"] < 0.3 * without.statistics()["tokens_prefilled"]
    for a, b in zip(kept, computed, strict=True):
        assert [(ids, done.ids) for ids, done in a] == [(ids, done.ids) for ids, done in b]
        for (_, x), (_, y) in zip(a, b, strict=True):
            np.testing.assert_allclose(x.logprobs, y.logprobs, atol=1e-4)


async def test_samples_do_not_depend_on_who_shares_the_batch():
    async with engine() as together, engine() as alone, engine(max_rows=3, prefill_tokens=7) as narrow:
        mixed = await play(together, GROUPS)
        single = [(await play(alone, [group]))[0] for group in GROUPS]
        assert together.statistics()["batches"] < alone.statistics()["batches"] / 2
        squeezed = await play(narrow, reversed(GROUPS))
    flat = [[done.ids for _, done in played] for played in mixed]
    assert flat == [[done.ids for _, done in played] for played in single]
    assert flat == [[done.ids for _, done in played] for played in reversed(squeezed)]


async def test_siblings_share_one_prefill_of_their_prompt():
    ids = prompt(1, 100)
    async with engine() as made:
        drawn = await asyncio.gather(*(made.generate(request(ids, sibling)) for sibling in range(8)))
        counts = made.statistics()
    # Each but the first computes the last prompt token again: its logits are what it samples from.
    assert counts["tokens_prefilled"] == 100 + 7
    assert counts["tokens_reused"] == 7 * 99
    assert len({tuple(done.ids) for done in drawn}) > 1


async def test_different_prompts_share_a_common_beginning():
    system = prompt(1, 90)
    async with engine() as made:
        await asyncio.gather(*(made.generate(request([*system, *prompt(10 + i, 10)], i)) for i in range(5)))
        assert made.statistics()["tokens_prefilled"] == 100 + 4 * 10


async def test_rows_leave_as_soon_as_they_are_done():
    async with engine() as made:
        order: list[int] = []

        async def one(length: int) -> None:
            await made.generate(request(prompt(length, 12), length, max_tokens=length))
            order.append(length)

        await asyncio.gather(*(one(length) for length in (60, 1, 30, 15)))
    assert order == [1, 15, 30, 60]


async def test_a_row_joins_while_others_decode():
    async with engine() as made:
        long = asyncio.create_task(made.generate(request(prompt(1, 10), 1, max_tokens=400)))
        await under_way(made)
        await made.generate(request(prompt(2, 10), 2, max_tokens=2))
        assert not long.done()
        assert len((await long).ids) == 400


async def test_the_same_batches_give_the_same_bits():
    async def run() -> list[Completion]:
        out = []
        async with engine() as made:
            for version in (1, 2):
                await made.update_weights(tiny_llama(seed=version).named_parameters(), version)
                prompts = [prompt(i % 5, 15 + 9 * (i % 5)) for i in range(15)]
                for turn in range(3):
                    done = await made.generate_batch(
                        [request(p, i, turn, max_tokens=3 + i % 7) for i, p in enumerate(prompts)]
                    )
                    out += done
                    prompts = [[*p, *d.ids, *prompt(i, 5)] for i, (p, d) in enumerate(zip(prompts, done, strict=True))]
        return out

    first, second = await run(), await run()
    assert first == second  # floats included
    assert {done.policy_version for done in first} == {1, 2}


async def test_bits_after_an_update_are_those_of_a_new_engine():
    prompts = [prompt(i, 30 + i) for i in range(6)]
    new = dict(tiny_llama(seed=5).named_parameters())
    async with engine() as used, engine() as fresh:
        await play(used, GROUPS)
        for made in (used, fresh):
            await made.update_weights(new.items(), 9)
        batch = [request(p, i) for i, p in enumerate(prompts)]
        assert await used.generate_batch(batch) == await fresh.generate_batch(batch)


async def test_a_fixed_batch_runs_by_itself_between_other_rows():
    batch = [request(prompt(i, 30), i) for i in range(6)]
    async with engine() as busy, engine() as quiet:
        others = [asyncio.create_task(episode(busy, i, 0)) for i in range(4)]
        await asyncio.sleep(0.005)
        got = await busy.generate_batch(batch)
        await asyncio.gather(*others)
        assert [done.ids for done in got] == [done.ids for done in await quiet.generate_batch(batch)]
        assert await quiet.generate_batch([]) == []


async def test_new_weights_are_used_and_the_cache_forgotten():
    old, new = tiny_llama(seed=0), tiny_llama(seed=1)
    ask = request(prompt(3, 40), 3)
    async with engine(old) as made:
        before = await made.generate(ask)
        await made.update_weights(new.named_parameters(), 4)
        after = await made.generate(ask)
        assert made.statistics()["tokens_reused"] == 0
        assert (before.policy_version, after.policy_version, made.policy_version) == (0, 4, 4)
        expected = distribution(new, list(ask.ids), after)[range(8), after.ids]
        np.testing.assert_allclose(after.logprobs, expected.numpy(), atol=1e-5)
        await made.update_weights(old.state_dict().items(), 5)  # both names of a tied weight
        again = await made.generate(ask)
    assert again.ids == before.ids
    np.testing.assert_allclose(again.logprobs, before.logprobs, atol=1e-5)


async def test_what_runs_finishes_with_the_weights_it_began_with():
    old, new = tiny_llama(seed=0), tiny_llama(seed=1)
    ids = prompt(1, 10)
    async with engine(old) as made:
        running = asyncio.create_task(made.generate(request(ids, 1, max_tokens=100)))
        await under_way(made)
        update = asyncio.create_task(made.update_weights(new.named_parameters(), 1))
        await asyncio.sleep(0)
        later = asyncio.create_task(made.generate(request(ids, 2)))
        first, second = await running, await later
        await update
    assert (first.policy_version, second.policy_version) == (0, 1)
    expected = distribution(old, ids, first)[range(100), first.ids]
    np.testing.assert_allclose(first.logprobs, expected.numpy(), atol=1e-5)


async def test_the_given_model_is_not_touched_and_its_changes_do_not_reach_the_copy():
    model = tiny_llama()
    ask = request(prompt(3, 40), 3)
    async with engine(model) as made:
        before = await made.generate(ask)
        with torch.no_grad():
            model.model.norm.weight.mul_(3.0)
        again = await made.generate(request([*ask.ids], 3))
        assert model.config._attn_implementation == "sdpa"
        assert model.model.norm.weight.requires_grad
    np.testing.assert_allclose(again.logprobs, before.logprobs, atol=1e-5)


async def test_shared_parameters_are_the_models_own():
    model = tiny_llama()
    made = HFEngine(model, name="hf:test", share=True)
    ask = request(prompt(3, 40), 3)
    await made.generate(ask)
    with torch.no_grad():
        model.model.norm.weight.mul_(2.0)
    await made.update_weights(model.named_parameters(), 1)
    after = await made.generate(ask)
    await made.close()
    expected = distribution(model, list(ask.ids), after)[range(8), after.ids]
    np.testing.assert_allclose(after.logprobs, expected.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="dtype"):
        HFEngine(model, name="x", config=HFEngineConfig(dtype="bfloat16"), share=True)


async def test_wrong_weights_change_nothing():
    good = dict(tiny_llama(seed=1).named_parameters())
    ask = request(prompt(3, 40), 3)
    async with engine() as made:
        before = await made.generate(ask)
        for bad, message in [
            ({**good, "model.extra": torch.zeros(1)}, "unknown weight 'model.extra'"),
            ({k: v for k, v in good.items() if "norm" not in k}, "missing weights: model.layers.0.input_layernorm"),
            ({**good, "model.norm.weight": torch.zeros(3)}, r"shape \(3,\), not \(32,\)"),
        ]:
            with pytest.raises(ValueError, match=message):
                await made.update_weights(bad.items(), 1)
        assert made.policy_version == 0
        np.testing.assert_allclose((await made.generate(ask)).logprobs, before.logprobs, atol=1e-5)


async def test_greedy_is_the_argmax_of_a_plain_forward_pass():
    model = tiny_qwen2()
    ids = prompt(5, 33)
    async with engine(model) as made:
        done = await made.generate(request(ids, 1, temperature=0.0, max_tokens=20))
        assert (await made.generate(request(ids, 2, temperature=0.0, max_tokens=20))).ids == done.ids
    expected = distribution(model, ids, done)
    assert expected.argmax(-1).tolist() == done.ids
    np.testing.assert_allclose(done.logprobs, expected.max(-1).values.numpy(), atol=1e-5)


async def test_temperature_top_k_and_top_p_shape_the_logprobs():
    model = tiny_llama()
    ids = prompt(5, 33)
    async with engine(model) as made:
        hot = await made.generate(request(ids, 1, temperature=0.5))
        top = await made.generate(request(ids, 1, top_k=3, max_tokens=40))
        nucleus = await made.generate(request(ids, 1, top_p=0.2, max_tokens=40))
    scaled = torch.log_softmax(distribution(model, ids, hot) / 0.5, -1)
    np.testing.assert_allclose(hot.logprobs, scaled[range(8), hot.ids].numpy(), atol=1e-5)
    for done, kept in [(top, lambda p: torch.topk(p, 3).indices), (nucleus, _nucleus)]:
        for row, token, logprob in zip(distribution(model, ids, done), done.ids, done.logprobs, strict=True):
            allowed = kept(row.exp())
            assert token in allowed.tolist()
            assert logprob == pytest.approx(float(row[token] - row[allowed].logsumexp(0)), abs=1e-4)


def _nucleus(p: torch.Tensor) -> torch.Tensor:
    order = torch.argsort(p, descending=True)
    return order[: int((p[order].cumsum(0) < 0.2).sum()) + 1]


async def test_a_completion_ends_where_the_context_does():
    async with engine(max_context=32) as made:
        done = await made.generate(request(prompt(1, 30), max_tokens=50))
        assert (len(done.ids), done.finish) == (2, "length")
        with pytest.raises(EngineError, match=r"32 tokens leaves no room in a context of 32"):
            await made.generate(request(prompt(1, 32)))


@pytest.mark.parametrize(
    ("ids", "message"),
    [([], "empty"), ([5, 271], "token id 271"), ([-1], "token id -1"), ([2**40], "token ids"), ([1.5], "token ids")],
)
async def test_prompts_that_cannot_be_are_refused(ids: list[Any], message: str):
    async with engine() as made:
        with pytest.raises(EngineError, match=message):
            await made.generate(request(ids))
        assert len((await made.generate(request([5]))).ids) == 8


async def test_little_memory_costs_time_not_results():
    model = tiny_llama(context=2048)
    async with engine(model, cache_mb=1) as small, engine(model) as large:
        groups = [(seed, 0) for seed in range(30)]
        scarce, plenty = await play(small, groups), await play(large, groups)
        assert small.statistics()["evictions"] > 0
        assert large.statistics()["evictions"] == 0
        assert small.statistics()["cache_bytes"] <= 1 << 20
    assert [[d.ids for _, d in e] for e in scarce] == [[d.ids for _, d in e] for e in plenty]


async def test_a_failed_pass_fails_its_rows_and_the_engine_goes_on():
    broken = {name: torch.full_like(p, torch.nan) for name, p in tiny_llama().named_parameters()}
    ask = request(prompt(1, 20), 1)
    async with engine() as made:
        good = await made.generate(ask)
        await made.update_weights(broken.items(), 1)
        with pytest.raises(EngineError, match="not finite"):
            await made.generate(ask)
        with pytest.raises(EngineError, match="not finite"):
            await made.generate_batch([ask])
        await made.update_weights(tiny_llama().named_parameters(), 2)
        assert (await made.generate(ask)).ids == good.ids


async def test_a_cancelled_request_leaves_its_place():
    async with engine(max_rows=1) as made:
        stuck = asyncio.create_task(made.generate(request(prompt(1, 10), 1, max_tokens=490)))
        await under_way(made)
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        await made.generate(request(prompt(2, 10), 2, max_tokens=2))
        assert made.statistics()["tokens_generated"] < 400


async def test_closing_fails_what_is_pending_and_all_that_comes_after():
    made = HFEngine(tiny_llama(context=4096), name="hf:test")
    pending = [
        asyncio.create_task(made.generate(request(prompt(1, 10), 1, max_tokens=4000))),
        asyncio.create_task(made.generate_batch([request(prompt(1, 10), 1, max_tokens=4000)])),
        asyncio.create_task(made.generate(request(prompt(2, 10), 2))),
    ]
    await under_way(made)
    await made.close()
    for task in pending:
        with pytest.raises(EngineError, match="closed"):
            await task
    with pytest.raises(EngineError, match="closed"):
        await made.generate(request([5]))
    await made.close()


def test_one_engine_serves_several_event_loops():
    made = HFEngine(tiny_llama(), name="hf:test")
    ask = request(prompt(1, 20), 1)
    first, second = asyncio.run(made.generate(ask)), asyncio.run(made.generate(ask))
    asyncio.run(made.close())
    assert first.ids == second.ids


async def test_bfloat16_stays_close():
    model = tiny_llama()
    ids = prompt(1, 40)
    async with engine(model, dtype="bfloat16") as made:
        done = await made.generate(request(ids, 1))
    expected = distribution(model, ids, done)[range(8), done.ids]
    np.testing.assert_allclose(done.logprobs, expected.numpy(), atol=0.2)


async def test_a_sliding_window_is_kept_to():
    config = MistralConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=12,
        max_position_embeddings=256,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MistralForCausalLM(config).eval()
    ids = prompt(1, 40)
    async with engine(model) as made:
        done = await made.generate(request(ids, 1, max_tokens=20))
    expected = distribution(model, ids, done)[range(20), done.ids]
    np.testing.assert_allclose(done.logprobs, expected.numpy(), atol=1e-5)
