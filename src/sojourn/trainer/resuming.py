"""Which keys of a configuration may change between a run and its resumption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

RESUMABLE = (
    "trainer.num_steps",
    "trainer.save_every",
    "trainer.keep_checkpoints",
    "trainer.resume_fallback",
    "trainer.max_skipped_steps",
    "rollout.patience_s",
    "logging",
)
"""Keys (and all below them) that may differ between a run and its resumption, besides every `envs.N.urls`."""


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Key paths whose values differ between two dumps and may not differ between a run and its resumption."""
    old, new = dict(_flatten(before)), dict(_flatten(after))
    return sorted(
        key for key in old.keys() | new.keys() if old.get(key, ...) != new.get(key, ...) and not _may_change(key)
    )


def _may_change(key: str) -> bool:
    if any(key == free or key.startswith(f"{free}.") for free in RESUMABLE):
        return True
    parts = key.split(".")
    return parts[0] == "envs" and len(parts) > 2 and parts[2] == "urls"


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    empty = True
    for key, inner in items:
        empty = False
        yield from _flatten(inner, f"{path}.{key}" if path else str(key))
    if empty:
        yield path, value
