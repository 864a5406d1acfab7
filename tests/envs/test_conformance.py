"""Every registered environment keeps the contract, a third-party one too; and the checks catch those that do not."""

import dataclasses
import random
from importlib.metadata import EntryPoint

import pytest

from sojourn import plugins
from sojourn.envs import conformance, registry
from sojourn.envs.base import EnvService, pack_state, unpack_state
from sojourn.envs.conformance import CHECKS
from sojourn.protocol.env import Observation, Solution, StepResult
from sojourn.protocol.errors import UsageError
from tests.envs.example_env import GuessEnv, GuessService
from tests.envs.unordered import UnorderedEnv, UnorderedService

SIZES = {"episodes": 8, "hostile": 1_000, "memory_episodes": 40}
SLOW = {
    "sciworld": {
        "episodes": 1,
        "hostile": 100,
        "memory_episodes": 16,
        "only": [name for name in CHECKS if name != "processes_agree"],
    }
}
"""A step there takes milliseconds, and all that replays takes them again. Over fewer episodes than these, a cache that
fills once (a kilobyte) would pass for a leak. Its own tests play it in other JVMs."""
OPTIONS = {"sciworld": {"jvms": 1}}


@pytest.mark.parametrize("name", registry.names())
async def test_every_registered_environment_conforms(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SOJOURN_HOME", str(tmp_path))
    try:
        service = registry.load(name)
        config = service.Config(**OPTIONS.get(name, {}))
        results = await conformance.run(lambda: service(config), name=name, **SLOW.get(name, SIZES))
    except UsageError as error:
        if "not installed" not in str(error):
            raise
        pytest.skip(str(error))
    assert [result for result in results if not result.passed] == []


@pytest.fixture
def entry_points(monkeypatch):
    """An installed distribution that brings `guess` along, by the one line in its metadata."""
    point = EntryPoint("guess", "tests.envs.example_env:GuessService", "sojourn.envs")
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: [point] if group == point.group else [])


async def test_a_third_environment_is_one_file_and_one_line(entry_points):
    assert "guess" in registry.names()
    service = registry.load("guess")
    assert service is GuessService
    assert [result for result in await conformance.run(service, **SIZES) if not result.passed] == []


def test_the_example_environment_is_short():
    with open(__file__.replace("test_conformance", "example_env"), encoding="utf-8") as lines:
        assert len(list(lines)) <= 60


class GlobalRandom(GuessEnv):
    async def _reset(self, task, seed, init):
        observation = await super()._reset(task, seed, init)
        self.secret = random.randrange(100)
        return observation


class Remembers(GuessEnv):
    async def _reset(self, task, seed, init):
        before = getattr(self, "secret", 0)
        observation = await super()._reset(task, seed, init)
        self.secret = (self.secret + before) % 100
        return observation


class Forgets(GuessEnv):
    """Its snapshot leaves out the last guess."""

    async def snapshot(self):
        return pack_state("guess", "1", "state", {"secret": self.secret, "won": self.won})

    async def restore(self, snapshot):
        state = unpack_state(snapshot, "guess", "1", "state")
        self.secret, self.won, self.last = state["secret"], state["won"], -1
        return Observation("restored", self._info())


class Shared(GuessEnv):
    """Whoever wins, wins for all episodes of the process."""

    _everyone = {"won": False}  # noqa: RUF012

    @property
    def won(self):
        return self._everyone["won"]

    @won.setter
    def won(self, value):
        self._everyone["won"] = value


class LocalSnapshot(GuessEnv):
    """Its snapshot points into the memory of its own server."""

    secrets: dict[str, int]

    async def snapshot(self):
        self.secrets[str(self.secret)] = self.secret
        return pack_state("guess", "1", "state", {"key": str(self.secret), "last": self.last, "won": self.won})

    async def restore(self, snapshot):
        state = unpack_state(snapshot, "guess", "1", "state")
        self.secret, self.last, self.won = self.secrets.pop(state["key"], 0), state["last"], state["won"]
        return Observation("restored", self._info())


class PaysTwice(GuessEnv):
    async def _step(self, action):
        self.won = False
        return await super()._step(action)


class Generous(GuessEnv):
    async def _step(self, action):
        result = await super()._step(action)
        return StepResult(result.observation, 0.1, result.terminated, False, result.info)


class Unsolved(GuessEnv):
    async def solve(self):
        return Solution(["0"])


class Easy(GuessEnv):
    async def _step(self, action):
        return await super()._step(action or str(self.secret))


class Brittle(GuessEnv):
    async def _step(self, action):
        return await super()._step(str(int(action)))


class Trusting(GuessEnv):
    async def restore(self, snapshot):
        unpack = unpack_state(snapshot, "guess", "1", "replay")
        for entry in unpack["log"]:
            entry["args"]
        return await super().restore(snapshot)


class Credulous(GuessEnv):
    """Takes any state, and falls over it at the next step."""

    async def snapshot(self):
        return pack_state("guess", "1", "state", {"secret": self.secret, "last": self.last, "won": self.won})

    async def restore(self, snapshot):
        state = unpack_state(snapshot, "guess", "1", "state")
        self.secret, self.last, self.won = state.get("secret", 0), state.get("last"), bool(state.get("won"))
        return Observation("restored", self._info())


class Consumed(GuessEnv):
    """To ask for the solution is to use it up."""

    async def solve(self):
        self.last = self.secret
        return await super().solve()

    async def snapshot(self):
        return pack_state("guess", "1", "state", {"secret": self.secret, "last": self.last, "won": self.won})


class Gullible(GuessEnv):
    async def _reset(self, task, seed, init):
        return await super()._reset(task, seed, None)


class Hoarder(GuessEnv):
    kept: list[bytes]

    async def _reset(self, task, seed, init):
        self.kept.append(bytes(4_000))
        return await super()._reset(task, seed, init)


class Unhelpful(GuessEnv):
    spec = GuessEnv.spec.model_copy(update={"views": ("full", "small")})


class Worded(GuessEnv):
    """A snapshot of one view is replayed in the words of another."""

    spec = GuessEnv.spec.model_copy(update={"views": ("full", "small"), "action_help": {"full": "?", "small": "?"}})
    view: str | None

    async def _step(self, action):
        return dataclasses.replace(await super()._step(action), observation=f"as {self.view} has it")


BROKEN = {
    "spec_is_complete": Unhelpful,
    "seeds_reproduce": GlobalRandom,
    "processes_agree": UnorderedEnv,
    "reset_is_full": Remembers,
    "snapshot_continues": Forgets,
    "views_share_snapshots": Worded,
    "snapshot_is_portable": LocalSnapshot,
    "forks_are_apart": Shared,
    "damaged_snapshots_are_refused": Trusting,
    "looking_changes_nothing": Consumed,
    "bad_input_is_refused": Gullible,
    "oracle_succeeds": Unsolved,
    "null_agent_fails": Easy,
    "hostile_actions_are_answered": Brittle,
    "rewards_sum_to_score": Generous,
    "nothing_follows_the_end": PaysTwice,
    "memory_is_flat": Hoarder,
}


def service_of(env: type[GuessEnv]) -> type[EnvService]:
    class Service(GuessService):
        spec = env.spec

        def __init__(self, config=None):
            super().__init__(config)
            self._memory: dict[str, int] = {}
            self._kept: list[bytes] = []

        def create(self, view=None):
            made = env()
            if isinstance(made, Worded):
                made.view = view
            if isinstance(made, LocalSnapshot):
                made.secrets = self._memory
            if isinstance(made, Hoarder):
                made.kept = self._kept
            return made

    return Service


def test_every_check_has_an_environment_that_fails_it():
    assert set(BROKEN) == set(CHECKS)


@pytest.mark.parametrize(("name", "env"), BROKEN.items())
async def test_a_check_catches_what_it_is_for(name, env):
    service = UnorderedService if env is UnorderedEnv else service_of(env)
    [result] = await conformance.run(service, only=[name], **SIZES)
    assert not result.passed
    assert result.detail
    assert env is not UnorderedEnv or " differ: " in result.detail


async def test_a_process_that_fails_is_told():
    service = type("Gone", (GuessService,), {"__module__": "no_such_module"})
    [result] = await conformance.run(service, only=["processes_agree"], **SIZES)
    assert result.detail == "another process fails with code 1: ModuleNotFoundError: No module named 'no_such_module'"


async def test_a_leak_of_restored_worlds_is_a_leak():
    kept = []

    class Hoards(GuessEnv):
        async def restore(self, snapshot):
            kept.append(bytes(4_000))
            return await super().restore(snapshot)

    [result] = await conformance.run(service_of(Hoards), only=["memory_is_flat"], **SIZES)
    assert "bytes an episode" in result.detail


async def test_worlds_that_take_a_damaged_snapshot_must_be_usable():
    [result] = await conformance.run(service_of(Credulous), only=["damaged_snapshots_are_refused"], **SIZES)
    assert not result.passed
    assert "a world that took a damaged snapshot raises TypeError" in result.detail


async def test_an_environment_answers_to_the_name_it_is_registered_under():
    [result] = await conformance.run(GuessService, name="guesses", only=["spec_is_complete"], **SIZES)
    assert "'guess' / 'guesses'" in result.detail or "guess / guesses" in result.detail


async def test_unknown_checks_are_named():
    with pytest.raises(ValueError, match="no_such_check"):
        await conformance.run(GuessService, only=["no_such_check"])
