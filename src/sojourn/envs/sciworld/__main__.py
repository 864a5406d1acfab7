"""Works out the gold paths of a split beforehand: `python -m sojourn.envs.sciworld --split test`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sojourn.envs.sciworld.games import SPLITS, SciWorldTasks, parse
from sojourn.envs.sciworld.gold import GoldPaths, default_folder
from sojourn.envs.sciworld.pool import Game, Pool, PoolLimits
from sojourn.protocol.errors import SojournError


def main(arguments: Sequence[str] | None = None) -> int:
    """Keep the path of every task of a split; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sojourn.envs.sciworld", description="Work out a split's gold paths."
    )
    parser.add_argument("--split", choices=SPLITS, default="test")
    parser.add_argument("--family", action="append", help="a task's name; may be given again (default: all)")
    options = parser.parse_args(arguments)
    pool = Pool(PoolLimits(jvms=1, live=4, heap_mb=1024, rss_mb=1536, call_s=60.0))
    paths = GoldPaths(pool)
    try:
        tasks = SciWorldTasks().select(options.split, options.family)
        found = [paths.path(Game(*parse(task))) for task in tasks]
    except SojournError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        pool.close()
    print(f"{sum(path is not None for path in found)} of {len(found)} tasks have a path, kept in {default_folder()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
