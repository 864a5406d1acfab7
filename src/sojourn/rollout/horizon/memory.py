"""What an adaptive horizon remembers of one environment: the steps of its stage, its families, the stages before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from sojourn.rollout.horizon.base import Frozen
from sojourn.rollout.horizon.statistics import EnvStatistics, FamilyStatistics
from sojourn.rollout.horizon.trend import Estimate, binomial, pooled

_FADE = 0.9
"""What a family did counts for this much less with each step that brings it a success."""


class Record(Frozen):
    """One training step of the present stage."""

    episodes: int
    success: float
    variance: float
    cut: float
    success_turns_p90: float | None
    groups: int
    informative: float
    invalid: float
    repeated: float


class Family(Frozen):
    """One family of tasks under the present cap and before."""

    successes: float = 0.0
    """Up to the last step with one, older ones faded."""
    episodes: float = 0.0
    """The same of episodes."""
    silent: int = 0
    """Episodes since then, all of them failures."""
    cut: float = 0.0
    """Share of the last step's episodes that the cap ended."""


class Rung(Frozen):
    """An earlier stage and the success it was left with."""

    cap: int
    success: float
    variance: float


class Memory(Frozen):
    """One environment."""

    cap: int
    seen: int = 0
    """The training step counted last."""
    records: tuple[Record, ...] = ()
    """Of this stage, oldest first."""
    families: dict[str, Family] = Field(default_factory=dict)
    rungs: tuple[Rung, ...] = ()
    floor: int = 0
    """No step back goes below: a family would be out of reach."""
    backs: int = 0
    """Steps back so far."""
    barred_until: int = 0
    """No extension before this step, except to the median solution of a family."""
    told: str = ""
    """Why the last step held, so that it is said once."""

    def recent(self, count: int) -> Estimate:
        """Success over the last `count` steps of the stage."""
        last = self.records[-count:]
        return pooled([r.success for r in last], [r.variance for r in last], [r.episodes for r in last])

    def informative(self) -> Estimate:
        """Share of groups with a signal over the stage."""
        groups = [r.groups for r in self.records]
        variances = [binomial(r.informative, r.groups) for r in self.records]
        return pooled([r.informative for r in self.records], variances, groups)


def count(memory: Memory, step: int, found: EnvStatistics | None, window: int) -> Memory:
    """Add what a step showed, once; a step that was played under another cap is not of this stage.

    Args:
        step: number of the training step that was counted; 0: none.
        window: records kept.
    """
    if found is None or step <= memory.seen:
        return memory
    if found.cap != memory.cap:
        return memory.model_copy(update={"seen": step})
    record = Record(
        episodes=found.episodes,
        success=found.success,
        variance=found.success_variance,
        cut=found.cut,
        success_turns_p90=found.success_turns_p90,
        groups=found.groups,
        informative=found.informative,
        invalid=found.invalid,
        repeated=found.repeated,
    )
    return memory.model_copy(
        update={
            "seen": step,
            "records": (*memory.records, record)[-window:],
            "families": _families(memory.families, found.families),
        }
    )


def moved(memory: Memory, cap: int, rungs: Sequence[Rung]) -> Memory:
    """At another cap a stage begins anew; the families' silence was of the old one."""
    families = {name: family.model_copy(update={"silent": 0}) for name, family in memory.families.items()}
    return memory.model_copy(
        update={"cap": cap, "records": (), "rungs": tuple(rungs), "families": families, "told": ""}
    )


def _families(known: Mapping[str, Family], found: Mapping[str, FamilyStatistics]) -> dict[str, Family]:
    families = dict(known)
    for name, now in found.items():
        before = families.get(name, Family())
        if now.success:
            families[name] = Family(
                successes=_FADE * before.successes + now.success * now.episodes,
                episodes=_FADE * before.episodes + before.silent + now.episodes,
                cut=now.cut,
            )
        else:
            families[name] = before.model_copy(update={"silent": before.silent + now.episodes, "cut": now.cut})
    return families
