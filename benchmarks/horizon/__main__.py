"""Fixed short, fixed long, ScalingInter and Adaptive on three environments, five paired seeds."""

from __future__ import annotations

from pathlib import Path

from benchmarks.experiments.command import Experiment, main


async def begin(name: str) -> str:
    """A clone of the small worlds, or a model that is known."""
    from benchmarks.horizon.starts import start  # torch: only where something is trained

    return await start(name)


HORIZON = Experiment("benchmarks.horizon", Path(__file__).parent, seeds=range(10, 15), start=begin)

if __name__ == "__main__":
    raise SystemExit(main(HORIZON, __doc__))
