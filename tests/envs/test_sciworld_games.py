"""Which game a task of SciWorld is: AgentGym's indices, names, the simulator's splits. No Java is needed."""

import errno
import os
from pathlib import Path

import orjson
import pytest

from sojourn.envs import registry
from sojourn.envs.sciworld.games import SPLITS, SciWorldTasks, indexed, parse, sizes
from sojourn.envs.sciworld.gold import GoldPaths
from sojourn.envs.sciworld.words import parse_init, parse_inject
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import InvalidInit, NotFound, UnknownTask

OFFSETS = {
    "boil": 0,
    "melt": 30,
    "freeze": 60,
    "change-the-state-of-matter-of": 90,
    "use-thermometer": 120,
    "measure-melting-point-known-substance": 660,
    "measure-melting-point-unknown-substance": 1096,
    "power-component": 1396,
    "power-component-renewable-vs-nonrenewable-energy": 1416,
    "test-conductivity": 1436,
    "test-conductivity-of-unknown-substances": 2336,
    "find-living-thing": 2936,
    "find-non-living-thing": 3236,
    "find-plant": 3536,
    "find-animal": 3836,
    "chemistry-mix": 4136,
    "chemistry-mix-paint-secondary-color": 4168,
    "chemistry-mix-paint-tertiary-color": 4204,
    "lifespan-longest-lived": 4240,
    "lifespan-shortest-lived": 4365,
    "lifespan-longest-lived-then-shortest-lived": 4490,
    "identify-life-stages-1": 4615,
    "identify-life-stages-2": 4629,
}
"""First index of each task on an AgentGym server with scienceworld 1.2.3."""


def test_indices_are_those_of_agentgym():
    assert indexed() == OFFSETS
    tasks = SciWorldTasks()
    assert str(tasks.resolve(TaskRef.parse("sciworld_0"))) == "sciworld:boil/0"
    assert str(tasks.resolve(TaskRef.parse("sciworld_659"))) == "sciworld:use-thermometer/539"
    assert str(tasks.resolve(TaskRef.parse("sciworld_660"))) == "sciworld:measure-melting-point-known-substance/0"
    assert str(tasks.resolve(TaskRef.parse("sciworld_4638"))) == "sciworld:identify-life-stages-2/9"
    named = [tasks.resolve(TaskRef("sciworld", str(index))) for index in range(4_639)]
    assert len(set(named)) == 4_639


def test_splits_are_the_simulators():
    tasks = SciWorldTasks()
    split = {name: tasks.select(name) for name in SPLITS}
    assert [len(split[name]) for name in SPLITS] == [3_592, 1_796, 1_819]
    assert len(set().union(*split.values())) == 7_207
    assert [task.key for task in tasks.select("dev", ["boil"])] == [f"boil/{i}" for i in range(14, 21)]
    assert {tasks.family(task) for task in split["train"]} == set(sizes())
    assert registry.load("sciworld")().spec.splits == {"train": 3_592, "dev": 1_796, "test": 1_819}


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("sciworld_4639", "past the last task, sciworld_4638"),
        ("sciworld:boil/30", "only 0 to 29"),
        ("sciworld:boil/-1", "only 0 to 29"),
        ("sciworld:boil/", "only 0 to 29"),
        ("sciworld:boil/" + "9" * 40, "only 0 to 29"),
        ("sciworld:boil", "did you mean 'boil'"),
        ("sciworld:boils/3", "did you mean 'boil'"),
        ("babyai_1", "not 'sciworld'"),
    ],
)
def test_unknown_tasks_are_named(task, says):
    with pytest.raises(UnknownTask, match=says):
        parse(TaskRef.parse(task))


def test_unknown_splits_and_families_are_named():
    with pytest.raises(NotFound, match="train, dev, test"):
        SciWorldTasks().select("val")
    with pytest.raises(NotFound, match="'boiling'"):
        SciWorldTasks().select("test", ["boil", "boiling"])


def test_simplifications_are_checked():
    assert parse_init("boil", None).simplifications == ""
    assert parse_init("boil", {"simplifications": "openDoors,easy,,openDoors"}).simplifications == "easy,openDoors"
    with pytest.raises(InvalidInit, match=r"'fly' .*known: easy, teleportAction"):
        parse_init("boil", {"simplifications": "fly"})
    with pytest.raises(InvalidInit, match="test-conductivity cannot be done with noElectricalAction"):
        parse_init("test-conductivity", {"simplifications": "noElectricalAction"})
    with pytest.raises(InvalidInit, match="simplifications: "):
        parse_init("boil", {"simplifications": 3})
    with pytest.raises(InvalidInit, match="location: "):
        parse_inject({})


@pytest.mark.parametrize("fails", [(os, "fsync"), (Path, "mkdir")])
def test_a_full_disk_costs_no_path_and_leaves_no_rubbish(tmp_path, monkeypatch, caplog, fails):
    paths = GoldPaths(pool=None, folder=tmp_path)
    file = tmp_path / "task" / "3"
    paths._keep(file, ["look around"])
    assert orjson.loads(file.read_bytes()) == ["look around"]

    def full(*_, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*fails, full)
    paths._keep(file, ["go to kitchen"])
    assert "No space left on device" in caplog.text
    assert [each.name for each in file.parent.iterdir()] == ["3"]
    assert orjson.loads(file.read_bytes()) == ["look around"]
