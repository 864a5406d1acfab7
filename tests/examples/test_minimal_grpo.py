"""The one-page example is a page, and runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.trainer.runs import save_model

EXAMPLE = Path(__file__).parents[2] / "examples" / "minimal_grpo.py"


def test_it_is_one_page():
    assert len(EXAMPLE.read_text().splitlines()) < 150


def test_it_runs(tmp_path):
    model = save_model(tmp_path / "model")
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLE), "--model", str(model), "--steps", "2"]
    command += ["--groups", "2", "--size", "2", "--horizon", "2", "--families", "UnlockLocal"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [re.match(r"step \d: success \d\.\d{3} of 4 episodes", line) is not None for line in lines] == [True, True]
