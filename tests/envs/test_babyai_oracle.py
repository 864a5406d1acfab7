"""The scripted solution: valid in both views at every step, from any state, without touching the world."""

import random

import pytest

from sojourn.envs.babyai import oracle
from sojourn.envs.babyai.levels import FORTY, generate
from sojourn.envs.babyai.macros import perform, table
from sojourn.envs.babyai.sight import picture, read
from sojourn.envs.babyai.sim import World
from sojourn.protocol.errors import NotSupported


@pytest.mark.parametrize("name", [*FORTY, "KeyCorridorS3R1", "KeyCorridorS3R2", "UnlockLocal"])
def test_plans_use_what_the_view_shows(name):
    """Every step is possible, changes something, and names objects by a number that both views show."""
    solved = 0
    for seed in range(5):
        world = World.start(generate(name, seed))
        try:
            solution = oracle.solve(world)
        except NotSupported:
            continue
        assert len(solution.thoughts) == len(solution.actions)
        for action in solution.actions:
            macro = table(world).get(action)
            if macro.target:
                assert macro.target in read(picture(world)).things
                assert action.endswith(f" {macro.target.name} {macro.target.rank}")
            event, _ = perform(world, action)
            assert event.code == ""
        assert world.success
        solved += 1
    # minigrid's OpenDoorsOrder fails a mission of two doors at the first one, whichever it is.
    assert solved >= (1 if name == "OpenDoorsOrderN4Debug" else 4)


def test_the_oracle_leaves_the_world_alone():
    world = World.start(generate("BossLevel", 0))
    before = world.copy()
    oracle.solve(world)
    assert world == before


def test_two_doors_in_strict_order_cannot_be_opened():
    for seed in range(20):
        level = generate("OpenDoorsOrderN4Debug", seed)
        if len(level.mission.clauses) > 1:
            with pytest.raises(NotSupported, match="no scripted solution"):
                oracle.solve(World.start(level))


def test_plans_exist_from_the_middle_of_an_episode():
    """After any prefix of random actions that has not ended it."""
    solved = total = 0
    for name in ("KeyCorridorS3R2", "UnlockToUnlock", "PutNextLocalS6N4", "BlockedUnlockPickup", "GoToObjMazeS7"):
        for seed in range(8):
            world, rng = World.start(generate(name, seed)), random.Random(seed)
            for _ in range(12):
                perform(world, rng.choice(list(table(world).possible)))
                if world.over:
                    break
            if world.over:
                continue
            total += 1
            try:
                oracle.solve(world)
            except NotSupported:
                continue
            solved += 1
    assert solved >= 0.9 * total
