"""`sojourn doctor`: does an environment do what every environment owes?"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.protocol.errors import UsageError

if TYPE_CHECKING:
    from sojourn.envs.conformance import CheckResult


def doctor(
    env: Annotated[list[str] | None, typer.Option("--env", help="An environment to examine; repeatable.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Examine every registered environment.")] = False,
    episodes: Annotated[int, typer.Option(min=1, help="Tasks to play, spread over the families.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run the conformance suite on environments of this installation.

    Seeds reproduce, resets are full, a snapshot then goes on like the original, forks do not see each other, the
    scripted solution succeeds, hostile actions never raise, memory is flat. Exit code 1 when a check does not hold.
    """
    from sojourn.envs import conformance, registry

    if bool(env) == everything:
        raise UsageError(f"say which to examine: --env NAME or --all (known: {', '.join(registry.names())})")
    lacking = registry.lacking() if everything else {}
    for lack in lacking.values():
        print(f"sojourn: left out: {lack}", file=sys.stderr)
    wanted = [name for name in registry.names() if name not in lacking] if everything else env or []
    services = {name: registry.load(name) for name in wanted}
    results: dict[str, list[CheckResult]] = {}
    for name, service in services.items():
        results[name] = asyncio.run(conformance.run(service, episodes=episodes))
        if not as_json:
            _print(name, results[name])
    if as_json:
        document = {name: [result._asdict() for result in found] for name, found in results.items()}
        json.dump(document, sys.stdout)
        print()
    if not all(result.passed for found in results.values() for result in found):
        raise typer.Exit(1)


def _print(name: str, results: list[CheckResult]) -> None:
    failed = [result for result in results if not result.passed]
    print(f"{name}: {len(results) - len(failed)} of {len(results)} checks hold")
    for result in results:
        print(f"  {'ok  ' if result.passed else 'FAIL'} {result.check}{': ' if result.detail else ''}{result.detail}")
