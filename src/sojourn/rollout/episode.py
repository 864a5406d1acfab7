"""One episode: render, generate, parse, step, until there is a reason to stop.

Infrastructure that fails is never the policy's failure: the episode is tried again on a fresh session and, at the end,
comes back with a `StopReason` that `is_error`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sojourn.engines.base import Request
from sojourn.protocol.env import EnvSpec, Info, Snapshot, StepResult
from sojourn.protocol.errors import BadRequest, EngineError, NotFound, UsageError
from sojourn.protocol.messages import Completion
from sojourn.protocol.trajectory import Segment, StopReason, Trajectory, Turn
from sojourn.rollout.failures import INFRASTRUCTURE, MENDABLE, close, kept_alive, pause, stop_reason, within
from sojourn.rollout.player import Limits, Player

if TYPE_CHECKING:
    from sojourn.client.interface import Session

__all__ = ["AfterTurn", "Limits", "Player", "run_episode"]

AfterTurn = Callable[[Trajectory, "Session", StopReason | None], Awaitable[None]]
"""Called after each turn while the session is open, and at the end with the reason to stop."""


async def run_episode(
    player: Player,
    env: str,
    task: str,
    *,
    horizon: int,
    group_id: str,
    sibling: int,
    view: str,
    env_seed: int | None = None,
    init: dict[str, Any] | None = None,
    session: Session | None = None,
    prefix: Trajectory | None = None,
    snapshot: Snapshot | str | None = None,
    after_turn: AfterTurn | None = None,
) -> Trajectory:
    """Play one episode to its end, or to the last attempt's failure.

    Args:
        horizon: turns after which the episode is cut.
        session: a world to begin with, closed here in any case; later attempts create or restore their own.
        prefix: an episode to continue (from `branch`): `session` or `snapshot` is its world.
        snapshot: the world at the end of `prefix`, for later attempts.
        after_turn: called after each turn that does not end the episode, and at its end; what it raises is an attempt's
            failure.

    Raises:
        ServiceError: for what the user must mend (an unknown task, a bad token); what another attempt may get right
            is tried again, and returned in the end.
        UsageError: for an environment or a view that nobody serves.
    """
    if horizon < 1:
        raise ValueError(f"a horizon of {horizon} turns leaves nothing to play")
    world = _World(player, env, task, view, env_seed, init, session, snapshot, forked=prefix is not None)
    begun, clock = time.time(), time.monotonic()
    limit = player.limits.episode_deadline_s
    deadline = None if limit is None else asyncio.get_running_loop().time() + limit
    for attempt in range(player.limits.attempts):
        trajectory = (
            replace(prefix, segments=list(prefix.segments), turns=list(prefix.turns), extra=dict(prefix.extra))
            if prefix
            else _blank(player, env, task, view, env_seed)
        )
        trajectory.episode_id, trajectory.group_id = f"{group_id}/{sibling}", group_id
        trajectory.sibling, trajectory.horizon, trajectory.attempt = sibling, horizon, attempt
        failure = await _attempt(player, world, trajectory, after_turn, deadline)
        trajectory.started, trajectory.seconds = begun, time.monotonic() - clock
        last = attempt + 1 == player.limits.attempts or not world.again
        if failure is None or last or await pause(player.limits, attempt, failure, deadline):
            break
    return trajectory


@dataclass
class _World:
    """Where an episode's sessions come from: the given one first, then fresh ones."""

    player: Player
    env: str
    task: str
    view: str
    seed: int | None
    init: dict[str, Any] | None
    session: Session | None
    snapshot: Snapshot | str | None
    forked: bool

    @property
    def again(self) -> bool:
        """Whether another session can be had."""
        return not self.forked or self.snapshot is not None

    async def enter(self) -> Session:
        given, self.session = self.session, None
        if given is not None:
            return given
        if not self.forked:
            return await self.player.envs.create(self.env, self.task, seed=self.seed, init=self.init, view=self.view)
        if self.snapshot is None:
            raise ValueError("an episode with a prefix needs its world: a session or a snapshot")
        return await self.player.envs.restore(self.env, self.snapshot, view=self.view)


async def _attempt(
    player: Player, world: _World, trajectory: Trajectory, after_turn: AfterTurn | None, deadline: float | None
) -> Exception | None:
    """Play once on one session; the failure of infrastructure, if that is how it ended."""
    session: Session | None = world.session
    limits = player.limits
    try:
        async with asyncio.timeout_at(deadline):
            spec = await within(limits.step_deadline_s, "reading the specification", _spec(player, world.env))
            session = await within(limits.step_deadline_s, "creating a session", world.enter())
            async with kept_alive(session):
                episode = _Episode(player, world, trajectory, session, spec)
                stop = None
                while stop is None:
                    stop = await episode.turn()
                    if after_turn is not None:
                        await after_turn(trajectory, session, stop)
            trajectory.stop = stop
            return None
    except INFRASTRUCTURE as error:
        if isinstance(error, MENDABLE):
            raise
        trajectory.stop = stop_reason(error)
        trajectory.error = f"{type(error).__name__}: {error}" if str(error) else "the episode's deadline passed"
        return error
    finally:
        if session is not None:
            await close(session)


class _Episode:
    """One attempt: the conversation, its tokens, and the turn that adds to both."""

    def __init__(self, player: Player, world: _World, trajectory: Trajectory, session: Session, spec: EnvSpec) -> None:
        self.player, self.world, self.trajectory, self.session = player, world, trajectory, session
        trajectory.task, trajectory.family, trajectory.env_version = session.task, session.family, spec.version
        if trajectory.turns:
            self.info: Info = trajectory.turns[-1].info  # type: ignore[assignment]
            self.messages = player.conversation(spec, trajectory)
            self.context = [
                t for i in trajectory.chain(len(trajectory.segments) - 1) for t in trajectory.segments[i].ids
            ]
        else:
            self.info = session.observation.info
            trajectory.opening = session.observation.text
            trajectory.extra |= {"opening_info": dict(self.info), "entropy": []}
            self.messages = player.opening(spec, trajectory.view, trajectory.opening)
            self.context = []
            self._append(player.renderer.open(self.messages))
        self.opening = len(self.messages) - 2 * len(trajectory.turns)
        self.repeats = 0
        for before, turn in pairwise([None, *trajectory.turns]):
            self.repeats = _refused(turn, before, self.repeats)  # type: ignore[arg-type]
        self._score()

    async def turn(self) -> StopReason | None:
        """One exchange; the reason to stop, if there is one."""
        if over := self._over_budget():
            return over
        clock = time.monotonic()
        completion = await self._generate()
        generated = time.monotonic()
        text = self.player.renderer.decode(completion.ids)
        parsed = self.player.format.parse(text)
        self._append(completion.ids, completion)
        result = await self._step(parsed.action, parsed.error)
        turn = Turn(
            text=text,
            thought=parsed.thought,
            action=parsed.action,
            observation=result.observation,
            reward=result.reward,
            invalid=bool(result.info.get("invalid")),
            segment=len(self.trajectory.segments) - 1,
            info=dict(result.info),
            generate_s=generated - clock,
            step_s=time.monotonic() - generated,
        )
        before = self.trajectory.turns[-1] if self.trajectory.turns else None
        self.repeats = _refused(turn, before, self.repeats)
        self.trajectory.turns.append(turn)
        self.info = result.info
        self._score()
        if stop := self._over(result):
            return stop
        self._observe(completion, result.observation)
        return None

    def _over_budget(self) -> StopReason | None:
        room = self.player.sampling.max_tokens
        if len(self.context) + room > self.player.max_context:
            return StopReason.CONTEXT_OVERFLOW
        most = self.player.limits.max_episode_tokens
        if most is not None and sum(len(s.ids) for s in self.trajectory.segments) + room > most:
            return StopReason.MAX_TOKENS
        return None

    def _over(self, result: StepResult) -> StopReason | None:
        if result.done:
            return StopReason.COMPLETED if result.terminated else StopReason.ENV_TRUNCATED
        most = self.player.limits.max_repeats
        if most is not None and self.repeats >= most:
            return StopReason.EARLY_STOP
        return StopReason.MAX_TURNS if len(self.trajectory.turns) >= self.trajectory.horizon else None

    async def _generate(self) -> Completion:
        world, turn = self.world, len(self.trajectory.turns)
        key = self.player.key(world.env, world.task, self.trajectory.group_id, self.trajectory.sibling, turn)
        request = Request(self.context, self.player.sampling, key)
        completion = await within(
            self.player.limits.generate_deadline_s, "a completion", self.player.engine.generate(request)
        )
        if not completion.ids or len(completion.ids) != len(completion.logprobs):
            raise EngineError(f"{len(completion.ids)} ids came with {len(completion.logprobs)} log-probabilities")
        if not all(map(math.isfinite, completion.logprobs)):
            raise EngineError("a sampled token came without a finite log-probability")
        if completion.entropy is not None:
            self.trajectory.extra["entropy"] = [
                *self.trajectory.extra["entropy"],
                math.fsum(completion.entropy) / len(completion.ids),
            ]
        return completion

    async def _step(self, action: str | None, error: str | None) -> StepResult:
        """Act; an action that cannot be read or sent leaves the world as it is and is answered with the reason."""
        if action is not None:
            try:
                return await within(self.player.limits.step_deadline_s, "a step", self.session.step(action))
            except BadRequest as refusal:  # of what the policy wrote, which is nobody's to mend
                error = refusal.detail
        info: Info = {
            "score": self.info["score"],
            "success": self.info["success"],
            "state_key": self.info["state_key"],
            "invalid": True,
        }
        return StepResult(error or "", 0.0, False, False, info)

    def _observe(self, completion: Completion, observation: str) -> None:
        """Make the observation part of the prompt: appended, or on a new root where history is written anew."""
        renderer = self.player.renderer
        self.messages.append({"role": "assistant", "content": self.trajectory.turns[-1].text})
        self.messages.append({"role": "user", "content": observation})
        rewritten = renderer.rewrite(self.messages, opening=self.opening)
        if rewritten is None:
            self._append(renderer.extend(observation, finish=completion.finish, last=completion.ids[-1]))
        else:
            self.context = []
            self._append(rewritten, root=True)

    def _append(self, ids: list[int], completion: Completion | None = None, *, root: bool = False) -> None:
        """Add a segment: of a completion, with the very ids and log-probabilities that were drawn, or of given text."""
        segments = self.trajectory.segments
        segments.append(
            Segment(
                parent=None if root or not segments else len(segments) - 1,
                ids=list(ids),
                mask=[int(completion is not None)] * len(ids),
                logprobs=list(completion.logprobs) if completion else [0.0] * len(ids),
                turn=len(self.trajectory.turns),
                policy_version=completion.policy_version if completion else None,
            )
        )
        self.context = [*self.context, *ids]

    def _score(self) -> None:
        self.trajectory.score = float(self.info["score"])
        self.trajectory.success = bool(self.info["success"])


def _refused(turn: Turn, before: Turn | None, count: int) -> int:
    """Identical refused actions in a row, `turn` the last of them and `count` as many as there were before it."""
    same = before is not None and before.invalid and (before.action or before.text) == (turn.action or turn.text)
    return (count + 1 if same else 1) if turn.invalid else 0


def _blank(player: Player, env: str, task: str, view: str, seed: int | None) -> Trajectory:
    return Trajectory(
        episode_id="",
        group_id="",
        task=task,
        family="",
        seed=seed,
        horizon=0,
        env=env,
        env_version="",
        engine=player.engine.name,
        engine_version=player.engine.version,
        view=view,
    )


async def _spec(player: Player, env: str) -> EnvSpec:
    try:
        return await player.envs.spec(env)
    except NotFound as error:  # a wrong name; in the middle of an episode it would be a server that lost a session
        raise UsageError(str(error)) from error
