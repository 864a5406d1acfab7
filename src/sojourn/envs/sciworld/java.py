"""What has to be on the machine: a Java runtime, and ScienceWorld's simulator, which its Python package holds."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from sojourn.protocol.errors import UsageError

RELEASE = "1.2.3"
"""The release of `scienceworld` that tasks, splits and gold paths belong to."""
_HERE = Path(__file__).parent


def find_java() -> str:
    """The Java launcher: `$JAVA_HOME`'s, else the one on the path; raises `UsageError` when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise UsageError(
            "environment 'sciworld' needs a Java runtime, which is not installed: "
            "apt-get install openjdk-17-jre-headless (any Java from 11 on will do)"
        )
    return found


def find_jar() -> Path:
    """The simulator; raises `UsageError` when the package is missing or another release."""
    need = f"pip install 'sojourn[sciworld]' (or scienceworld=={RELEASE})"
    try:
        found = version("scienceworld")
    except PackageNotFoundError:
        raise UsageError(f"environment 'sciworld' needs scienceworld, which is not installed: {need}") from None
    if found != RELEASE:
        raise UsageError(f"environment 'sciworld' needs scienceworld {RELEASE}, not {found}: {need}")
    jar = Path(str(distribution("scienceworld").locate_file("scienceworld/scienceworld.jar")))
    if not jar.is_file():
        raise UsageError(f"environment 'sciworld' finds no simulator at {jar}: {need}")
    return jar


def command(heap_mb: int) -> list[str]:
    """How to start a JVM of simulators.

    All objects must have the same hash (`hashCode=2`): the simulator lists the members of its sets, which are then in
    the order in which they came. By address, each run would list them in another order, and draw other random numbers.

    Raises:
        UsageError: Java or the simulator is not installed.
    """
    return [
        find_java(),
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:+UnlockExperimentalVMOptions",
        "-XX:hashCode=2",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+DisplayVMOutputToStderr",
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
        "--add-opens=java.base/java.util=ALL-UNNAMED",
        "-cp",
        os.pathsep.join([str(find_jar()), str(_HERE)]),
        "Shim",
    ]
