"""`sojourn eval`: how often a policy succeeds on held-out tasks, with intervals, by family."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from sojourn.cli.environments import EnvDialect, EnvUrl, TokenFile, environments
from sojourn.cli.extras import needs
from sojourn.files import write_whole
from sojourn.protocol.errors import UsageError

if TYPE_CHECKING:
    from sojourn.evaluation.report import Evaluation
    from sojourn.rollout.few_shot import FewShot

Model = Annotated[
    str, typer.Option("--model", help="A shipped model, a run's directory, a model's directory, or a Hugging Face id.")
]
EnvName = Annotated[str, typer.Option("--env", help="The environment.")]
Families = Annotated[list[str] | None, typer.Option("--family", help="Only tasks of this family; repeatable.")]
Horizon = Annotated[int | None, typer.Option(min=1, help="Turns of an episode; the environment's published ones.")]
View = Annotated[str | None, typer.Option(help="How the world is worded; what the model was trained on, or the first.")]
Prompt = Annotated[str | None, typer.Option(help="full, or none: the observation without instructions.")]
Format = Annotated[
    str | None, typer.Option("--format", help="How actions are written: react, tagged; what the model was trained on.")
]

FewShotFile = Annotated[
    Path | None,
    typer.Option("--few-shot", help="Conversations to put before every episode; what the model was trained with."),
]
Init = Annotated[
    str | None, typer.Option("--init", help="JSON: what the worlds begin with; what the model was trained with.")
]


def evaluate(
    model: Model,
    env: EnvName,
    split: Annotated[str, typer.Option(help="Split of the tasks.")] = "test",
    family: Families = None,
    episodes: Annotated[int, typer.Option(min=1, help="Each task once before any comes twice.")] = 256,
    horizon: Horizon = None,
    view: View = None,
    prompt: Prompt = None,
    action_format: Format = None,
    few_shot: FewShotFile = None,
    init: Init = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="0 is greedy; that of the run's evaluations, or 1.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of one completion.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed plays the same episodes.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes in flight.")] = 256,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, without the single episodes.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File for the JSON with every episode.")] = None,
    record: Annotated[Path | None, typer.Option(help="Directory for recordings of the episodes.")] = None,
    env_url: EnvUrl = None,
    env_dialect: EnvDialect = "native",
    token_file: TokenFile = None,
) -> None:
    """Evaluate a policy: success by family with 95 % intervals."""
    with needs("train"):
        from sojourn.cli.policy import adjusted, find_policy, tasks_for
        from sojourn.evaluation.evaluate import evaluate as play
    policy = find_policy(model)
    said = spoken(env, view, prompt, action_format, few_shot, init)
    manners = adjusted(policy.manners, env, **said, max_tokens=max_tokens, eval_temperature=temperature)

    async def run() -> Evaluation:
        from sojourn.cli.policy import Policy, make_player

        async with environments([env], env_url, token_file, env_dialect) as envs:
            tasks = await tasks_for(manners, envs, env, split=split, episodes=episodes, families=family, seed=seed)
            player = make_player(Policy(policy.model, manners), envs, temperature=manners.eval_temperature, seed=seed)
            try:
                return await play(player, tasks, horizon=horizon, concurrency=concurrency, seed=seed, record=record)
            finally:
                await player.engine.close()

    evaluation = asyncio.run(run())
    if out is not None:
        _write(out, evaluation.model_dump_json(indent=1))
    print(evaluation.model_dump_json(exclude={"results"}) if as_json else evaluation.table())


def spoken(
    env: str,
    view: str | None,
    prompt: str | None,
    action_format: str | None,
    few_shot: Path | None,
    init: str | None,
) -> dict[str, Any]:
    """How to talk to the policy, as `eval` and `rollout` were told, read and checked; None for what was not said."""
    return {
        "views": None if view is None else {env: view},
        "prompt": check_prompt(prompt),
        "format": check_format(action_format),
        "few_shot": read_examples(env, few_shot),
        "inits": read_init(env, init),
    }


def check_prompt(prompt: str | None) -> str | None:
    """`--prompt` as it is; raises `UsageError` for another word."""
    if prompt not in {None, "full", "none"}:
        raise UsageError(f"--prompt {prompt!r}: expected full or none")
    return prompt


def check_format(name: str | None) -> str | None:
    """`--format` as it is; raises `UsageError` for one that there is not."""
    from sojourn.rollout.agent import FORMATS

    if name is not None and name not in FORMATS:
        raise UsageError(f"--format {name!r}: expected one of {', '.join(FORMATS)}")
    return name


def read_examples(env: str, path: Path | None) -> dict[str, FewShot] | None:
    """`--few-shot` read, for its environment; raises `UsageError` for what are no example turns."""
    from sojourn.rollout.few_shot import read_few_shot

    return None if path is None else {env: read_few_shot(path)}


def read_init(env: str, text: str | None) -> dict[str, dict[str, Any]] | None:
    """`--init` read, for its environment; raises `UsageError` for what is no JSON object."""
    if text is None:
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"--init is not JSON: {error.msg}") from error
    if not isinstance(found, dict):
        raise UsageError(f"--init {text}: expected a JSON object")
    return {env: found}


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
