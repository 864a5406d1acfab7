"""An environment server under closed-loop load: speed, latency, CPU time, memory; ours or somebody else's.

    python benchmarks/serve.py --env textcraft|babyai|sciworld [--quick] [--json]
    python benchmarks/serve.py --env babyai --url http://127.0.0.1:36002 --dialect agentgym --pid PID

Without --url it starts `sojourn serve ENV` as a process of its own. Cells: 1, 8, 64 and 256 episodes at a time, each
acting again as soon as it is answered; a step a request, and (native protocol) the steps of all in one request. Actions
are gold paths and listed actions, prepared before any clock runs. CPU time is that of the server's process tree, of
steps and of resets apart; with somebody else's server it takes --pid.

For sciworld the stock `ScienceWorldEnv` of the same package plays the same actions in the same run, both warm, and the
memory of 48 episodes at a time is measured.

A reset is to the task that the episode has, which the server may have kept; one to a new task is told apart.

At the top level of the JSON stand the figures of the reference cell: unbatched, 64 episodes (sciworld: 8).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import uvloop
from loadgen import stock
from loadgen.dialects import DIALECTS, AgentGym, path_of
from loadgen.load import Cell, Load
from loadgen.machine import describe, line
from loadgen.process import Running, sojourn_serve
from loadgen.scripts import INDICES, Script, prepare, task_at

from sojourn.client.session import EnvClient
from sojourn.envs.sciworld.games import parse
from sojourn.protocol.env import TaskRef

CONCURRENCY = (1, 8, 64, 256)
QUICK = {"textcraft": (1, 64), "babyai": (1, 64), "sciworld": (8,)}
REFERENCE = {"textcraft": 64, "babyai": 64, "sciworld": 8}
NEW_TASKS = {"textcraft": 200, "babyai": 200, "sciworld": 24}
TOGETHER = 48
"""SciWorld episodes whose memory is measured."""
SCRIPTS = {"textcraft": 64, "babyai": 64, "sciworld": 8}
"""For sciworld as many as the reference cell has episodes: each is played as often there as by the stock wrapper."""
QUICK_SCRIPTS = {"sciworld": 4}
WARM = (40, 10)
"""Rounds before SciWorld is measured, ours (two JVMs share them) and the stock wrapper's."""
QUICK_WARM = (8, 3)


async def goals_of(url: str, scripts: Sequence[Script]) -> list[Script]:
    """Scripts under the indices that an AgentGym TextCraft server has their goals at: its order is its own.

    The first indices are asked for their goals, as many as there are scripts; actions come from our own planner.
    """
    with sojourn_serve("textcraft") as ours:
        async with EnvClient(ours.url) as client:
            found = []
            for script in scripts:
                seat = await AgentGym.open(url, "textcraft", script.task, "agentgym")
                goal = (await seat.reset()).rpartition("Goal: craft ")[2].strip().removesuffix(".").replace(" ", "_")
                await seat.close()
                async with await client.create("textcraft", f"textcraft:{goal}") as session:
                    actions = (await session.solution()).actions[:-1]
                fill = ["inventory"] * len(script.actions)
                found.append(Script(script.task, tuple([*actions, *fill][: len(script.actions)])))
    return found


async def scripts_for(args: argparse.Namespace, server: Running) -> list[Script]:
    count = (SCRIPTS | QUICK_SCRIPTS if args.quick else SCRIPTS)[args.env]
    if args.url is None:
        return await prepare(server.url.removesuffix(path_of(args.dialect, args.env)), args.env, count, args.view)
    with sojourn_serve(args.env) as ours:
        scripts = await prepare(ours.url, args.env, count, args.view)
    if (args.env, args.dialect) == ("textcraft", "agentgym"):
        return await goals_of(args.url, scripts)
    return scripts


async def cells(load: Load, args: argparse.Namespace) -> list[Cell]:
    """The table, from the fewest episodes to the most."""
    modes = (False, True) if args.dialect == "native" else (False,)
    found = []
    print(HEAD, flush=True)
    for batched in modes:
        for concurrency in args.concurrency:
            found.append(await load.cell(concurrency, batched=batched))
            print(row(found[-1]), flush=True)
    return found


async def sciworld(load: Load, quick: bool, options: Sequence[str]) -> dict[str, Any]:
    """Ours against the stock wrapper on the same actions, and the memory of many episodes."""
    games = [(*parse(TaskRef.parse(script.task)), script.actions) for script in load.scripts]
    warm, rounds = (QUICK_WARM[1], 2) if quick else (WARM[1], 5)
    theirs = await asyncio.to_thread(stock.measure, games, warm, rounds)
    with sojourn_serve("sciworld", options) as fresh:
        many = Load(fresh, load.env, load.view, load.scripts, seconds=0.0, warm_rounds=1)
        together = (await many.cell(TOGETHER)).rss_mb
    return {"stock": theirs, f"rss_{TOGETHER}_mb": together}


async def new_task_ms(load: Load, quick: bool) -> float | None:
    """CPU ms of a reset to a task that the server has not met."""
    count = NEW_TASKS[load.env] // (4 if quick else 1)
    # From the far end of the walk that the scripts came from, so that no cache holds them.
    return await load.new_tasks([task_at(load.env, INDICES[load.env] - 1 - i) for i in range(count)])


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    options = [f"--env-config={args.env}.{option}" for option in args.env_config]
    with contextlib.ExitStack() as stack:
        if args.url is None:
            own = stack.enter_context(sojourn_serve(args.env, ["--max-sessions", "2048", *options]))
            server = Running(own.url + path_of(args.dialect, args.env), own.pid)
        else:
            server = Running(args.url, args.pid)
        machine = describe()
        load = Load(server, args.env, args.view, await scripts_for(args, server), args.dialect)
        load.seconds = 1.0 if args.quick else 5.0
        if args.env == "sciworld":
            # Its JVMs compile for long; afterwards a round is enough in every cell.
            warm = replace(load, seconds=0.0, warm_rounds=(QUICK_WARM if args.quick else WARM)[0])
            await warm.cell(REFERENCE["sciworld"])
        table = await cells(load, args)
        found = summary(args, table) | {"cpu_ms_per_new_task": await new_task_ms(load, args.quick)}
        if args.env == "sciworld" and args.dialect == "native":
            found |= await sciworld(load, args.quick, options)
    if "stock" in found and found["cpu_ms_per_step"] is not None:
        found["ratio_to_stock"] = round(found["cpu_ms_per_step"] / found["stock"]["cpu_ms_per_step"], 4)
    return found | {"machine": machine, "cells": [cell.as_dict() for cell in table]}


def summary(args: argparse.Namespace, table: Sequence[Cell]) -> dict[str, Any]:
    """The figures of the reference cell, or of the one nearest to it that was measured."""
    wanted = REFERENCE[args.env]
    chosen = min((c for c in table if c.mode == "unbatched"), key=lambda cell: abs(cell.concurrency - wanted))
    figures = chosen.as_dict()
    names = ("cpu_ms_per_step", "cpu_ms_per_reset", "steps_per_s", "p50_ms", "p99_ms", "rss_mb")
    batched = [c for c in table if c.mode == "batched" and c.concurrency == chosen.concurrency]
    return {
        "env": args.env,
        "dialect": args.dialect,
        "view": args.view,
        **{name: figures[name] for name in names},
        "cpu_ms_per_step_batched": batched[0].as_dict()["cpu_ms_per_step"] if batched else None,
        "reference_cell": {"mode": chosen.mode, "concurrency": chosen.concurrency},
    }


HEAD = """\
| steps | episodes | steps/s | p50 ms | p99 ms | CPU ms a step | CPU ms a reset | RSS MB before / after |
|---|---|---|---|---|---|---|---|"""
"""Of a table in Markdown, so that it can go into a page as it is."""


def row(cell: Cell) -> str:
    rss = f"{shown(cell.rss_before_mb, 0)} / {shown(cell.rss_mb, 0)}"
    figures = [shown(cell.steps_per_s, 0), shown(cell.p50_ms, 2), shown(cell.p99_ms, 2)]
    cpu = [shown(cell.cpu_ms_per_step, 3), shown(cell.cpu_ms_per_reset, 3)]
    return f"| {' | '.join([cell.mode, str(cell.concurrency), *figures, *cpu, rss])} |"


def shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def epilogue(found: dict[str, Any]) -> str:
    """What stands below the table."""
    lines = [
        f"a reset to a task not met before: {shown(found['cpu_ms_per_new_task'], 3)} CPU ms",
        line(found["machine"]),
    ]
    if "ratio_to_stock" in found:
        theirs = found["stock"]
        lines.append(
            f"stock wrapper: {theirs['cpu_ms_per_step']:.2f} CPU ms a step ({theirs['python_ms_per_step']:.2f} of them "
            f"Python), {theirs['rss_mb']:.0f} MB for one episode; "
            f"ours takes {found['ratio_to_stock']:.3f} of its CPU time"
        )
        lines.append(f"{TOGETHER} episodes at a time: {found[f'rss_{TOGETHER}_mb']:,.0f} MB, server and JVMs together")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", choices=sorted(INDICES), required=True)
    parser.add_argument("--url", help="a running server, its path included; default: one of our own is started")
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="native")
    parser.add_argument("--pid", type=int, help="process id of the server at --url, for its CPU time and memory")
    parser.add_argument("--view", default="agentgym", help="of a native or openenv server (default: agentgym)")
    parser.add_argument(
        "--env-config", metavar="KEY=VALUE", action="append", default=[], help="an option of the server that is started"
    )
    parser.add_argument("--concurrency", type=int, nargs="+", metavar="N", help="default: 1 8 64 256")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    if args.env_config and args.url is not None:
        parser.error("--env-config is for a server that is started here: without --url")
    if args.concurrency is None:
        args.concurrency = QUICK[args.env] if args.quick else CONCURRENCY
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure(args))
    print(epilogue(found))
    if args.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
