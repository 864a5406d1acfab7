"""How the next tasks are chosen: in shuffled order, or by how hard they have proved to be for the present policy.

Pure functions of a state and of running estimates, both in the checkpoint. Estimates are bounded: one for each family,
or one for each of the tasks met last, however many a split holds.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sojourn.trainer import tasks
from sojourn.trainer.tasks import Draw, SamplerState, Source, streamed, turns


class Outcome(NamedTuple):
    """What came of a drawn task."""

    draw: Draw
    success: float
    """Mean over the group's episodes."""


class Estimate(NamedTuple):
    """How often a task or family is solved of late."""

    rate: float
    groups: int
    """Groups that it rests on."""


Estimates = tuple[dict[str, Estimate], ...]
"""For each source: by family, or by the task's number; the one met last stands last."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Shuffle(_Frozen):
    """Every task of a split once before any comes twice."""

    type: Literal["shuffle"] = "shuffle"

    @property
    def by_family(self) -> bool:
        return False

    def draw(
        self, state: SamplerState, estimates: Estimates, sources: Sequence[Source], count: int, *, seed: int
    ) -> tuple[list[Draw], SamplerState]:
        """The next tasks, and the state after them."""
        return tasks.draw(state, sources, count, seed=seed)

    def learn(self, estimates: Estimates, outcomes: Iterable[Outcome], sources: int) -> Estimates:
        """Nothing: the order does not depend on what came of it."""
        return estimates


class Difficulty(_Frozen):
    """Prefers what is neither solved nor hopeless: there a group's episodes differ, and something can be learnt."""

    type: Literal["difficulty"] = "difficulty"
    by: Literal["family", "task"] = "family"
    """What is estimated. `family`: shares of the families move, the tasks of each stay shuffled. `task`: tasks met
    before are drawn again, by their own difficulty."""
    prefer: Literal["uncertain", "band"] = "uncertain"
    """`uncertain`: in proportion to 4 p (1 - p) for success p; `band`: evenly within `band`."""
    band: tuple[float, float] = (0.2, 0.8)
    """Success rates, of `prefer: band`."""
    floor: float = Field(default=0.1, gt=0, le=1)
    """Weight that everything keeps: what was solved or hopeless is looked at again."""
    rate: float = Field(default=0.2, gt=0, le=1)
    """Weight of the newest group in an estimate."""
    fresh: float = Field(default=0.5, gt=0, le=1)
    """With `by: task`, the share drawn from the shuffled order instead."""
    memory: int = Field(default=4096, ge=1)
    """With `by: task`, tasks of each source that are remembered."""

    @model_validator(mode="after")
    def _ordered(self) -> Difficulty:
        if not 0 <= self.band[0] <= self.band[1] <= 1:
            raise ValueError(f"band {list(self.band)}: two rates, the lower first")
        return self

    @property
    def by_family(self) -> bool:
        return self.by == "family"

    def weight(self, rate: float) -> float:
        """How much a task or family of this success rate is wanted, at most 1."""
        if self.prefer == "band":
            return 1.0 if self.band[0] <= rate <= self.band[1] else self.floor
        return max(self.floor, 4 * rate * (1 - rate))

    def draw(
        self, state: SamplerState, estimates: Estimates, sources: Sequence[Source], count: int, *, seed: int
    ) -> tuple[list[Draw], SamplerState]:
        """The next tasks, and the state after them; a remembered task comes at most once among them."""
        hand = _Hand(state, sources, estimates, seed)
        for source in turns(hand.drawn, sources, count):
            hand.take(self._from_family(hand, source) if self.by_family else self._from_tasks(hand, source))
        return hand.draws, hand.state()

    def learn(self, estimates: Estimates, outcomes: Iterable[Outcome], sources: int) -> Estimates:
        """The estimates after some outcomes."""
        found = [dict(known) for known in estimates] or [{} for _ in range(sources)]
        for draw, success in outcomes:
            known = found[draw.source]
            key = draw.family or "" if self.by_family else str(draw.number)
            before = known.pop(key, Estimate(0.0, 0))
            share = max(self.rate, 1 / (before.groups + 1))
            known[key] = Estimate(before.rate + share * (success - before.rate), before.groups + 1)
            if not self.by_family and len(known) > self.memory:
                del known[next(iter(known))]
        return tuple(found)

    def _from_family(self, hand: _Hand, source: int) -> Draw:
        """Families take turns so that their shares follow their weights; one that was never met is wanted most."""
        families, known, credit = hand.sources[source].families, hand.known(source), hand.credit[source]
        weights = {f: self.weight(known[f].rate) if f in known else 1.0 for f in families}
        scale = sum(weights.values())
        for family, weight in weights.items():
            credit[family] = credit.get(family, 0.0) + weight / scale
        chosen = max(families, key=lambda family: credit[family])
        credit[chosen] -= 1
        return hand.next(source, chosen)

    def _from_tasks(self, hand: _Hand, source: int) -> Draw:
        rng = hand.rng(source)
        met = {(d.source, d.number) for d in hand.draws}
        known = {int(k): e for k, e in hand.known(source).items() if (source, int(k)) not in met}
        if not known or rng.random() < self.fresh:
            return hand.next(source, "")
        weights = [self.weight(estimate.rate) for estimate in known.values()]
        return Draw(source, rng.choices(list(known), weights)[0], 0)


class _Hand:
    """Draws under way, from a state that stays as it is."""

    def __init__(self, state: SamplerState, sources: Sequence[Source], estimates: Estimates, seed: int) -> None:
        self.sources, self.estimates, self.seed = sources, estimates, seed
        self.drawn = list(state.drawn) or [0] * len(sources)
        self.streamed = [dict(s) for s in state.streamed] or [{} for _ in sources]
        self.credit = [dict(s) for s in state.credit] or [{} for _ in sources]
        self.draws: list[Draw] = []

    def known(self, source: int) -> Mapping[str, Estimate]:
        return self.estimates[source] if self.estimates else {}

    def next(self, source: int, family: str) -> Draw:
        """The next task of a shuffled stream: of a family, or (empty) of the whole source."""
        where, streams = self.sources[source], self.streamed[source]
        position = streams.get(family, 0)
        streams[family] = position + 1
        total = where.families[family] if family else where.total
        key = f"{self.seed}/{source}/{family}" if family else f"{self.seed}/{source}"
        number, epoch = streamed(total, position, key)
        return Draw(source, number, epoch, family or None)

    def rng(self, source: int) -> random.Random:
        """Draws that depend on the seed and on how much was drawn before, and on nothing else."""
        key = f"{self.seed}/{source}/{self.drawn[source]}".encode()
        return random.Random(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()))

    def take(self, draw: Draw) -> None:
        self.draws.append(draw)
        self.drawn[draw.source] += 1

    def state(self) -> SamplerState:
        return SamplerState(drawn=tuple(self.drawn), streamed=tuple(self.streamed), credit=tuple(self.credit))


CurriculumConfig = Annotated[Shuffle | Difficulty, Field(discriminator="type")]
"""A curriculum in a config, told by its `type`."""
