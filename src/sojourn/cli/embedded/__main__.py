"""Rebuild the embedded policies: demonstrations from the environments' oracles, then fine-tuning from scratch.

    python -m sojourn.cli.embedded demonstrations --out build/tiny
    python -m sojourn.cli.embedded train --out build/tiny

`--policy search` makes the one that answers questions about the fictional worlds. Training tasks only: held-out goals,
level seeds and worlds are never shown. `untrained` makes one for another environment that `sojourn train` then teaches:

    python -m sojourn.cli.embedded untrained --env sciworld --out build/sciworld
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.embedded.courses import find_plan
from sojourn.cli.embedded.demonstrations import Job, play
from sojourn.cli.embedded.rows import Rows
from sojourn.cli.embedded.untrained import untrained as make_untrained
from sojourn.cli.environments import environments
from sojourn.cli.evaluate import EnvName, Families, check_format
from sojourn.cli.report import report
from sojourn.engines.tiny import build_model, build_tokenizer, save
from sojourn.protocol.errors import UsageError
from sojourn.rollout.agent import FORMATS
from sojourn.trainer.sft import SFT

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

Policy = Annotated[str, typer.Option(help="Which policy: tiny (TextCraft and BabyAI) or search (Deep Search).")]
Out = Annotated[Path, typer.Option(help="The demonstrations' directory; checkpoints go there too.")]


@app.command()
def demonstrations(
    out: Out,
    policy: Policy = "tiny",
    episodes: Annotated[int, typer.Option(min=1, help="Of each environment.")] = 24000,
    parts: Annotated[int, typer.Option(min=1, help="Files of each environment; Deep Search has a world for each.")] = 2,
    processes: Annotated[int, typer.Option(min=1, help="Parts that are played at the same time.")] = 2,
) -> None:
    """Play the oracles on training tasks and write token rows."""
    out.mkdir(parents=True, exist_ok=True)
    jobs = [
        Job(policy, env, episodes // parts, part, out / f"{env}-{part}.npz")
        for env in find_plan(policy).courses
        for part in range(parts)
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for line in pool.imap_unordered(play, jobs):
            print(line, flush=True)


@app.command()
def train(
    out: Out,
    policy: Policy = "tiny",
    tokens: Annotated[
        int, typer.Option(min=1, help="Length of training; some 9,000 a second on one core.")
    ] = 26_000_000,
    save_at: Annotated[str, typer.Option(help="Tokens after which to keep a checkpoint, e.g. 800000,2000000.")] = "",
    seed: Annotated[int, typer.Option(help="Of the first weights and the order of the rows.")] = 0,
) -> None:
    """Fine-tune a fresh model on the rows and save the moving average of its weights."""
    plan = find_plan(policy)
    pieces = plan.pieces()
    tokenizer = build_tokenizer(pieces)
    model = build_model(len(tokenizer), seed=seed)
    rows = {env: Rows.load(sorted(out.glob(f"{env}-*.npz")), pieces) for env in plan.courses}
    sizes = ", ".join(f"{len(found)} rows of {env}" for env, found in rows.items())
    print(f"{model.num_parameters()} parameters, {len(tokenizer)} tokens, {sizes}", flush=True)
    run = SFT(model, plan.sft.model_copy(update={"seed": seed}), total_tokens=tokens)
    marks = sorted(int(mark) for mark in save_at.split(",") if mark)

    def report(loss: float) -> None:
        print(json.dumps({"tokens": run.tokens, "steps": run.steps, "loss": round(loss, 4)}), flush=True)
        while marks and run.tokens >= marks[0]:
            with run.averaged():
                save(model, tokenizer, out / f"at-{marks.pop(0)}")

    run.run(plan.stream(tokenizer, rows, seed, lambda: run.tokens), report_every=100_000, on_report=report)
    with run.averaged():
        save(model, tokenizer, out / "end")


@app.command()
def untrained(
    out: Annotated[Path, typer.Option(help="The model's directory.")],
    env: EnvName,
    family: Families = None,
    view: Annotated[str | None, typer.Option(help="How the world is worded; its first view.")] = None,
    action_format: Annotated[str, typer.Option("--format", help="How actions are written.")] = "react",
    thoughts: Annotated[bool, typer.Option(help="Whether the scripted solution's reasons count.")] = True,
    episodes: Annotated[int, typer.Option(min=1, help="Scripted solutions whose words are counted.")] = 256,
    pieces: Annotated[int, typer.Option(min=1, help="Words and phrases that are one token each, at most.")] = 768,
    seed: Annotated[int, typer.Option(help="Of the tasks and of the weights.")] = 0,
) -> None:
    """Write a model that has learnt nothing, with a tokenizer made from an environment's texts."""
    chosen = FORMATS[check_format(action_format) or "react"]()
    if (out / "config.json").exists():
        raise UsageError(f"there is a model in {out} already: give another --out")

    async def make() -> None:
        async with environments([env]) as envs:
            model, tokenizer = await make_untrained(
                envs,
                env,
                chosen,
                families=family,
                view=view,
                thoughts=thoughts,
                episodes=episodes,
                pieces=pieces,
                seed=seed,
            )
        try:
            save(model, tokenizer, out)
        except OSError as error:
            raise UsageError(f"cannot write {out}: {error.strerror or error}") from error
        print(f"{model.num_parameters()} parameters, {len(tokenizer)} tokens, in {out}")

    asyncio.run(make())


def main() -> int:
    """Run a command and return its exit code, as `sojourn` does."""
    try:
        return int(app(sys.argv[1:] or ["--help"], standalone_mode=False) or 0)
    except (Exception, KeyboardInterrupt) as error:
        return report(error, "python -m sojourn.cli.embedded --help")


if __name__ == "__main__":
    sys.exit(main())
