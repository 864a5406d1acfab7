"""The policy that ScienceWorld's cells start from, made by the commands that anybody would type.

It is made once and kept under `build/`, unversioned; a cell's result holds the digest of its weights.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sojourn.cli.extras import find_config
from sojourn.protocol.errors import UsageError
from sojourn.trainer.config_reading import load_run_config

CONFIG = "sciworld_sft"
MADE = Path("build/sciworld_rl")
"""A folder for each recipe; its number changes whenever the recipe does."""


async def start(name: str) -> str:
    """The directory of the cloned model, in the folder `name`, made when it is not there; raises `UsageError`."""
    target = MADE / name
    if not target.is_dir():
        scratch = target.with_name(f".{name}.{os.getpid()}")
        shutil.rmtree(scratch, ignore_errors=True)
        _make(scratch)
        [step] = (scratch / "run" / "checkpoints").iterdir()
        try:
            (step / "model").rename(target)
        except OSError as error:
            if not target.is_dir():  # else somebody else was faster
                raise UsageError(f"no start: {target} cannot be written: {error.strerror}") from error
        shutil.rmtree(scratch)
    return str(target)


def _make(scratch: Path) -> None:
    untrained = scratch / "untrained"
    env = load_run_config(find_config(CONFIG)).envs[0]
    chosen = [word for family in env.families or () for word in ("--family", family)]
    chosen += ["--view", env.view] if env.view else []
    _run("sojourn.cli.embedded", ["untrained", "--env", env.name, *chosen, "--out", str(untrained)])
    _run(
        "sojourn",
        ["train", CONFIG, f"model.name={untrained}", "trainer.eval_every=0", "--run-dir", str(scratch / "run")],
    )


def _run(module: str, arguments: Sequence[str]) -> None:
    code = subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode
    if code:
        raise UsageError(f"no start: python -m {module} {arguments[0]} ended with exit code {code}, as said above")
