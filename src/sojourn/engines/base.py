"""The contract of an inference engine: token ids in, sampled ids and their log-probabilities out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.protocol.messages import Completion, SamplingParams

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to draw."""

    ids: Sequence[int]
    """The whole prompt: the engine is stateless to its caller.  # [P]"""
    sampling: SamplingParams
    key: tuple[int, ...] = (0,)
    """What the random draws depend on, with the token's number: (run seed, task, sibling, turn). Nothing else does."""


class Engine(ABC):
    """Generates. KV reuse between turns and siblings is the engine's own business, invisible but for speed."""

    name: str
    """Recorded in every trajectory, e.g. `hf:smollm2`."""
    version: str = ""
    """Of the software that generates, e.g. `torch 2.13.0, transformers 5.24.0`; recorded likewise."""
    policy_version: int = 0
    max_context: int
    """Longest prompt plus completion in tokens."""

    async def start(self) -> None:  # noqa: B027
        """Get ready to generate."""

    async def close(self) -> None:  # noqa: B027
        """Stop; later calls raise `EngineError`."""

    @abstractmethod
    async def generate(self, request: Request) -> Completion:
        """Draw one completion; many calls run concurrently and share batches."""

    @abstractmethod
    async def generate_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Draw these completions as one fixed batch in this order: the same batch gives the same bits."""

    @abstractmethod
    async def update_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Take new weights between tokens; completions begun before carry the version they began with."""

    def statistics(self) -> dict[str, Any]:
        """Counters since the start: tokens prefetched, reused, generated, seconds busy."""
        return {}
