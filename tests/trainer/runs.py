"""Tiny runs: a random model in a directory, TextCraft in this process, a config of plain values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from sojourn.client.pool import EnvPool
from sojourn.client.session import EnvClient
from sojourn.envs import registry
from sojourn.serving.app import create_app
from sojourn.trainer.config import TrainConfig
from sojourn.trainer.config_reading import parse_config
from tests.models import byte_tokenizer, tiny_llama


def save_model(directory: Path) -> Path:
    """A random byte-level model with its tokenizer, as a Hugging Face directory."""
    tiny_llama(context=4096).save_pretrained(directory)
    byte_tokenizer().save_pretrained(directory)
    return directory


def config(directory: Path | str, **sections: Any) -> TrainConfig:
    """Four groups of two episodes of two turns a step; nothing is ever solved, so random rewards must be lent."""
    data: dict[str, Any] = {
        "name": "tiny",
        "model": {"name": str(directory)},
        "envs": [{"name": "textcraft", "view": "compact"}],
        "rollout": {"group_size": 2, "groups_per_step": 4, "prompt": "none", "deterministic": True},
        "sampling": {"max_tokens": 6},
        "horizon": {"type": "scaling_inter", "stages": [1, 2], "steps_per_stage": 2},
        "algorithm": {"name": "grpo", "truncated": "fail", "drop_zero_advantage": False, "entropy_coef": 0.01},
        "optim": {"lr": 1e-3, "warmup_steps": 2},
        "trainer": {"num_steps": 3, "minibatches": 2, "save_every": 1},
        "eval": {"episodes": 4, "horizon": 2},
        "logging": {"tensorboard": False},
    }
    for section, values in sections.items():
        whole = not isinstance(values, dict) or "type" in values  # of another type, the defaults would be unknown keys
        data[section] = values if whole else {**data[section], **values}
    return parse_config(data)


@asynccontextmanager
async def serving(*envs: str) -> AsyncIterator[EnvPool]:
    """A pool over an app in this process."""
    app = create_app([registry.load(env)() for env in envs or ("textcraft",)])
    async with (
        app.router.lifespan_context(app),
        EnvPool([EnvClient("http://test", transport=httpx.ASGITransport(app))]) as pool,
    ):
        yield pool


class Notes:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.evals: list[int] = []
        self.notes: list[str] = []

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        self.steps.append((step, total))

    def on_eval(self, step: int, metrics: dict[str, float]) -> None:
        self.evals.append(step)

    def on_note(self, text: str) -> None:
        self.notes.append(text)
