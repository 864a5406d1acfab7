"""An environment with a fault for the doctor to find: a reset remembers how many came before."""

from __future__ import annotations

from tests.envs.example_env import GuessEnv, GuessService


class ForgetfulEnv(GuessEnv):
    def __init__(self):
        super().__init__()
        self.resets = 0

    async def _reset(self, task, seed, init):
        observation = await super()._reset(task, seed, init)
        self.resets += 1
        observation.text += f" (reset {self.resets})"
        return observation


class ForgetfulService(GuessService):
    def create(self, view=None):
        return ForgetfulEnv()
