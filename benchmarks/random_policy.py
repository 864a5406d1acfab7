"""The episodes of an evaluation played by chance: at each turn one of the actions that the world lists, all alike.

    python -m benchmarks.random_policy runs/NAME/evaluations/step_000000.json --seed 0 --out random.json

What it writes is an evaluation of the same episodes, for `benchmarks.by_task`: how much of a score takes no policy.
`--only WORD` draws among the listed actions that begin with the word, as long as there are any.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path

from benchmarks.by_task import read

from sojourn.envs import registry
from sojourn.envs.base import EnvService
from sojourn.evaluation.report import EpisodeResult, Evaluation
from sojourn.files import write_whole
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import ServiceError, UsageError
from sojourn.protocol.trajectory import StopReason


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_policy", description=__doc__.splitlines()[0])
    parser.add_argument("evaluation", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="WORD", default="")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    try:
        played = asyncio.run(play(read(options.evaluation), seed=options.seed, only=options.only))
        write_whole(options.out, played.model_dump_json(indent=1))
    except (UsageError, ServiceError, OSError) as error:
        parser.error(str(error))
    print(played.table())


async def play(asked: Evaluation, *, seed: int, only: str = "") -> Evaluation:
    """An evaluation of the same episodes at the same horizons.

    Raises:
        UsageError: an environment that is not known, or lists no actions.
    """
    if unbounded := {r.env for r in asked.results} - asked.horizon.keys():
        raise UsageError(f"the evaluation does not say the horizon of {', '.join(sorted(unbounded))}")
    services = {env: registry.load(env)() for env in asked.horizon}
    for service in services.values():
        await service.open()
    try:
        results = [
            await _episode(services[r.env], r, asked.horizon[r.env], random.Random(f"{seed}/{r.key}"), only)
            for r in asked.results
        ]
    finally:
        for service in services.values():
            await service.close()
    return Evaluation(engine="random", policy_version=0, horizon=asked.horizon, seed=seed, results=results)


async def _episode(
    service: EnvService, asked: EpisodeResult, horizon: int, rng: random.Random, only: str
) -> EpisodeResult:
    view = asked.key.split("/")[1]
    world, stop, turns = service.create(view), StopReason.MAX_TURNS, 0
    try:
        task = service.tasks().resolve(TaskRef.parse(asked.task))
        info = (await world.reset(task, init=asked.init)).info
        while stop is StopReason.MAX_TURNS and turns < horizon:
            listed = await world.available_actions()
            if not listed:
                raise UsageError(f"{asked.env} lists no actions: there is nothing to draw from")
            result = await world.step(rng.choice([a for a in listed if a.startswith(only)] or listed))
            info, turns = result.info, turns + 1
            if result.terminated or result.truncated:
                stop = StopReason.COMPLETED if result.terminated else StopReason.ENV_TRUNCATED
    finally:
        await world.close()
    played = {"success": bool(info["success"]), "score": float(info["score"]), "turns": turns, "stop": stop.value}
    return asked.model_copy(update={**played, "error": False})


if __name__ == "__main__":
    main()
