"""What AgentGym's server of each environment answers: one class an environment, one line in `WORLDS`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

from sojourn.protocol.env import EnvSpec
from sojourn.protocol.errors import BadRequest
from sojourn.serving.config import DialectsConfig
from sojourn.serving.dialects.goals import read_goals
from sojourn.serving.dialects.seats import Seat

Tell = Callable[[str], Awaitable[Any]]
Payload = dict[str, Any]
"""A JSON object with the reference's keys in the reference's order."""


class World(ABC):
    """The shapes of one environment's answers. A reply is the operation's own, decoded."""

    env: ClassVar[str]
    greeting: ClassVar[str]
    view: ClassVar[str] = "agentgym"
    resets_itself: ClassVar[bool] = False
    """Whether `create` answers with the first observation of the task whose index is the id."""
    reads: ClassVar[Sequence[str]] = ("observation",)
    """The GET routes that tell something of an id."""
    posts: ClassVar[Sequence[str]] = ()
    """POST routes of an id that do so, too."""
    init: dict[str, Any] | None = None
    """How every episode starts otherwise than its task says."""
    visual_step: ClassVar[str | None] = None
    """A POST route that takes a step and tells more of what came of it."""

    @classmethod
    def verbs(cls) -> tuple[str, ...]:
        """The last parts of the paths that this kind of world has and others may not have."""
        return (*cls.reads, *cls.posts, *([] if cls.visual_step is None else [cls.visual_step]))

    @abstractmethod
    def task(self, data_idx: int) -> str:
        """The task of an index; raises `BadRequest` with the words of the reference."""

    def created(self, seat: Seat, reply: Payload) -> Payload:
        """What `create` answers."""
        return {"id": seat.id}

    @abstractmethod
    def reset(self, seat: Seat, reply: Payload) -> Payload:
        """What `reset` answers."""

    @abstractmethod
    def stepped(self, seat: Seat, reply: Payload) -> Payload:
        """What `step` answers."""

    def done(self, reply: Payload) -> bool:
        """Whether the client is told that the episode is over."""
        return bool(reply["terminated"] or reply["truncated"])

    def after_end(self, seat: Seat) -> Payload:
        """What a step answers once the world is over; raises `BadRequest` with the words of the reference."""
        raise BadRequest(f"The task with environment {seat.id} has finished.")

    def unstarted(self, seat: Seat) -> Payload:
        """What everything but `reset` answers before it; raises `BadRequest` likewise."""
        raise BadRequest(str(seat.id))

    async def read(self, what: str, seat: Seat, tell: Tell) -> Any:
        """What a route of `reads` or `posts` answers, or `visual_step` after its step; `tell` asks the world itself."""
        return seat.seen["observation"]


class TextCraft(World):
    """Index modulo the number of goals, in our order or a map's. A step after the end is no error, and pays nothing."""

    env, greeting = "textcraft", "This is environment TextCraft."
    resets_itself = True
    reads = ("observation", "detail", "commands", "goal")

    def __init__(self, goals: Sequence[str]) -> None:
        self._goals = goals

    def task(self, data_idx: int) -> str:
        return self._goals[data_idx % len(self._goals)]

    def created(self, seat: Seat, reply: Payload) -> Payload:
        return self.reset(seat, reply)

    def reset(self, seat: Seat, reply: Payload) -> Payload:
        text = reply["observation"]["text"]
        seat.seen = {"observation": text, "done": False, "reward": 0, "deleted": False}
        seat.opening = text
        return {"id": seat.id, "observation": text, "done": False, "reward": 0}

    def stepped(self, seat: Seat, reply: Payload) -> Payload:
        answer = {
            "observation": reply["observation"],
            "reward": int(reply["reward"]),
            "done": self.done(reply),
        }
        seat.seen.update(answer)
        return answer

    def after_end(self, seat: Seat) -> Payload:
        seat.seen.update(observation="The episode is over.", reward=0, done=True)
        return {key: seat.seen[key] for key in ("observation", "reward", "done")}

    async def read(self, what: str, seat: Seat, tell: Tell) -> Any:
        """The reference has routes for commands and goal, too, which always fail there; here they tell both as text."""
        if what == "detail":
            return seat.seen
        commands, _, goal = seat.opening.rpartition("\n\nGoal: craft ")
        if what == "commands":
            return commands.partition("\n")[2]
        return goal.removesuffix(".") if what == "goal" else await super().read(what, seat, tell)


class BabyAI(World):
    """Index = 40 seed + level.

    `legacy_scoring`: the reference's rules. A macro goes on past what decides the mission, and the verdict is that of
    its last low-level action; the score adds the latest reward at every step, also where nothing was done; and what is
    worth 0.5 or less is no end, nor are `max_steps`.
    """

    env, greeting = "babyai", "This is environment BabyAI."
    posts = ("render",)

    def __init__(self, *, legacy_scoring: bool) -> None:
        self._legacy = legacy_scoring
        self.init = {"play_on": True} if legacy_scoring else None

    def task(self, data_idx: int) -> str:
        if data_idx < 0:
            raise BadRequest(f"data_idx {data_idx} is negative")
        return f"{self.env}_{data_idx}"

    def reset(self, seat: Seat, reply: Payload) -> Payload:
        text = reply["observation"]["text"]
        seat.seen = {"observation": text, "reward": 0, "score": 0, "done": False, "deleted": False}
        return {key: seat.seen[key] for key in ("observation", "reward", "score", "deleted", "done")}

    def stepped(self, seat: Seat, reply: Payload) -> Payload:
        raw, score = reply["info"]["raw"], reply["info"]["score"]
        reward = raw["reward"] if self._legacy else reply["reward"]
        done = raw["terminated"] and reward > 0.5 if self._legacy else self.done(reply)
        score = seat.seen["score"] + _plain(reward) if self._legacy else _plain(score)
        seat.seen.update(observation=reply["observation"], reward=_plain(reward), score=score, done=done)
        return {key: seat.seen[key] for key in ("observation", "reward", "score", "done")}

    async def read(self, what: str, seat: Seat, tell: Tell) -> Any:
        if what == "render":
            return f"data:image/png;base64,{await tell('picture')}" if seat.started else self.unstarted(seat)
        return seat.seen or {
            "observation": "Environment not initialized",
            "reward": 0,
            "score": 0,
            "done": False,
            "deleted": False,
        }


class SciWorld(World):
    """Index into the simulator's tasks and variations; scores of 100, and -100 for a wrong focus, as it gives them."""

    env, greeting = "sciworld", "This is environment ScienceWorld."
    reads = ("observation", "detail", "task_description", "action_hint", "goals", "object_tree", "state")
    visual_step = "step_visual"
    games: ClassVar[int] = 4639
    most_moves: ClassVar[int] = 100
    """What takes the simulator past this is the last step."""

    def task(self, data_idx: int) -> str:
        try:
            return f"{self.env}_{range(self.games)[data_idx]}"
        except IndexError as error:
            raise BadRequest("list index out of range") from error

    def done(self, reply: Payload) -> bool:
        return super().done(reply) or reply["info"]["raw"]["moves"] > self.most_moves

    def reset(self, seat: Seat, reply: Payload) -> Payload:
        observation = reply["observation"]
        told, raw = observation["info"]["view"], observation["info"]["raw"]
        score = int(raw["score"])
        answer = {
            "task_name": reply["family"],
            "var_num": told["variation"],
            "task_description": told["task"],
            "observation": observation["text"].removeprefix(told["task"] + "\n"),
            "reward": score,
            "score": score,
            "deleted": False,
            "done": False,
        }
        seat.seen = dict(answer)
        return answer

    def stepped(self, seat: Seat, reply: Payload) -> Payload:
        score = int(reply["info"]["raw"]["score"])
        answer = {
            "observation": reply["observation"],
            "reward": score - seat.seen["score"],
            "score": score,
            "done": self.done(reply),
        }
        seat.seen.update(answer)
        return answer

    async def read(self, what: str, seat: Seat, tell: Tell) -> Any:
        if not seat.started:
            return self.unstarted(seat)
        if what == "detail":
            return seat.seen
        if what == "task_description":
            return {"task_description": seat.seen["task_description"]}
        if what == self.visual_step:
            return await self._visual(seat, tell)
        if seat.seen["done"]:
            return self.after_end(seat)
        if what == "action_hint":
            return {"possible_actions": await tell("actions"), "possible_objects": await tell("objects")}
        if what == "goals":
            return {"goals": await tell("goals")}
        if what == "object_tree":
            return {"object_tree": await tell("tree")}
        return await self._state(seat, tell) if what == "state" else await super().read(what, seat, tell)

    async def _state(self, seat: Seat, tell: Tell) -> Payload:
        """All of the above at once: what else the reference puts there is not known."""
        scene = await tell("scene")
        return {
            **seat.seen,
            "look": scene["look"],
            "inventory": scene["inventory"],
            "goals": await tell("goals"),
            "object_tree": await tell("tree"),
            "possible_actions": await tell("actions"),
            "possible_objects": await tell("objects"),
        }

    async def _visual(self, seat: Seat, tell: Tell) -> Payload:
        """A step as the visualiser wants it: with the simulator's own notes, but for its list of valid actions."""
        scene, seen = await tell("scene"), seat.seen
        step = {key: seen[key] for key in ("observation", "reward", "score", "done")}
        info = {
            "moves": scene["moves"],
            "score": seen["score"],
            "reward": seen["reward"],
            "look": scene["look"],
            "inv": scene["inventory"],
            "taskDesc": scene["task"],
            "variationIdx": seen["var_num"],
            "taskName": seen["task_name"],
        }
        tree = await tell("tree")
        return {**step, "info": info, "object_tree": tree, "inventory": scene["inventory"], "moves": scene["moves"]}


def _plain(value: float) -> int | float:
    """A whole number as an integer: the reference's zero rewards are."""
    return int(value) if value == int(value) else value


def _textcraft(spec: EnvSpec, config: DialectsConfig) -> World:
    if config.goal_map is not None:
        return TextCraft([f"{spec.name}:{goal}" for goal in read_goals(config.goal_map)])
    return TextCraft([f"{spec.name}_{index}" for index in range(sum(spec.splits.values()))])


KINDS: tuple[type[World], ...] = (TextCraft, BabyAI, SciWorld)

WORLDS: dict[str, Callable[[EnvSpec, DialectsConfig], World]] = {
    TextCraft.env: _textcraft,
    BabyAI.env: lambda spec, config: BabyAI(legacy_scoring=config.legacy_scoring),
    SciWorld.env: lambda spec, config: SciWorld(),
}
"""How to make the world of each environment that AgentGym has, too."""
