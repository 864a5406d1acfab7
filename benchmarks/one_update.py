"""One update of a recorded run, taken again from its checkpoint on the same episodes, once for each way given.

    python -m benchmarks.one_update RUN STEP [STEP ...] [--vary KEY=VALUE ...]

The run needs `trainer.save_every: 1` and a `trainer.keep_checkpoints` that keeps the step before, and its recordings.
Nothing is played and nothing is written. How far each way moves the policy comes as a Markdown table: first the run's
own, then each `--vary` alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from benchmarks.experiments.tables import table

from sojourn.protocol.errors import UsageError
from sojourn.rollout.recorder import read as recorded
from sojourn.trainer import checkpoint
from sojourn.trainer.build import build
from sojourn.trainer.config_reading import load_config
from sojourn.trainer.replaying import Nowhere

HEAD = (
    "step",
    "what differs",
    "pull downwards",
    "KL",
    "tokens of good episodes",
    "of bad ones",
    "furthest",
    "gradient norm",
)


class Moved(NamedTuple):
    """What an update did to the action tokens that it was trained on."""

    down: float
    """Share of the loss's weight times |advantage| that lies on negative advantages."""
    kl: float
    """Mean of r - 1 - log r over the tokens, r the new probability over the old."""
    good: float
    """Mean change of the log-probability of tokens whose advantage is positive, in nats."""
    bad: float
    """The same where it is negative."""
    furthest: float
    """The largest fall of one token, in nats."""
    grad_norm: float


def moved(run: Path, step: int, overrides: Sequence[str]) -> Moved:
    """Take training step `step` (from 1) of a run again.

    Raises:
        UsageError: its checkpoint or its recordings are not there, or an override is wrong.
    """
    before, shard = run / "checkpoints" / f"step_{step - 1:06d}", run / "trajectories" / f"train-{step:06d}.jsonl"
    for path in (before, shard):
        if not path.exists():
            raise UsageError(f"{path} is not there: the run needs trainer.save_every=1 and its recordings")
    parts = build(load_config(run / "config.yaml", overrides), Nowhere())
    learner, policy = parts.learner, parts.policy
    saved = checkpoint.read(before)
    policy.load(saved.trained, saved.optimizer)
    learner.algorithm.load_state(saved.state.algorithm)
    prepared = learner.prepare(list(recorded(shard)))
    tokens = prepared.batch.tokens_of(prepared.rows)
    advantages = prepared.advantages[tokens]
    pull = learner.algorithm.weights(prepared.batch.episodes.trajectory[tokens]) * advantages

    def logprobs() -> torch.Tensor:
        return policy.logprobs(prepared.batch, prepared.rows, learner.token_budget)[tokens]

    old = logprobs()
    metrics = learner.update(step - 1, prepared)
    change = logprobs() - old
    return Moved(
        down=float(-pull[pull < 0].sum() / pull.abs().sum()),
        kl=float((change.exp() - 1 - change).mean()),
        good=float(change[advantages > 0].mean()),
        bad=float(change[advantages < 0].mean()),
        furthest=float(change.min()),
        grad_norm=metrics.get("train/grad_norm", math.nan),
    )


def rows(run: Path, steps: Sequence[int], vary: Sequence[str]) -> Iterator[list[str]]:
    for step in steps:
        for override in (None, *vary):
            found = moved(run, step, [] if override is None else [override])
            yield [
                str(step),
                "nothing" if override is None else f"`{override}`",
                f"{found.down:.2f}",
                f"{found.kl:.4f}",
                f"{found.good:+.3f}",
                f"{found.bad:+.3f}",
                f"{found.furthest:+.1f}",
                f"{found.grad_norm:.2f}",
            ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_update", description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("steps", nargs="+", type=int, metavar="STEP")
    parser.add_argument("--vary", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        print(table(HEAD, rows(args.run, args.steps, args.vary)))
    except UsageError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
