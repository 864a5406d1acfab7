"""An environment played in another Python process, where sets have another order and nothing is left from before.

The child reads one JSON line on stdin, `{"service", "config", "seed", "scripts": [[task, [action, ...]], ...]}`, and
answers with one: the transcript of each script.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

import orjson

from sojourn.envs.base import EnvService
from sojourn.envs.conformance.subject import Moment, Nonconformity, play, seen_at_reset
from sojourn.protocol.env import TaskRef

Transcript = list[Moment]


def importable(service: EnvService) -> str | None:
    """`module:Class` of a service's class; None for one that another process cannot import."""
    cls = type(service)
    return None if "<locals>" in cls.__qualname__ else f"{cls.__module__}:{cls.__qualname__}"


async def transcripts(service: EnvService, scripts: Mapping[TaskRef, Sequence[str]], seed: int) -> list[Transcript]:
    """What an agent sees that plays each script from a fresh episode."""
    found = []
    for task, actions in scripts.items():
        env = service.create()
        found.append([seen_at_reset(await env.reset(task, seed=seed)), *await play(env, actions)])
        await env.close()
    return found


async def transcripts_elsewhere(
    service: EnvService, scripts: Mapping[TaskRef, Sequence[str]], seed: int
) -> list[Transcript]:
    """The same, from another process with another hash seed.

    Raises:
        Nonconformity: the process failed; says how.
    """
    order = {
        "service": importable(service),
        "config": service.config.model_dump(mode="json"),
        "seed": seed,
        "scripts": [[str(task), list(actions)] for task, actions in scripts.items()],
    }
    own = os.environ.get("PYTHONHASHSEED")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"{__package__}.child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "2" if own == "1" else "1"},
    )
    answer, complaint = await process.communicate(orjson.dumps(order) + b"\n")
    if process.returncode:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise Nonconformity(f"another process fails with code {process.returncode}: {last[:300]}")
    return [[Moment(*moment) for moment in transcript] for transcript in orjson.loads(answer)]
