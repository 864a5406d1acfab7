"""ScienceWorld: gold paths, then GRPO under three schedules of the horizon; three seeds, the dev split."""

from __future__ import annotations

from pathlib import Path

from benchmarks.experiments.command import Experiment, main
from benchmarks.sciworld_rl.start import start

SCIWORLD = Experiment("benchmarks.sciworld_rl", Path(__file__).parent, seeds=range(30, 33), start=start)

if __name__ == "__main__":
    raise SystemExit(main(SCIWORLD, __doc__))
