"""Chat messages and the engine's vocabulary: what is asked of a language model and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field

Role = Literal["system", "user", "assistant"]


class Message(TypedDict):
    role: Role
    content: str


class SamplingParams(BaseModel):
    """How one completion is drawn. Training refuses `top_p < 1` and `top_k > 0`: they bias importance ratios."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int = Field(default=64, ge=1)
    """Of one completion."""
    temperature: float = Field(default=1.0, ge=0.0)
    """0 is greedy; log-probabilities are then those of temperature 1."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0)
    stop_ids: tuple[int, ...] = ()
    """Generation ends after one of these; the stop token is part of the completion."""


Finish = Literal["stop", "length"]


@dataclass(slots=True)
class Completion:
    """What an engine sampled. These very ids are stored and trained."""

    ids: list[int]
    """Sampled token ids, the stop token included when there was one.  # [T]"""
    logprobs: list[float]
    """Log-probability of each sampled token under the sampling distribution.  # [T]"""
    finish: Finish
    policy_version: int
    entropy: list[float] | None = None
    """Entropy in nats of the distribution each token was drawn from.  # [T]"""
