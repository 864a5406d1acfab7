"""Levels: their names, AgentGym's index over forty of them, and their generation by minigrid.

minigrid draws the level from its seed; what comes out is copied into an immutable `Level`, and minigrid is not needed
again. Generation uses minigrid's own seeded generator only: no global random state is read or changed.
"""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any, overload

import minigrid  # noqa: F401 - registers its levels with gymnasium
from gymnasium.envs.registration import load_env_creator, registry
from minigrid.core.constants import COLOR_TO_IDX
from minigrid.core.roomgrid import RoomGrid
from minigrid.core.world_object import Door
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling

from sojourn.envs.babyai import codes
from sojourn.envs.babyai.mission import Clause, Description, Kind, Mission
from sojourn.envs.babyai.sim import MARGIN, Level, Thing
from sojourn.envs.base import TaskIndex
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import UnknownTask

# fmt: off
FORTY = (
    "GoToRedBallGrey", "GoToRedBall", "GoToRedBallNoDists", "GoToObjS4", "GoToLocalS8N7", "GoToObjMazeS7",
    "GoToImpUnlock", "GoToSeqS5R2", "GoToRedBlueBall", "GoToDoor", "GoToObjDoor", "Open", "OpenRedDoor",
    "OpenDoorLoc", "OpenRedBlueDoorsDebug", "OpenDoorsOrderN4Debug", "Pickup", "UnblockPickup", "PickupLoc",
    "PickupDistDebug", "PickupAbove", "PutNextLocalS6N4", "PutNextS7N4Carrying", "Unlock", "UnlockLocalDist",
    "KeyInBox", "UnlockPickupDist", "BlockedUnlockPickup", "UnlockToUnlock", "ActionObjDoor", "FindObjS7",
    "KeyCorridorS6R3", "OneRoomS20", "MoveTwoAcrossS8N9", "SynthS5R2", "SynthLoc", "SynthSeq", "MiniBossLevel",
    "BossLevel", "BossLevelNoUnlock",
)
"""AgentGym's levels in its order. Its fourth, `BabyAI-GoToObjS6-v0`, was registered with rooms of size 4 and withdrawn
since: it is the game that minigrid now calls GoToObjS4."""
# fmt: on

MINIGRID = version("minigrid")
MAX_SEED = 2**32 - 1
SPLITS = {"test": range(100), "val": range(100, 200), "train": range(1000, 101_000)}
"""Seeds of each split, the same for every level."""
_ATTEMPTS = 1000
_lay_out_rooms: Any = RoomGrid._gen_grid
_ENV = "babyai"


@lru_cache(maxsize=1)
def level_ids() -> dict[str, str]:
    """minigrid's id of every BabyAI level by short name (`FindObjS7`), the newest version of each."""
    found = sorted(name for name in registry if name.startswith("BabyAI-"))
    return {name.removeprefix("BabyAI-").rpartition("-v")[0]: name for name in found}


def check_level(name: str) -> str:
    """The name itself; raises `UnknownTask` with the nearest known one."""
    known = level_ids()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise UnknownTask(f"minigrid has no BabyAI level {name!r}, the nearest is {near[0]!r}", nearest=near[0])
    return name


def parse(task: TaskRef) -> tuple[str, int]:
    """Level and seed of a task; raises `UnknownTask`."""
    if task.env != _ENV:
        raise UnknownTask(f"{task} is not a task of babyai")
    if task.index is not None:
        name, seed = FORTY[task.index % len(FORTY)], task.index // len(FORTY)
    else:
        name, _, digits = task.key.partition("/")
        check_level(name)
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
            raise UnknownTask(f"{task}: a task is named LEVEL/SEED with a whole number as seed, such as {name}/17")
        seed = int(digits)
    if seed > MAX_SEED:
        raise UnknownTask(f"{task}: seeds go up to {MAX_SEED}")
    return name, seed


class SplitTasks(Sequence[TaskRef]):
    """Tasks of several levels over a range of seeds, seed by seed, so that any prefix is balanced over the levels."""

    def __init__(self, names: Sequence[str], seeds: range) -> None:
        self.names, self.seeds = tuple(names), seeds

    def __len__(self) -> int:
        return len(self.names) * len(self.seeds)

    @overload
    def __getitem__(self, index: int) -> TaskRef: ...
    @overload
    def __getitem__(self, index: slice) -> list[TaskRef]: ...
    def __getitem__(self, index: int | slice) -> TaskRef | list[TaskRef]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        name = self.names[position % len(self.names)]
        return TaskRef(_ENV, f"{name}/{self.seeds[position // len(self.names)]}")


class BabyAITasks(TaskIndex):
    """`babyai_17` by AgentGym's index (level = index % 40, seed = index // 40), `babyai:FindObjS7/3` by name."""

    def resolve(self, task: TaskRef) -> TaskRef:
        name, seed = parse(task)
        return TaskRef(_ENV, f"{name}/{seed}")

    def family(self, task: TaskRef) -> str:
        return parse(task)[0]

    def select(self, split: str, families: Sequence[str] | None = None) -> SplitTasks:
        if split not in SPLITS:
            raise UnknownTask(f"babyai has no split {split!r}, only {', '.join(SPLITS)}")
        return SplitTasks(FORTY if families is None else [check_level(name) for name in families], SPLITS[split])


class LevelCache:
    """Generated levels, the most recently used ones kept: generation takes 1-20 ms and at times far more."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._levels: OrderedDict[tuple[str, int], Level] = OrderedDict()

    def __len__(self) -> int:
        return len(self._levels)

    def get(self, name: str, seed: int) -> Level:
        """The level, generated when it is not at hand; raises `UnknownTask` when minigrid cannot generate it."""
        level = self._levels.get((name, seed))
        if level is None:
            level = self._levels[name, seed] = generate(name, seed)
            if len(self._levels) > self.size:
                self._levels.popitem(last=False)
        self._levels.move_to_end((name, seed))
        return level


@cache
def _quiet(name: str) -> Any:
    """The level's class with minigrid's rejection loop, without its prints and with an end to its patience."""
    base: Any = load_env_creator(str(registry[level_ids()[name]].entry_point))

    class Quiet(base):  # type: ignore[misc]
        def _gen_grid(self, width: int, height: int) -> None:
            for _ in range(_ATTEMPTS):
                try:
                    _lay_out_rooms(self, width, height)
                    self.gen_mission()
                    self.validate_instrs(self.instrs)
                except (RecursionError, RejectSampling):
                    continue
                self.surface = self.mission = self.instrs.surface(self)
                return
            raise RejectSampling(f"no luck in {_ATTEMPTS} attempts")

    return Quiet


def make(name: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """minigrid's own environment of a level and its first observation (for generation, and for tests to compare with).

    Raises:
        UnknownTask: where minigrid cannot make the level from this seed; always the same ones.
    """
    env = _quiet(name)(**registry[level_ids()[name]].kwargs)
    try:
        observation, _ = env.reset(seed=seed)
    except (AssertionError, RejectSampling, RecursionError) as error:
        raise UnknownTask(f"minigrid cannot generate {name} from seed {seed}: {error}") from error
    return env, observation


def generate(name: str, seed: int) -> Level:
    """Let minigrid make the level; deterministic in name and seed."""
    env, _ = make(check_level(name), seed)
    return _Copier(env).level(name, seed)


class _Copier:
    """Copies one freshly reset minigrid environment."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.stride: int = env.width + 2 * MARGIN
        self.cells = bytearray([codes.WALL]) * (self.stride * (env.height + 2 * MARGIN))
        self.numbers: dict[int, int] = {}
        self.things: list[Thing] = [Thing(codes.EMPTY, 0)]
        self.places = [-1]
        self.ids: list[tuple[int, int]] = []
        self.clauses: list[Clause] = []
        self.descriptions: list[Description] = []

    def level(self, name: str, seed: int) -> Level:
        env = self.env
        for y in range(env.height):
            for x in range(env.width):
                self._copy_cell(x, y)
        carrying = self._number(env.carrying)
        self._clause(env.instrs)
        # Only a level that starts with an object in hand has one that was on the grid when the first view was drawn.
        ghost = (self._cell(*env.carrying.cur_pos), self.things[carrying].look) if carrying else None
        return Level(
            name=name,
            seed=seed,
            width=env.width,
            height=env.height,
            cells=bytes(self.cells),
            ids=tuple(self.ids),
            things=tuple(self.things),
            places=tuple(self.places),
            pos=self._cell(*env.agent_pos),
            facing=int(env.agent_dir),
            carrying=carrying,
            ghost=ghost,
            max_steps=int(env.max_steps),
            mission=Mission(env.mission, tuple(self.clauses), tuple(self.descriptions)),
        )

    def _cell(self, x: int, y: int) -> int:
        return (int(y) + MARGIN) * self.stride + int(x) + MARGIN

    def _copy_cell(self, x: int, y: int) -> None:
        found, cell = self.env.grid.get(x, y), self._cell(x, y)
        if found is None:
            self.cells[cell] = codes.EMPTY
        elif found.type != "wall":
            number = self._number(found)
            self.cells[cell] = self.things[number].look
            self.ids.append((cell, number))

    def _number(self, thing: Any) -> int:
        """The number of an object of minigrid's, new or known (0 for None)."""
        if thing is None:
            return 0
        number = self.numbers.get(id(thing))
        if number is None:
            contents = self._number(thing.contains)
            number = self.numbers[id(thing)] = len(self.things)
            self.things.append(Thing(_look(thing), contents))
            self.places.append(self._cell(*thing.cur_pos) if thing.cur_pos is not None else -1)
        return number

    def _clause(self, instr: Any) -> int:
        """Append an instruction's clauses, children first, and return the index of its own."""
        kind: Kind = type(instr).__name__.removesuffix("Instr").lower()  # type: ignore[assignment]
        if kind in ("before", "after", "and"):
            first, second = self._clause(instr.instr_a), self._clause(instr.instr_b)
        elif kind == "putnext":
            first, second = self._describe(instr.desc_move), self._describe(instr.desc_fixed)
        else:
            first, second = self._describe(instr.desc), -1
        self.clauses.append(Clause(kind, bool(getattr(instr, "strict", False)), first, second))
        return len(self.clauses) - 1

    def _describe(self, description: Any) -> int:
        found = description.obj_set
        cells = [self._cell(*position) for position in description.obj_poss]
        self.descriptions.append(
            Description(
                objects=frozenset(self._number(thing) for thing in found if thing.type != "wall"),
                cells=frozenset(cells),
                walls=frozenset(cell for cell, thing in zip(cells, found, strict=True) if thing.type == "wall"),
            )
        )
        return len(self.descriptions) - 1


def _look(thing: Any) -> int:
    color = codes.COLORS[COLOR_TO_IDX[thing.color]]
    if not isinstance(thing, Door):
        return codes.code(thing.type, color)
    return codes.code("door", color, "open" if thing.is_open else "locked" if thing.is_locked else "closed")
