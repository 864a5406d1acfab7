"""What an evaluation found: results by episode, success with its interval, and the difference of two evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, computed_field
from scipy.stats import binomtest  # type: ignore[import-untyped]
from scipy.stats import t as student_t

CONFIDENCE = 0.95


class EpisodeResult(BaseModel):
    """One episode of an evaluation."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    key: str
    """The same in every evaluation of the same episodes: pairs are matched by it."""
    env: str
    task: str
    family: str
    init: dict[str, Any] | None = None
    """What its world began with."""
    success: bool = False
    score: float = 0.0
    turns: int = 0
    stop: str
    error: bool = False
    """Lost to infrastructure: neither a success nor a failure."""


class Tally(BaseModel):
    """Success of some episodes; errors are counted apart."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    success: float
    """Share of the finished episodes; 0 when none finished."""
    low: float
    high: float
    """95 % Wilson interval."""
    score: float
    """Mean score."""
    turns: float
    """Mean turns."""
    episodes: int
    """Finished."""
    errors: int


class Evaluation(BaseModel):
    """A policy on a set of episodes. Its JSON holds the results by episode and the tallies made of them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    engine: str
    policy_version: int
    horizon: dict[str, int]
    """Turns that an episode could have, by environment."""
    seed: int
    results: list[EpisodeResult] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def overall(self) -> Tally:
        return tally(self.results)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def families(self) -> dict[str, Tally]:
        """By `env/family`."""
        names = sorted({f"{r.env}/{r.family}" for r in self.results})
        return {name: tally(r for r in self.results if f"{r.env}/{r.family}" == name) for name in names}

    def metrics(self) -> dict[str, float]:
        """Flat, under the names that training uses; of families of which no episode finished, nothing."""
        overall = self.overall
        named = {
            "success_rate": overall.success,
            "success_rate_low": overall.low,
            "success_rate_high": overall.high,
            "score": overall.score,
            "turns": overall.turns,
            "episodes": float(overall.episodes),
            "errors": float(overall.errors),
        }
        return named | {f"success_rate/{name}": t.success for name, t in self.families.items() if t.episodes}

    def table(self) -> str:
        """Success by family, as text."""
        lines: list[tuple[str, ...]] = [("family", "success", "95 % interval", "score", "turns", "episodes", "errors")]
        lines += [_line(name, t) for name, t in self.families.items()]
        lines.append(_line("all", self.overall))
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        )


class Gain(NamedTuple):
    """Difference of success of two evaluations, second less first."""

    gain: float
    low: float
    high: float
    """95 % interval of the paired difference."""


def tally(results: Iterable[EpisodeResult]) -> Tally:
    """Count some results."""
    every = list(results)
    finished = [r for r in every if not r.error]
    n, wins = len(finished), sum(r.success for r in finished)
    low, high = wilson(wins, n)
    return Tally(
        success=wins / n if n else 0.0,
        low=low,
        high=high,
        score=math.fsum(r.score for r in finished) / n if n else 0.0,
        turns=sum(r.turns for r in finished) / n if n else 0.0,
        episodes=n,
        errors=len(every) - n,
    )


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion; (0, 1) without trials."""
    if not trials:
        return 0.0, 1.0
    interval = binomtest(successes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def paired_gain(before: Evaluation, after: Evaluation) -> Gain:
    """The rise of success from one evaluation to another of the same episodes, by the paired t interval.

    Episodes that either lost to infrastructure are left out of both.

    Raises:
        ValueError: fewer than two episodes are in both.
    """
    first = {r.key: r for r in before.results if not r.error}
    second = {r.key: r for r in after.results if not r.error}
    differences = [float(second[key].success) - float(first[key].success) for key in first if key in second]
    return paired_interval(differences)


def paired_interval(differences: Sequence[float]) -> Gain:
    """Mean of paired differences with its 95 % t interval; raises `ValueError` for fewer than two."""
    n = len(differences)
    if n < 2:
        raise ValueError(f"{n} paired episodes give no interval")
    mean = math.fsum(differences) / n
    deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (n - 1))
    half = float(student_t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * deviation / math.sqrt(n)
    return Gain(mean, mean - half, mean + half)


def _line(name: str, t: Tally) -> tuple[str, ...]:
    measured = (f"{t.success:.3f}", f"{t.low:.3f} - {t.high:.3f}", f"{t.score:.3f}", f"{t.turns:.1f}")
    return (name, *(measured if t.episodes else "-" * len(measured)), str(t.episodes), str(t.errors))
