"""A third environment, whole: guess a number, told only "higher" and "lower"."""

import random

from sojourn.envs.base import EnvService, ReplayEnv, TaskIndex, digest
from sojourn.protocol.env import EnvSpec, Info, Observation, Solution, StepResult, TaskRef
from sojourn.protocol.errors import InvalidInit, NotFound, UnknownTask

HELP = "Write a number from 0 to 99; you are told whether the secret is higher or lower."
SPLITS = {"train": range(90), "test": range(90, 100)}


class GuessTasks(TaskIndex):
    def resolve(self, task):
        if task.key not in map(str, range(100)):
            raise UnknownTask(f"no task {task.key[:80]!r} (guess_0 to guess_99)")
        return task

    def family(self, task):
        return "guess"

    def select(self, split, families=None):
        if split not in SPLITS:
            raise NotFound(f"no split {split!r}")
        return [TaskRef("guess", str(i)) for i in SPLITS[split]]


class GuessEnv(ReplayEnv):
    spec = EnvSpec(
        name="guess", version="1", snapshot="replay", action_help={"full": HELP}, default_horizon=10,
        splits={split: len(keys) for split, keys in SPLITS.items()}, families=("guess",),
    )  # fmt: skip

    async def _reset(self, task, seed, init):
        if init:
            raise InvalidInit("guess takes no init")
        self.secret = random.Random(f"{GuessTasks().resolve(task)}/{seed}").randrange(100)
        self.last, self.won = -1, False
        return Observation("guess a number", self._info())

    async def _step(self, action):
        if self.won or not (action.isascii() and action.isdigit() and len(action) < 3):
            return StepResult("that is no guess", 0.0, self.won, False, self._info(invalid=True))
        self.last, self.won = int(action), int(action) == self.secret
        words = "right" if self.won else "higher" if self.last < self.secret else "lower"
        return StepResult(words, float(self.won), self.won, False, self._info())

    async def solve(self):
        return Solution([] if self.won else [str(self.secret)])

    def _info(self, **more):
        return Info(score=float(self.won), success=self.won, state_key=digest([self.secret, self.last]), **more)


class GuessService(EnvService):
    spec, tasks = GuessEnv.spec, lambda self: GuessTasks()

    def create(self, view=None):
        return GuessEnv()
