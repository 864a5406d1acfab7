"""Rebuild the embedded policy: demonstrations from the environments' oracles, then fine-tuning from scratch.

    python -m sojourn.cli.embedded demonstrations --out build/tiny
    python -m sojourn.cli.embedded train --out build/tiny

Training tasks only: held-out goals and level seeds are never shown.
"""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.embedded.curriculum import Curriculum
from sojourn.cli.embedded.demonstrations import Job, Rows, play
from sojourn.cli.embedded.vocabulary import pieces
from sojourn.engines.tiny import build_model, build_tokenizer, save
from sojourn.trainer.sft import SFT, SFTConfig

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


@app.command()
def demonstrations(
    out: Annotated[Path, typer.Option(help="Where the rows go.")],
    textcraft: Annotated[int, typer.Option(help="Episodes of TextCraft.")] = 24000,
    babyai: Annotated[int, typer.Option(help="Episodes of BabyAI.")] = 24000,
    processes: int = 2,
    noise: Annotated[float, typer.Option(help="Chance of a wrong, unlearnt action in half of the episodes.")] = 0.12,
) -> None:
    """Play the oracles on training tasks and write token rows."""
    out.mkdir(parents=True, exist_ok=True)
    jobs = [
        Job(env, episodes // processes, part, noise, out / f"{env}-{part}.npz")
        for env, episodes in (("textcraft", textcraft), ("babyai", babyai))
        for part in range(processes if episodes else 0)
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for line in pool.imap_unordered(play, jobs):
            print(line, flush=True)


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Where `demonstrations` wrote; checkpoints go there too.")],
    tokens: Annotated[int, typer.Option(help="Length of training; 9,000 a second or so on one core.")] = 26_000_000,
    drill_tokens: Annotated[int, typer.Option(help="Of these, the first go to the look-up drill.")] = 400_000,
    save_at: Annotated[str, typer.Option(help="Tokens after which to keep a checkpoint, e.g. 800000,2000000.")] = "",
    textcraft_share: Annotated[float, typer.Option(help="Share of rows from TextCraft.")] = 0.5,
    seed: int = 0,
) -> None:
    """Fine-tune a fresh model on the rows and save the moving average of its weights."""
    tokenizer = build_tokenizer(pieces())
    model = build_model(len(tokenizer), seed=seed)
    craft, babyai = (Rows.load(sorted(out.glob(f"{env}-*.npz"))) for env in ("textcraft", "babyai"))
    print(
        f"{model.num_parameters()} parameters, {len(tokenizer)} tokens, {len(craft)} + {len(babyai)} rows", flush=True
    )
    curriculum = Curriculum(tokenizer, craft, babyai, drill_tokens, textcraft_share, seed)
    marks = sorted(int(mark) for mark in save_at.split(",") if mark)
    run = SFT(model, SFTConfig(seed=seed, threads=1), total_tokens=tokens)

    def report(loss: float) -> None:
        curriculum.tokens = run.tokens
        print(json.dumps({"tokens": run.tokens, "steps": run.steps, "loss": round(loss, 4)}), flush=True)
        while marks and run.tokens >= marks[0]:
            with run.averaged():
                save(model, tokenizer, out / f"at-{marks.pop(0)}")

    run.run(curriculum.stream(), report_every=100_000, on_report=report)
    with run.averaged():
        save(model, tokenizer, out / "end")


if __name__ == "__main__":
    app()
