"""How long episodes may be, as a pure function of what was seen: a resumed run is the uninterrupted run.

`update(state, statistics)` is called once before each training step and gives that step's caps by environment; its
state is JSON in the checkpoint. `Fixed` and the hand-set stages of `ScalingInter` (AgentGym-RL, arXiv 2509.08755).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sojourn.protocol.trajectory import Trajectory, TrajectoryGroup


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FamilyStatistics(_Frozen):
    """What one family of tasks (or a whole environment) showed in the last step."""

    episodes: int = 0
    success: float = 0.0
    """Share of episodes that succeeded."""
    cut: float = 0.0
    """Share that the horizon's cap ended."""
    turns: float = 0.0
    """Mean turns of an episode."""
    success_turns_p90: float | None = None
    """Turns within which nine in ten of the successes came; None without a success."""


class EnvStatistics(FamilyStatistics):
    families: dict[str, FamilyStatistics] = Field(default_factory=dict)


class HorizonStatistics(_Frozen):
    """What is known when a horizon is chosen; empty before the first step."""

    envs: dict[str, EnvStatistics] = Field(default_factory=dict)
    solution_medians: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Median length of the scripted solution by environment and family, where known."""

    @classmethod
    def of(
        cls, groups: Iterable[TrajectoryGroup], *, solution_medians: dict[str, dict[str, float]] | None = None
    ) -> HorizonStatistics:
        """Count the trajectories of finished groups."""
        by_env: dict[str, list[Trajectory]] = {}
        for group in groups:
            for trajectory in group.trajectories:
                by_env.setdefault(trajectory.env, []).append(trajectory)
        envs = {}
        for env, found in sorted(by_env.items()):
            families = sorted({t.family for t in found})
            split = {family: _count([t for t in found if t.family == family]) for family in families}
            envs[env] = EnvStatistics(families=split, **_count(found).model_dump())
        return cls(envs=envs, solution_medians=solution_medians or {})


class HorizonState(_Frozen):
    """What a horizon remembers between steps."""

    envs: tuple[str, ...]
    """Environments of the run."""
    step: int = 0
    """Steps for which caps have been given."""
    caps: dict[str, int] = Field(default_factory=dict)
    """The caps given last."""


class HorizonUpdate(NamedTuple):
    state: HorizonState
    caps: dict[str, int]
    """Turns an episode may have, by environment."""
    reasons: list[str]
    """Why a cap changed, or should make one wonder; empty when there is nothing to say."""


class Fixed(_Frozen):
    """One horizon for the whole run."""

    type: Literal["fixed"] = "fixed"
    turns: int = Field(ge=1)
    by_env: dict[str, int] = Field(default_factory=dict)
    """Other turns for some environments."""

    @model_validator(mode="after")
    def _positive(self) -> Self:
        for env, turns in self.by_env.items():
            if turns < 1:
                raise ValueError(f"horizon of {env}: {turns} turns, at least 1 is needed")
        return self

    def update(self, state: HorizonState, statistics: HorizonStatistics) -> HorizonUpdate:
        """Caps of step `state.step`."""
        return _give(state, statistics, {env: self.by_env.get(env, self.turns) for env in state.envs}, "fixed")


class ScalingInter(_Frozen):
    """Stages that never shrink: steps 0 to k-1 play `stages[0]`, k to 2k-1 `stages[1]`, and so on; the last stays."""

    type: Literal["scaling_inter"] = "scaling_inter"
    stages: tuple[int, ...] = Field(min_length=1)
    """Turns."""
    steps_per_stage: int = Field(ge=1)
    by_env: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Other stages for some environments, switched at the same steps."""

    @model_validator(mode="after")
    def _monotone(self) -> Self:
        for name, stages in [("stages", self.stages), *((f"stages of {env}", s) for env, s in self.by_env.items())]:
            if not stages or min(stages) < 1 or list(stages) != sorted(stages):
                raise ValueError(f"{name} {list(stages)}: at least one, each at least 1, never shrinking")
        return self

    def update(self, state: HorizonState, statistics: HorizonStatistics) -> HorizonUpdate:
        """Caps of step `state.step`."""
        number = state.step // self.steps_per_stage
        caps = {env: _stage(self.by_env.get(env, self.stages), number) for env in state.envs}
        return _give(state, statistics, caps, f"stage {number + 1}")


HorizonConfig = Annotated[Fixed | ScalingInter, Field(discriminator="type")]
"""A horizon in a config, told by its `type`."""


def _stage(stages: Sequence[int], number: int) -> int:
    return stages[min(number, len(stages) - 1)]


def _give(state: HorizonState, statistics: HorizonStatistics, caps: dict[str, int], cause: str) -> HorizonUpdate:
    """Move on by one step; say what changed, and which families the first cap puts out of reach."""
    reasons = []
    for env, cap in caps.items():
        before = state.caps.get(env)
        if before == cap:
            continue
        reasons.append(
            f"{env}: {cap} turns ({cause})" if before is None else f"{env}: {before} to {cap} turns ({cause})"
        )
        reasons += [
            f"{env}: {cap} turns are fewer than the median solution of {family} ({median:g}); most is out of reach"
            for family, median in sorted(statistics.solution_medians.get(env, {}).items())
            if cap < median
        ]
    return HorizonUpdate(state.model_copy(update={"step": state.step + 1, "caps": caps}), caps, reasons)


def _count(trajectories: Sequence[Trajectory]) -> FamilyStatistics:
    total = len(trajectories)
    lengths = sorted(len(t.turns) for t in trajectories if t.success)
    return FamilyStatistics(
        episodes=total,
        success=sum(t.success for t in trajectories) / total,
        cut=sum(t.stop.is_cut_by_horizon for t in trajectories) / total,
        turns=sum(len(t.turns) for t in trajectories) / total,
        success_turns_p90=lengths[min(len(lengths) - 1, -(-9 * len(lengths) // 10) - 1)] if lengths else None,
    )
