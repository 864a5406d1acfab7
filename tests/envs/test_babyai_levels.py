"""Names, the index of the forty, splits, the cache."""

import pytest

from sojourn.envs.babyai import levels
from sojourn.envs.babyai.levels import FORTY, SPLITS, BabyAITasks, LevelCache, generate
from sojourn.protocol.env import TaskRef
from sojourn.protocol.errors import UnknownTask

TASKS = BabyAITasks()


def resolve(text):
    return str(TASKS.resolve(TaskRef.parse(text)))


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("babyai_0", "babyai:GoToRedBallGrey/0"),
        ("babyai_3", "babyai:GoToObjS4/0"),
        ("babyai_17", "babyai:UnblockPickup/0"),
        ("babyai_30", "babyai:FindObjS7/0"),
        ("babyai_39", "babyai:BossLevelNoUnlock/0"),
        ("babyai_92", "babyai:OpenRedDoor/2"),
        ("babyai:KeyCorridorS3R1/17", "babyai:KeyCorridorS3R1/17"),
        ("babyai:FindObjS7/007", "babyai:FindObjS7/7"),
    ],
)
def test_tasks_by_index_and_by_name(task, name):
    assert resolve(task) == name
    assert resolve(name) == name
    assert TASKS.family(TaskRef.parse(task)) == name.removeprefix("babyai:").partition("/")[0]


def test_there_are_forty_levels_that_minigrid_knows():
    assert len(FORTY) == len(set(FORTY)) == 40
    assert set(FORTY) <= levels.level_ids().keys()


def test_the_fourth_level_has_rooms_of_four():
    level = generate("GoToObjS4", 0)
    assert (level.width, level.height, level.max_steps) == (4, 4, 16)


@pytest.mark.parametrize(
    "task",
    ["babyai:FindObjS7", "babyai:FindObjS7/", "babyai:FindObjS7/-1", "babyai:FindObjS7/x", "babyai:FindObjS7/1/2"],
)
def test_a_name_needs_a_seed(task):
    with pytest.raises(UnknownTask, match="whole number as seed"):
        resolve(task)


@pytest.mark.parametrize("task", ["babyai:FindObjS7/4294967296", f"babyai_{40 * 2**32}"])
def test_seeds_have_an_end(task):
    with pytest.raises(UnknownTask, match="up to 4294967295"):
        resolve(task)


def test_an_unknown_level_names_the_nearest():
    with pytest.raises(UnknownTask, match="nearest is 'FindObjS7'"):
        resolve("babyai:FindObjS77/1")
    with pytest.raises(UnknownTask, match="nearest is 'UnlockLocal'"):
        TASKS.select("train", ["UnlokLocal"])


def test_another_environments_task_is_unknown():
    with pytest.raises(UnknownTask, match="not a task of babyai"):
        resolve("textcraft_1")


def test_splits_are_disjoint_lazy_and_balanced():
    train = TASKS.select("train")
    assert len(train) == 4_000_000
    assert [task.key for task in train[:40]] == [f"{name}/1000" for name in FORTY]
    assert train[40].key == "GoToRedBallGrey/1001"
    assert train[-1].key == "BossLevelNoUnlock/100999"
    some = TASKS.select("test", ["UnlockLocal", "KeyCorridorS3R1"])
    assert [task.key for task in some[:3]] == ["UnlockLocal/0", "KeyCorridorS3R1/0", "UnlockLocal/1"]
    assert len(some) == len(list(some)) == 200
    seeds = [set(seeds) for seeds in SPLITS.values()]
    assert len(set.union(*seeds)) == sum(map(len, seeds))
    with pytest.raises(IndexError):
        some[200]
    with pytest.raises(UnknownTask, match="no split 'dev'"):
        TASKS.select("dev")


def test_generation_is_deterministic():
    assert generate("BossLevel", 5) == generate("BossLevel", 5)
    assert generate("BossLevel", 5) != generate("BossLevel", 6)


def test_the_cache_keeps_what_was_used_last():
    cache = LevelCache(2)
    first = cache.get("GoToObjS4", 0)
    cache.get("GoToObjS4", 1)
    assert cache.get("GoToObjS4", 0) is first
    cache.get("GoToObjS4", 2)
    assert len(cache) == 2
    assert cache.get("GoToObjS4", 0) is first


def test_a_level_that_minigrid_cannot_make_is_unknown(monkeypatch):
    def reject(self):
        raise levels.RejectSampling("never good enough")

    monkeypatch.setattr(levels._quiet("GoToObjS4"), "gen_mission", reject)
    with pytest.raises(UnknownTask, match="cannot generate GoToObjS4 from seed 0: no luck in 1000 attempts"):
        generate("GoToObjS4", 0)
