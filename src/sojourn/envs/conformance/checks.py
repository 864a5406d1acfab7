"""The checks by name, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sojourn.envs.conformance import abuse, memory, play, scoring, state
from sojourn.envs.conformance.subject import Subject

Check = Callable[[Subject], Awaitable[None]]
"""Raises `Nonconformity` for what is not as it should be."""
CHECKS: dict[str, Check] = {
    check.__name__: check for module in (play, state, abuse, scoring, memory) for check in module.CHECKS
}
