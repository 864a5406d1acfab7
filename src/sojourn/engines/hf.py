"""The `hf` engine: batched generation in this process with any decoder-only Hugging Face model.

A worker thread owns the model. Requests go to it through a queue, join the running batch between two tokens and leave
it as soon as they are done. New weights and fixed batches are barriers in that queue: what came before them finishes
first, what came after them waits; a completion therefore is wholly of one policy version.
"""

from __future__ import annotations

import asyncio
import copy
import queue
import threading
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
import transformers
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from transformers import PreTrainedModel

from sojourn.engines.base import Engine, Request
from sojourn.engines.decoder import Decoder, Row
from sojourn.engines.sampling import seed_of
from sojourn.protocol.errors import EngineError
from sojourn.protocol.messages import Completion


class HFEngineConfig(BaseModel):
    """How the `hf` engine runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cache_mb: int = Field(default=2048, ge=1)
    """Bound on keys and values, of running and of finished sequences together."""
    reuse: bool = True
    """Take over the keys and values of known prefixes. Off, every prompt is computed anew."""
    max_rows: int = Field(default=512, ge=1)
    """Completions that run at once; more wait."""
    prefill_tokens: int = Field(default=4096, ge=1)
    """Prompt tokens in one forward pass at most."""
    max_context: int | None = Field(default=None, ge=2)
    """Longest prompt plus completion; what the model was built for when None."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Of the engine's copy of the weights; the given model's when None."""
    threads: int | None = Field(default=None, ge=1)
    """torch threads, for the whole process; left alone when None."""


@dataclass(slots=True)
class _Pending:
    """A future and the event loop that waits for it."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(slots=True)
class _Batch:
    rows: list[Row]
    pending: _Pending


@dataclass(slots=True)
class _Update:
    weights: list[tuple[Tensor, Tensor]]
    version: int
    pending: _Pending


_Job = Row | _Batch | _Update | None


class HFEngine(Engine):
    """Generates with a Hugging Face model in this process.

    Args:
        model: any causal language model whose attention transformers can exchange (Llama, Qwen2, SmolLM2...).
        name: recorded in every trajectory.
        share: use the model's own parameters instead of a copy. Whoever changes them in place then has to call
            `update_weights` (with no generation in flight meanwhile), or the cache is of other weights.
    """

    def __init__(
        self, model: PreTrainedModel, *, name: str, config: HFEngineConfig | None = None, share: bool = False
    ) -> None:
        self.name = name
        self.version = f"torch {torch.__version__}, transformers {transformers.__version__}"
        self.config = config or HFEngineConfig()
        if share and self.config.dtype not in (None, str(model.dtype).removeprefix("torch.")):
            raise ValueError(f"share=True cannot change the dtype {model.dtype} to {self.config.dtype}")
        self._model = _own(model, share=share, dtype=self.config.dtype)
        text: Any = self._model.config.get_text_config()
        self._vocab = int(text.vocab_size)
        self.max_context = min(self.config.max_context or text.max_position_embeddings, text.max_position_embeddings)
        self._decoder = Decoder(
            self._model,
            max_rows=self.config.max_rows,
            prefill_tokens=self.config.prefill_tokens,
            cache_bytes=self.config.cache_mb << 20,
            reuse=self.config.reuse,
        )
        self._inbox: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._outbox: list[tuple[_Pending, Any]] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    # -- the callers' side

    async def start(self) -> None:
        self._open()

    async def close(self) -> None:
        """Fail what is pending and stop the worker."""
        self._closed = True
        if self._thread is not None:
            self._inbox.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    async def generate(self, request: Request) -> Completion:
        """Draw one completion.

        Raises:
            EngineError: a prompt that is empty, too long or not of this vocabulary; a forward pass that failed; closed.
        """
        pending = _pending()
        row = self._row(request)
        row.done = lambda result: self._outbox.append((pending, result))
        self._send(row)
        try:
            completion: Completion = await pending.future
        except asyncio.CancelledError:
            row.abandoned = True
            raise
        return completion

    async def generate_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Draw these completions as one batch of their own, in this order.

        The bits depend on the requests and on the batches since the last `update_weights` alone, so a run that uses
        nothing else is reproduced from any of its weight updates on, in another process too (same machine and threads).
        """
        if not requests:
            return []
        pending = _pending()
        self._send(_Batch([self._row(r) for r in requests], pending))
        completions: list[Completion] = await pending.future
        return completions

    async def update_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Take new weights once what runs has finished; later requests wait for them.

        Raises:
            ValueError: an unknown or missing name, or another shape; nothing is changed then.
        """
        pairs = _pair(self._model, weights)
        pending = _pending()
        self._send(_Update(pairs, version, pending))
        await pending.future

    def statistics(self) -> dict[str, Any]:
        """Counters since the start (`decoder.Counters`), `cache_bytes` and `evictions`."""
        kv = self._decoder.kv
        return {**asdict(self._decoder.counters), "cache_bytes": kv.nbytes, "evictions": kv.evictions}

    def _row(self, request: Request) -> Row:
        try:
            prompt = array("i", request.ids)
        except (TypeError, OverflowError) as error:
            raise EngineError(f"a prompt is a list of token ids: {error}") from error
        if not prompt:
            raise EngineError("an empty prompt has no next token")
        if len(prompt) > self.max_context - 1:
            raise EngineError(
                f"a prompt of {len(prompt)} tokens leaves no room in a context of {self.max_context} tokens"
            )
        if min(prompt) < 0 or max(prompt) >= self._vocab:
            bad = next(i for i in prompt if not 0 <= i < self._vocab)
            raise EngineError(f"token id {bad} is not in the vocabulary of {self._vocab}")
        sampling = request.sampling
        return Row(
            prompt=prompt,
            sampling=sampling,
            seed=seed_of(request.key),
            stop=frozenset(sampling.stop_ids),
            limit=min(sampling.max_tokens, self.max_context - len(prompt)),
            done=lambda result: None,
        )

    def _send(self, job: _Job) -> None:
        if self._closed:
            raise EngineError(f"the engine {self.name} is closed")
        self._open()
        self._inbox.put(job)

    def _open(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name=f"engine {self.name}", daemon=True)
            self._thread.start()

    # -- the worker's side

    def _work(self) -> None:
        if self.config.threads is not None:
            torch.set_num_threads(self.config.threads)
        jobs: deque[_Job] = deque()
        with torch.inference_mode():
            while True:
                if not (jobs or self._decoder.busy):
                    jobs.append(self._inbox.get())
                while not self._inbox.empty():
                    jobs.append(self._inbox.get())
                if None in jobs:
                    break
                self._take(jobs)
                if self._decoder.busy:
                    self._decoder.step()
                self._flush()
        self._end(jobs)

    def _take(self, jobs: deque[_Job]) -> None:
        """Hand rows to the decoder up to a barrier; pass the barrier when nothing runs."""
        while jobs:
            if isinstance(job := jobs[0], Row):
                self._decoder.submit(job)
            elif self._decoder.busy:
                return
            else:
                self._pass(job)
            jobs.popleft()

    def _pass(self, job: _Batch | _Update | None) -> None:
        assert job is not None
        try:
            result = self._run_batch(job) if isinstance(job, _Batch) else self._apply(job)
        except Exception as error:
            self._outbox.append((job.pending, error))
        else:
            self._outbox.append((job.pending, result))

    def _run_batch(self, batch: _Batch) -> list[Completion]:
        results: dict[Row, Completion | Exception] = {}
        for row in batch.rows:
            row.done = lambda result, row=row: results.__setitem__(row, result)  # type: ignore[misc]
            self._decoder.submit(row)
        while self._decoder.busy and not self._closed:
            self._decoder.step()
        completions: list[Completion] = []
        for row in batch.rows:
            result = results.get(row, EngineError(f"the engine {self.name} was closed"))
            if isinstance(result, Exception):
                raise result
            completions.append(result)
        return completions

    def _apply(self, update: _Update) -> int:
        for own, new in update.weights:
            if own.data_ptr() != new.data_ptr():
                own.copy_(new)
        self._decoder.kv.clear()
        self._decoder.version = self.policy_version = update.version
        return update.version

    def _flush(self) -> None:
        """Wake the waiting callers, once for each event loop."""
        if not self._outbox:
            return
        results, self._outbox = self._outbox, []
        for loop in {id(p.loop): p.loop for p, _ in results}.values():
            mine = [(p.future, r) for p, r in results if p.loop is loop]
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, mine)

    def _end(self, jobs: deque[_Job]) -> None:
        while not self._inbox.empty():
            jobs.append(self._inbox.get())
        closed = EngineError(f"the engine {self.name} was closed")
        self._decoder.fail(closed)
        for job in jobs:
            if isinstance(job, Row):
                job.done(closed)
            elif job is not None:
                self._outbox.append((job.pending, closed))
        self._flush()


def _pending() -> _Pending:
    loop = asyncio.get_running_loop()
    return _Pending(loop, loop.create_future())


def _resolve(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if future.done():  # cancelled meanwhile
            continue
        if isinstance(result, EngineError):
            future.set_exception(result)
        elif isinstance(result, Exception):
            error = EngineError(f"generation failed: {type(result).__name__}: {result}")
            error.__cause__ = result
            future.set_exception(error)
        else:
            future.set_result(result)


def _own(model: PreTrainedModel, *, share: bool, dtype: str | None) -> PreTrainedModel:
    """A copy whose attention can be replaced; with `share`, on the very same parameters."""
    memo: dict[int, Any] = {id(p): p for p in model.parameters()} if share else {}
    own: PreTrainedModel = copy.deepcopy(model, memo)
    if not share:
        own.requires_grad_(False)
        own.zero_grad(set_to_none=True)
        if dtype is not None:
            nn.Module.to(own, getattr(torch, dtype))
    nn.Module.eval(own)
    return own


def _pair(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """(own tensor, new tensor) for each of `weights`; tied parameters need only one of their names."""
    own: dict[str, Tensor] = model.state_dict(keep_vars=True)
    pairs: list[tuple[Tensor, Tensor]] = []
    given: set[int] = set()
    for name, new in weights:
        if name not in own:
            raise ValueError(f"unknown weight {name!r}")
        if own[name].shape != new.shape:
            raise ValueError(f"weight {name!r} has shape {tuple(new.shape)}, not {tuple(own[name].shape)}")
        pairs.append((own[name], new.detach()))
        given.add(id(own[name]))
    missing = [name for name, tensor in own.items() if id(tensor) not in given]
    if missing:
        raise ValueError(f"missing weights: {', '.join(missing[:5])}{'...' if len(missing) > 5 else ''}")
    return pairs
