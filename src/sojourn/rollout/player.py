"""Who plays: the worlds, the policy, how they talk, and the limits of one episode."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from sojourn.engines.base import Engine
from sojourn.protocol.env import EnvSpec
from sojourn.protocol.errors import UsageError
from sojourn.protocol.messages import Message, SamplingParams
from sojourn.protocol.trajectory import Trajectory
from sojourn.rollout.agent import ActionFormat
from sojourn.rollout.few_shot import FewShot, as_messages
from sojourn.rollout.renderer import Renderer

if TYPE_CHECKING:
    from sojourn.client.interface import Envs


class Limits(BaseModel):
    """What one episode may cost. Budgets are looked at before a completion is drawn, never after."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_context: int | None = Field(default=None, ge=1)
    """Tokens of one prompt with its completion; the engine's own bound holds too."""
    max_episode_tokens: int | None = Field(default=None, ge=1)
    """Tokens of the whole episode, given and sampled."""
    max_repeats: int | None = Field(default=None, ge=1)
    """Identical refused actions in a row that end the episode."""
    episode_deadline_s: float | None = Field(default=7200.0, gt=0)
    """For all attempts together."""
    generate_deadline_s: float | None = Field(default=600.0, gt=0)
    step_deadline_s: float | None = Field(default=120.0, gt=0)
    """For creating a session, too."""
    attempts: int = Field(default=3, ge=1)
    """Fresh sessions tried when infrastructure fails."""
    retry_base_s: float = Field(default=0.5, ge=0)
    """First pause between attempts; it doubles and carries jitter."""


@dataclass
class Player:
    """A policy and the worlds it plays in.

    Raises:
        UsageError: example turns that leave no room for an episode.
    """

    envs: Envs
    engine: Engine
    renderer: Renderer
    format: ActionFormat
    sampling: SamplingParams
    limits: Limits = field(default_factory=Limits)
    run_seed: int = 0
    prompt: Literal["full", "none"] = "full"
    """`none` gives the observation alone: for small models that know the rules by heart."""
    system_prompt: bool = False
    """Put the instructions in a system message rather than before the first observation."""
    few_shot: Mapping[str, FewShot] = field(default_factory=dict)
    """Example turns before the first observation, by environment; none where it is not named."""

    def __post_init__(self) -> None:
        stops = dict.fromkeys((*self.sampling.stop_ids, *self.renderer.stop_ids))
        self.sampling = self.sampling.model_copy(update={"stop_ids": tuple(stops)})
        for env, shown in self.few_shot.items():
            self._has_room(env, len(self.renderer.open([*as_messages(shown), {"role": "user", "content": "."}])))

    def _has_room(self, env: str, tokens: int) -> None:
        """See that example turns of so many tokens fit: episodes that cannot begin would be counted as failures."""
        if tokens + self.sampling.max_tokens > self.max_context:
            raise UsageError(
                f"the example turns of {env} are {tokens} tokens: with {self.sampling.max_tokens} of a completion they "
                f"exceed the context of {self.max_context}; show fewer or shorter ones"
            )

    @property
    def max_context(self) -> int:
        """Tokens that one prompt with its completion may have."""
        bound = self.limits.max_context
        return self.engine.max_context if bound is None else min(bound, self.engine.max_context)

    def opening(self, spec: EnvSpec, view: str, observation: str) -> list[Message]:
        """The messages that an episode begins with.

        Raises:
            UsageError: when the environment has no such view.
        """
        return opening(
            self.format,
            spec,
            view,
            observation,
            prompt=self.prompt,
            system_prompt=self.system_prompt,
            few_shot=self.few_shot.get(spec.name, ()),
        )

    def conversation(self, spec: EnvSpec, trajectory: Trajectory) -> list[Message]:
        """The messages of an episode so far, its last observation included."""
        messages = self.opening(spec, trajectory.view, trajectory.opening)
        for turn in trajectory.turns:
            messages.append({"role": "assistant", "content": turn.text})
            messages.append({"role": "user", "content": turn.observation})
        return messages

    def key(self, env: str, task: str, group_id: str, sibling: int, turn: int) -> tuple[int, ...]:
        """What the random draws of one completion depend on; a retried attempt draws the same."""
        return (self.run_seed, stable_hash(f"{env}:{task}"), stable_hash(group_id), sibling, turn)


def opening(
    action_format: ActionFormat,
    spec: EnvSpec,
    view: str,
    observation: str,
    *,
    prompt: Literal["full", "none"] = "full",
    system_prompt: bool = False,
    few_shot: FewShot = (),
) -> list[Message]:
    """The messages that an episode begins with, as `Player` says them: instructions, example turns, the observation.

    Raises:
        UsageError: when the environment has no such view.
    """
    if view not in spec.action_help:
        raise UsageError(f"{spec.name} has no view {view!r} (it has: {', '.join(spec.views)})")
    messages: list[Message] = [*as_messages(few_shot), {"role": "user", "content": observation}]
    if prompt == "none":
        return messages
    instructions = action_format.instructions(spec.action_help[view])
    if system_prompt:
        return [{"role": "system", "content": instructions}, *messages]
    return [{"role": "user", "content": f"{instructions}\n\n{messages[0]['content']}"}, *messages[1:]]


def stable_hash(text: str) -> int:
    """63 bits that are the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
