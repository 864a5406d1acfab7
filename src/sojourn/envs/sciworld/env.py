"""SciWorld as an environment: one episode is one game of the ScienceWorld simulator."""

from __future__ import annotations

import hashlib
import os
from typing import Any, ClassVar, Self

import orjson
from pydantic import Field, model_validator

from sojourn.envs.base import EnvConfig, EnvService, ReplayEnv
from sojourn.envs.sciworld.games import NAME, SPLITS, SciWorldTasks, parse, sizes
from sojourn.envs.sciworld.gold import GoldPaths
from sojourn.envs.sciworld.java import RELEASE, command
from sojourn.envs.sciworld.pool import Episode, Game, Pool, PoolLimits, Told
from sojourn.envs.sciworld.words import ACTION_HELP, LOOK, VIEWS, SciWorldInit, SciWorldInject, parse_init, parse_inject
from sojourn.protocol.env import EnvSpec, Info, Observation, Solution, StepResult, TaskRef
from sojourn.protocol.errors import BadRequest, Conflict, NotSupported, UsageError

LONGEST_ACTION = 500
"""Characters; more is no action of this world, and its parser is not bothered with it."""
MOST_STEPS = 1_000
"""Steps after which an episode is truncated, so that its log stays bounded. Not the turns of a policy: see the spec."""
_GAME_MB = 10.5
"""That a game takes of a heap."""
UNKNOWN = "No known action matches that input."
OVER = "The episode has ended."


class SciWorldConfig(EnvConfig):
    """Options of a SciWorld server."""

    jvms: int | None = Field(default=None, ge=1)
    """JVMs of each server process; None: one a core."""
    live_per_jvm: int | None = Field(default=None, ge=1)
    """Simulators in a JVM at a time, some 10.5 MB each; further episodes wait as their logs. None: what fills half
    the heap, 48 by default."""
    heap_mb: int = Field(default=1024, ge=256)
    """`-Xmx` of each JVM."""
    recycle_mb: int | None = Field(default=None, ge=256)
    """Resident memory above which a JVM is replaced before it loads another game. None: 512 above its heap."""
    call_s: float = Field(default=20.0, gt=0)
    """The longest that one action may take in the simulator."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.live * _GAME_MB > self.heap_mb:
            raise ValueError(f"live_per_jvm={self.live} games of {_GAME_MB} MB do not fit heap_mb={self.heap_mb}")
        if self.rss_mb <= self.heap_mb:
            raise ValueError(
                f"recycle_mb={self.rss_mb} is not above heap_mb={self.heap_mb}: a JVM whose heap is in use would be "
                "replaced at every load"
            )
        return self

    @property
    def live(self) -> int:
        """Simulators in a JVM at a time."""
        return self.live_per_jvm or max(1, int(self.heap_mb / (2 * _GAME_MB)))

    @property
    def rss_mb(self) -> int:
        """Resident memory above which a JVM is replaced."""
        return self.recycle_mb or self.heap_mb + 512


SPEC = EnvSpec(
    name=NAME,
    version=f"1+scienceworld{RELEASE}",
    snapshot="replay",
    execution="thread",
    views=VIEWS,
    action_help=ACTION_HELP,
    default_horizon=30,
    init_schema=SciWorldInit.model_json_schema(),
    inject_schema=SciWorldInject.model_json_schema(),
    splits={split: sum(parts[i] for parts in sizes().values()) for i, split in enumerate(SPLITS)},
    families=tuple(sizes()),
)


class SciWorldEnv(ReplayEnv):
    """One episode. The task decides the world: `reset`'s seed has nothing to decide.

    The score is the simulator's, of 100, and 0 when it falls below (a wrong focus: -100, in `info["raw"]`). The task's
    end, good or bad, terminates; 1,000 steps, or an error inside the simulator, truncate.
    """

    spec = SPEC

    def __init__(self, pool: Pool, gold: GoldPaths, view: str) -> None:
        super().__init__()
        self._pool, self._gold, self._view = pool, gold, view
        self._episode: Episode | None = None
        self._text, self._steps, self._paid = "", 0, 0.0
        self._sight = ""  # what the view adds to the text
        self._room = ""  # the line that names the room that was shown last
        self._told_over = False

    async def reset(self, task: TaskRef, *, seed: int | None = None, init: dict[str, Any] | None = None) -> Observation:
        self._game(task, init)  # what is refused leaves the episode before it as it was
        return await super().reset(task, seed=seed, init=init)

    async def step(self, action: str) -> StepResult:
        if self._told_over:
            return self._result(0.0)
        # A log has to be JSON, which knows no lone surrogates, and bounded.
        return await super().step(action[: LONGEST_ACTION + 1].encode(errors="replace").decode())

    async def available_actions(self) -> list[str]:
        episode, _ = self._now()
        return [] if self._ended() else self._pool.options(episode)

    async def solve(self) -> Solution:
        episode, _ = self._now()
        if self._ended():
            return Solution([])
        rest = self._gold.rest(episode)
        if rest is None:
            raise NotSupported("the simulator's scripted agent does not reach the goal from here")
        return Solution(rest)

    async def tell(self, what: str) -> Any:
        """`actions` (templates), `objects` (referents), `goals` (their progress), `scene` (look, inventory), `tree`."""
        if what not in {"actions", "objects", "goals", "scene", "tree"}:
            return await super().tell(what)
        episode, last = self._now()
        told = self._pool.tell(episode, what)
        if what in {"actions", "objects"}:
            return told
        if what == "scene":
            return {"look": told[0], "inventory": told[1], "task": told[2], "moves": last.moves}
        return orjson.loads(told[0]) if what == "tree" else told[0]

    async def close(self) -> None:
        if self._episode is not None:
            self._pool.drop(self._episode)
            self._episode = None

    async def _reset(self, task: TaskRef, seed: int | None, init: dict[str, Any] | None) -> Observation:
        game = self._game(task, init)
        await self.close()
        self._episode = self._pool.start(game)
        _, told = self._now()
        self._text, self._told_over = f"{told.task}\n{told.text}", False
        self._steps, self._paid = 0, 0.0
        self._sight, self._room = "", _room(told.text)
        return Observation(self._text, self._info())

    async def _step(self, action: str) -> StepResult:
        episode, told = self._now()
        self._sight = ""
        if self._ended():
            self._text, self._told_over = OVER, True
            return self._result(0.0)
        self._steps += 1
        if len(action) > LONGEST_ACTION:
            self._text = UNKNOWN
        else:
            told = self._pool.do(episode, f"act {action}")
            self._text = told.text or f"The simulator failed: {told.error}"[:500]
            if self._view == LOOK and not self._ended():
                self._look(episode)
        # Some games have points before anything is done: the first step pays them.
        reward, self._paid = _score(told) - self._paid, _score(told)
        return self._result(reward)

    async def _inject(self, change: dict[str, Any]) -> Observation:
        episode, _ = self._now()
        location = parse_inject(change).location
        if self._ended():
            raise Conflict("the episode has ended")
        self._text = self._pool.do(episode, f"move{location}").text
        self._sight, self._room = "", _room(self._text)
        return Observation(self._text, self._info())

    def _in_every_view(self, text: str) -> str:
        return self._text

    def _look(self, episode: Episode) -> None:
        """See what is in the room, where it is another one than before."""
        look = self._pool.tell(episode, "scene")[0]
        if _room(look) != self._room:
            self._sight, self._room = f"\n{look.rstrip()}", _room(look)

    @staticmethod
    def _game(task: TaskRef, init: dict[str, Any] | None) -> Game:
        name, variation = parse(task)
        return Game(name, variation, parse_init(name, init).simplifications)

    def _now(self) -> tuple[Episode, Told]:
        if self._episode is None or self._episode.last is None:
            raise Conflict("the episode has not been reset")
        return self._episode, self._episode.last

    def _ended(self) -> bool:
        _, told = self._now()
        return told.over or self._truncated()

    def _truncated(self) -> bool:
        _, told = self._now()
        return not told.over and (bool(told.error) or self._steps >= MOST_STEPS)

    def _result(self, reward: float) -> StepResult:
        _, told = self._now()
        info = self._info()
        if self._text in {UNKNOWN, OVER}:
            info["invalid"] = True
        return StepResult(self._text + self._sight, reward, told.over, self._truncated(), info)

    def _info(self) -> Info:
        episode, told = self._now()
        raw: dict[str, Any] = {"score": told.points, "moves": told.moves}
        if told.error:
            raw["error"] = told.error[:500]
        return {
            "score": self._paid,
            "success": told.points >= 100,
            "state_key": _key(episode, told, self._ended()),
            "raw": raw,
            "view": {"task": told.task, "variation": episode.game.variation},
        }


def _room(look: str) -> str:
    """The line that names the room."""
    return look.partition("\n")[0]


def _score(told: Told) -> float:
    return max(told.points, 0) / 100


def _key(episode: Episode, told: Told, ended: bool) -> str:
    text = f"{episode.game}/{told.key}/{told.points}/{ended}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class SciWorldService(EnvService):
    """ScienceWorld on a pool of JVMs. They start when there is something to load, and end with the service."""

    spec = SPEC
    Config: ClassVar[type[EnvConfig]] = SciWorldConfig
    config: SciWorldConfig

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        options = self.config
        self.pool = Pool(
            PoolLimits(
                jvms=options.jvms or os.cpu_count() or 1,
                live=options.live,
                heap_mb=options.heap_mb,
                rss_mb=options.rss_mb,
                call_s=options.call_s,
            )
        )
        self.gold = GoldPaths(self.pool)
        self._tasks = SciWorldTasks()

    @classmethod
    def lack(cls) -> str | None:
        try:
            command(heap_mb=1024)
        except UsageError as error:
            return str(error)
        return None

    async def open(self) -> None:
        """Raises `UsageError` when Java or the simulator is not installed."""
        command(self.config.heap_mb)

    async def close(self) -> None:
        self.pool.close()

    def tasks(self) -> SciWorldTasks:
        return self._tasks

    def create(self, view: str | None = None) -> SciWorldEnv:
        view = view or VIEWS[0]
        if view not in VIEWS:
            raise BadRequest(f"{NAME} has no view {view!r}, only {', '.join(VIEWS)}")
        return SciWorldEnv(self.pool, self.gold, view)
