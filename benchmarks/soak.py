"""Thousands of episodes over HTTP, one in ten of which is abandoned: does the server's memory come back?

    python benchmarks/soak.py [--env NAME ...] [--quick] [--json]

A server of each environment is started with short leases. Episodes of ever new tasks are played on it (the scripted
solution where one is quick to find, else a wander), and one in ten is left half-way, never to be closed. At regular
points the load stops until the last lease has expired, and the resident memory of the server's process tree, JVMs
included, is read. The slope through these samples is what an episode leaves behind. The first episodes are left out:
caches and the server's memory of closed sessions fill up to their bounds, which follow `--max-sessions`.

Exit code 1 when memory surely grows by more than the bound (--bound, KB an episode), a session is not reclaimed, or a
request fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import uvloop
from loadgen.episodes import Counts, Player
from loadgen.machine import describe, line
from loadgen.process import ProcessTree, sojourn_serve
from loadgen.slope import Slope, fit


@dataclass(frozen=True)
class Plan:
    """How an environment is soaked."""

    episodes: int
    warm_up: int
    """Episodes before the first sample."""
    bound: float
    """KB an episode that are no leak: well below what an episode leaves whose world is kept (see docs)."""
    samples: int = 20
    concurrency: int = 16
    max_sessions: int = 256
    lease_s: float = 4.0
    tasks: int | None = None
    """Different tasks, if not all: what is cached by task or by view is then full before the first sample."""
    heap_mb: int | None = None
    """Of SciWorld's JVMs: small, so that heaps have their full size before the first sample. One that leaks then ends,
    and is missed."""

    def options(self) -> list[str]:
        """Words for `sojourn serve`."""
        heap = [] if self.heap_mb is None else ["--env-config", f"sciworld.heap_mb={self.heap_mb}"]
        return ["--max-sessions", str(self.max_sessions), "--lease-s", str(self.lease_s), *heap]


COMPILERS = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=0.02"}
"""One compiler, and early: as they come, Java's two make code for ever rarer methods over thousands of episodes, which
is no leak but looks like one. `--java-defaults` leaves them as they come."""
PLANS = {
    "textcraft": Plan(episodes=20_000, warm_up=5_000, bound=0.2),
    "babyai": Plan(episodes=10_000, warm_up=5_000, bound=0.5, max_sessions=128),
    "sciworld": Plan(2_200, 1_600, bound=2.0, samples=24, concurrency=8, max_sessions=24, lease_s=6.0, heap_mb=512),
}
QUICK = {
    "textcraft": Plan(1_800, 600, bound=0.5, samples=6, concurrency=8, max_sessions=32, lease_s=2.0),
    "babyai": Plan(1_200, 600, bound=0.5, samples=6, concurrency=8, max_sessions=32, lease_s=2.0, tasks=40),
    "sciworld": Plan(136, 80, bound=500.0, samples=5, concurrency=8, max_sessions=24, lease_s=3.0, heap_mb=256),
}


@dataclass
class Samples:
    """Resident memory after so many episodes, the server's own and that of the processes below it (JVMs)."""

    tree: ProcessTree
    episodes: list[int] = field(default_factory=list)
    own_mb: list[float] = field(default_factory=list)
    below_mb: list[float] = field(default_factory=list)
    pids: list[set[int]] = field(default_factory=list)

    def take(self, episodes: int) -> None:
        """Read the memory now."""
        found = self.tree.rss_by_process_mb()
        own, *below = found.values()
        self.episodes.append(episodes)
        self.own_mb.append(own)
        self.below_mb.append(sum(below))
        self.pids.append(set(found))

    def rss_mb(self) -> list[float]:
        return [round(own + below, 2) for own, below in zip(self.own_mb, self.below_mb, strict=True)]

    def slope(self) -> Slope:
        return self._fit(self.rss_mb())

    def parts(self) -> dict[str, Slope]:
        """The slopes of the two apart."""
        return {"server": self._fit(self.own_mb)} | ({"below": self._fit(self.below_mb)} if any(self.below_mb) else {})

    def _fit(self, values_mb: Sequence[float]) -> Slope:
        return fit(self.episodes, [value * 1024 for value in values_mb])


@dataclass(frozen=True)
class Soaked:
    """What came of a plan."""

    plan: Plan
    counts: Counts
    samples: Samples
    seconds: float

    def faults(self) -> list[str]:
        """What is wrong, if anything is."""
        counts, faults = self.counts, []
        slope = self.samples.slope()
        if slope.leaks(self.plan.bound):
            faults.append(f"memory grows by {slope.kb_per_episode:.2f} KB an episode, over {self.plan.bound:g}")
        if any(pids != self.samples.pids[0] for pids in self.samples.pids):
            faults.append("a JVM was replaced")
        if counts.reclaimed != counts.abandoned:
            faults.append(f"{counts.abandoned} sessions were abandoned and {counts.reclaimed} reclaimed")
        if counts.errors:
            faults.append(f"{counts.errors} requests failed, the first with {counts.first_error}")
        return faults


async def soak(env: str, plan: Plan, serve: str | None = None, java_defaults: bool = False) -> Soaked:
    """Play a plan.

    Args:
        env: whose tasks and actions.
        plan: how many, and how often memory is read.
        serve: what `sojourn serve` is given in its place, `package.module:ServiceClass`.
        java_defaults: leave Java's compilers as they come.
    """
    started = time.monotonic()
    with sojourn_serve(serve or env, plan.options(), {} if java_defaults else COMPILERS) as server:
        assert server.pid is not None
        player, counts = Player(server.url, env, plan.concurrency, plan.tasks), Counts()
        samples = Samples(ProcessTree(server.pid))
        for point in range(plan.samples + 1):
            until = plan.warm_up + (plan.episodes - plan.warm_up) * point // plan.samples
            await player.play(range(counts.created, until), counts)
            await player.settle(4 * plan.lease_s + 30)
            samples.take(until)
        counts.reclaimed = await player.reclaimed()
    return Soaked(plan, counts, samples, time.monotonic() - started)


HEAD = """\
| environment | episodes | abandoned | reclaimed | errors | RSS MB first / last | KB an episode (95 %) | server / JVMs |
|---|---|---|---|---|---|---|---|"""


def row(env: str, found: Soaked) -> str:
    """One line of the table, in Markdown."""
    counts, slope, rss = found.counts, found.samples.slope(), found.samples.rss_mb()
    cells = [env, f"{counts.created:,}", f"{counts.abandoned:,}", f"{counts.reclaimed:,}", str(counts.errors)]
    cells.append(f"{rss[0]:,.1f} / {rss[-1]:,.1f}")
    cells.append(f"{slope.kb_per_episode:+.2f} ({slope.low:+.2f} to {slope.high:+.2f})")
    cells.append(" / ".join(f"{part.kb_per_episode:+.2f}" for part in found.samples.parts().values()))
    return f"| {' | '.join(cells)} |"


def document(results: dict[str, Soaked], machine: dict[str, Any]) -> dict[str, Any]:
    """What --json prints."""
    slopes = {env: found.samples.slope() for env, found in results.items()}
    return {
        "slope_kb_per_episode": {env: round(slope.kb_per_episode, 3) for env, slope in slopes.items()},
        "interval_kb_per_episode": {env: [round(slope.low, 3), round(slope.high, 3)] for env, slope in slopes.items()},
        "parts_kb_per_episode": {
            env: {name: round(part.kb_per_episode, 3) for name, part in found.samples.parts().items()}
            for env, found in results.items()
        },
        "counts": {env: found.counts.as_dict() for env, found in results.items()},
        "samples": {
            env: {"episodes": found.samples.episodes, "rss_mb": found.samples.rss_mb()}
            for env, found in results.items()
        },
        "faults": {env: found.faults() for env, found in results.items()},
        "seconds": {env: round(found.seconds, 1) for env, found in results.items()},
        "machine": machine,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", choices=sorted(PLANS), help="default: all")
    parser.add_argument("--quick", action="store_true", help="a short version, under a minute")
    parser.add_argument("--episodes", type=int, help="another number of episodes")
    parser.add_argument("--bound", type=float, help="KB an episode above which memory counts as leaking")
    parser.add_argument("--serve", metavar="MODULE:CLASS", help="serve this in the environment's place")
    parser.add_argument("--java-defaults", action="store_true", help="leave SciWorld's JVMs their compilers")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    changed = {name: value for name in ("episodes", "bound") if (value := getattr(args, name)) is not None}
    machine, results = describe(), dict[str, Soaked]()
    print(HEAD, flush=True)
    for env in args.env or list(PLANS):
        plan = replace((QUICK if args.quick else PLANS)[env], **changed)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            results[env] = runner.run(soak(env, plan, args.serve, args.java_defaults))
        print(row(env, results[env]), flush=True)
        for fault in results[env].faults():
            print(f"{env}: {fault}", file=sys.stderr, flush=True)
    print(line(machine))
    if args.json:
        print(json.dumps(document(results, machine)))
    return 1 if any(found.faults() for found in results.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
