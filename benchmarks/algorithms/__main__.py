"""Five algorithms on the BabyAI mix, each with one setting chosen beforehand: five paired seeds, equal tokens."""

from __future__ import annotations

from pathlib import Path

from benchmarks.experiments.command import Experiment, main


async def shipped(name: str) -> str:
    """Its start comes with the package."""
    return name


ALGORITHMS = Experiment("benchmarks.algorithms", Path(__file__).parent, seeds=range(5), start=shipped)

if __name__ == "__main__":
    raise SystemExit(main(ALGORITHMS, __doc__))
