"""The embedded policy trained on TextCraft with names exchanged anew for every group: three seeds, held-out goals."""

from __future__ import annotations

from pathlib import Path

from benchmarks.experiments.command import Experiment, main


async def shipped(name: str) -> str:
    """Its start comes with the package."""
    return name


CRAFTING = Experiment("benchmarks.crafting_rl", Path(__file__).parent, seeds=range(3), start=shipped)

if __name__ == "__main__":
    raise SystemExit(main(CRAFTING, __doc__))
