"""The short soak: memory is flat, and a planted leak is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sojourn.envs import registry

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"
BOUND = 0.5
"""KB an episode. An episode whose world alone is kept leaves over 1; a sound server leaves under 0.1."""


def soak(env: str, *options: str) -> tuple[int, dict]:
    command = [sys.executable, str(SOAK), "--env", env, "--quick", "--json", *options]
    # For the server that is told to serve a class of these tests.
    environment = {**os.environ, "PYTHONPATH": str(SOAK.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)
    assert done.stdout.endswith("}\n"), done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("env", ["textcraft", "babyai"])
def test_memory_is_flat(env):
    code, found = soak(env, "--bound", str(BOUND))
    assert found["faults"][env] == []
    assert code == 0
    assert found["slope_kb_per_episode"][env] < BOUND
    counts = found["counts"][env]
    assert counts["created"] == counts["closed"] + counts["abandoned"]
    assert counts["reclaimed"] == counts["abandoned"] == counts["created"] // 10
    assert counts["errors"] == 0


@pytest.mark.skipif("sciworld" in registry.lacking(), reason="needs Java")
def test_games_are_reclaimed():
    # One that stayed would take 10 MB of a heap of 256: some 50 of them end both JVMs, which would be missed.
    code, found = soak("sciworld")
    assert (code, found["faults"]["sciworld"]) == (0, [])
    assert found["counts"]["sciworld"]["reclaimed"] == 14
    assert found["interval_kb_per_episode"]["sciworld"][1] < 1_000


def test_a_planted_leak_is_seen():
    code, found = soak("textcraft", "--bound", str(BOUND), "--serve", "tests.benchmarks.leaky:LeakyTextCraft")
    assert code == 1
    assert found["interval_kb_per_episode"]["textcraft"][0] > BOUND
    assert "memory grows" in found["faults"]["textcraft"][0]
    assert found["counts"]["textcraft"]["errors"] == 0
