"""Examines an environment: opens it twice, chooses tasks, and makes each check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sojourn.envs.base import EnvService
from sojourn.envs.conformance.checks import CHECKS, Check
from sojourn.envs.conformance.subject import Nonconformity, Subject, sample
from sojourn.protocol.errors import UsageError


class CheckResult(NamedTuple):
    """What came of one check."""

    check: str
    passed: bool
    detail: str
    """Why it did not pass; empty when it did."""


async def run(
    factory: Callable[[], EnvService],
    *,
    name: str | None = None,
    episodes: int = 12,
    hostile: int = 1_000,
    memory_episodes: int = 60,
    only: Iterable[str] | None = None,
) -> list[CheckResult]:
    """Examine an environment.

    Args:
        factory: makes a service; called twice.
        name: what it is registered as, which its specification must say as well; None when it is not.
        episodes: tasks to play, spread over the families.
        hostile: nonsensical actions to try.
        memory_episodes: episodes over which memory must stay flat.
        only: names of checks; None for all.

    Returns:
        One result for each check, in the order of `CHECKS`; `opens` alone when the service cannot be made or opened or
        its tasks be listed, and `closes` besides when it cannot be closed.

    Raises:
        UsageError: what the environment says it lacks on this machine.
    """
    wanted = set(CHECKS if only is None else only)
    if unknown := wanted - CHECKS.keys():
        raise ValueError(f"no check {min(unknown)!r} (known: {', '.join(CHECKS)})")
    opened: list[EnvService] = []
    try:
        for _ in range(2):
            service = factory()
            await service.open()
            opened.append(service)
        first, second = opened
        subject = Subject(first, second, sample(first, episodes), hostile, memory_episodes, name)
        results = [await _examine(check, CHECKS[check], subject) for check in CHECKS if check in wanted]
    except UsageError:
        raise
    except Exception as error:
        results = [CheckResult("opens", False, f"raised {error!r}")]
    for service in opened:
        try:
            await service.close()
        except Exception as error:
            results.append(CheckResult("closes", False, f"raised {error!r}"))
    return results


async def _examine(name: str, function: Check, subject: Subject) -> CheckResult:
    try:
        await function(subject)
    except Nonconformity as failure:
        return CheckResult(name, False, str(failure))
    except Exception as error:
        return CheckResult(name, False, f"raised {error!r}")
    return CheckResult(name, True, "")
