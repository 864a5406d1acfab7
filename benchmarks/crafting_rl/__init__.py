"""TextCraft by reinforcement learning: does training improve the embedded policy on goals and names it never saw?

    python -m benchmarks.crafting_rl             every cell that has no result yet
    python -m benchmarks.crafting_rl --help

`configs/` says what is run, `results/` holds a file for each cell; the harness is `benchmarks.experiments`.
"""
