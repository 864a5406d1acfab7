"""Simulators give the same texts wherever and beside whatever they run, and nothing that happens to a JVM is seen."""

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

import pytest

from sojourn.envs.sciworld.pool import Episode, Game, Pool, PoolLimits, Told
from sojourn.protocol.errors import EnvironmentFailed, InvalidInit, ReplayDiverged
from tests.envs.test_sciworld_java import needs_java

pytestmark = needs_java

LIMITS = PoolLimits(jvms=1, live=64, heap_mb=512, rss_mb=4_096, call_s=60.0)
PATHS = {
    Game(name.partition("/")[0], int(name.partition("/")[2])): path
    for name, path in json.loads((Path(__file__).parent / "sciworld_paths.json").read_text()).items()
}
"""What the simulator's scripted agent begins with, in fourteen games, genetics with its chance among them."""
BOIL = Game("boil", 3)


@pytest.fixture(scope="module")
def pool():
    with closing(Pool(LIMITS)) as made:
        yield made


def play(pool: Pool, game: Game) -> list[Told]:
    episode = pool.start(game)
    assert episode.last is not None
    seen = [episode.last, *(pool.do(episode, f"act {action}") for action in PATHS[game])]
    pool.drop(episode)
    return seen


def until(seen: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do."""
    for _ in range(3_000):
        if seen():
            return
        time.sleep(0.01)
    pytest.fail("it never came")


@pytest.fixture(scope="module")
def expected(pool) -> dict[Game, list[Told]]:
    return {game: play(pool, game) for game in PATHS}


def test_there_is_much_to_compare(expected):
    assert len(expected) == 14
    assert len({told.text for seen in expected.values() for told in seen}) > 80
    assert len({told.key for seen in expected.values() for told in seen}) > 80


def test_again_in_the_same_jvm(pool, expected):
    assert {game: play(pool, game) for game in reversed(PATHS)} == expected


def test_interleaved(pool, expected):
    episodes = {game: pool.start(game) for game in PATHS}
    seen = {game: [episode.last] for game, episode in episodes.items()}
    for actions in zip_longest(*PATHS.values()):
        for game, action in zip(PATHS, actions, strict=True):
            if action is not None:
                seen[game].append(pool.do(episodes[game], f"act {action}"))
    for episode in episodes.values():
        pool.drop(episode)
    assert seen == expected
    assert pool.live() == 0


def test_in_another_jvm_from_eight_threads(expected):
    with closing(Pool(LIMITS)) as other, ThreadPoolExecutor(8) as threads:
        assert dict(zip(PATHS, threads.map(lambda game: play(other, game), PATHS), strict=True)) == expected


def test_more_episodes_than_fit_are_let_go_and_come_back(expected):
    games = list(PATHS)[:6]
    with closing(Pool(LIMITS._replace(live=2))) as small, ThreadPoolExecutor(8) as threads:
        episodes = [small.start(game) for game in games]
        for at in range(4):
            told = list(
                threads.map(lambda e, n=at: small.do(e, f"act {PATHS[e.game][n]}"), episodes)  # type: ignore[misc]
            )
            assert told == [expected[game][at + 1] for game in games]
            assert small.live() <= 2


def test_those_who_fit_stay_while_more_than_fit_act_in_turn(caplog):
    """Of six in turn on four places, three act where they are and three come back: not six. The log says so, once, and
    not before as many were let go as fit."""
    with closing(Pool(LIMITS._replace(live=4))) as small:
        episodes = [small.start(BOIL) for _ in range(6)]
        assert not caplog.records
        stayed = []
        for _ in range(3):
            for episode in episodes:
                stayed.append(episode.home is not None and episode.id in episode.home)
                small.do(episode, "act look around")
        assert stayed == [True, True, True, False, False, False] * 3
    assert [record.message[:34] for record in caplog.records] == ["more than 4 ScienceWorld episodes "]


def test_the_place_of_who_is_being_dropped_is_free_at_once(caplog):
    with closing(Pool(LIMITS._replace(jvms=2, live=1))) as full, ThreadPoolExecutor(2) as threads:
        stays, goes = full.start(BOIL), full.start(BOIL)
        assert [stays.home, goes.home] == full._slots
        with full._slots[1].lock:  # as while another episode acts there
            dropped = threads.submit(full.drop, goes)
            until(lambda: bool(full._slots[1].leaving))
            started = threads.submit(full.start, BOIL)
            until(lambda: any(slot.coming for slot in full._slots))
        dropped.result()
        assert started.result().home is full._slots[1]
        assert stays.id in full._slots[0]
        assert not full._slots[1].leaving
    assert not caplog.records


def test_listing_actions_changes_nothing(pool, expected):
    game = Game("mendelian-genetics-known-plant", 11)
    episode = pool.start(game)
    seen = [episode.last]
    for i, action in enumerate(PATHS[game]):
        if i % 15 == 0:
            options = pool.options(episode)
            assert options == sorted(set(options))
            assert len(options) > 100
        seen.append(pool.do(episode, f"act {action}"))
    assert seen == expected[game]


def test_listed_actions_are_known(pool):
    episode = pool.start(BOIL)
    options = pool.options(episode)
    assert "open kitchen door" in options or "open door to kitchen" in options
    for action in options[:: len(options) // 12]:
        assert "No known action" not in pool.do(episode, f"act {action}").text, action


def test_an_episode_survives_its_jvm(expected):
    with closing(Pool(LIMITS)) as pool:
        episodes = [pool.start(BOIL), pool.start(BOIL)]
        path = PATHS[BOIL]
        for i, action in enumerate(path[:4]):
            if i == 2:
                os.kill(pool.jvms()[0].pid, signal.SIGKILL)
            for episode in episodes:
                assert pool.do(episode, f"act {action}") == expected[BOIL][i + 1]
        os.kill(pool.jvms()[0].pid, signal.SIGKILL)
        assert "open cupboard" in pool.options(episodes[0]) or "close cupboard" in pool.options(episodes[0])


def test_a_hanging_jvm_costs_only_the_action():
    with closing(Pool(LIMITS)) as pool:
        episode, other = pool.start(BOIL), pool.start(BOIL)
        pool.do(other, "act open door to kitchen")
        os.kill(pool.jvms()[0].pid, signal.SIGSTOP)
        for slot in pool._slots:
            slot._limits = LIMITS._replace(call_s=0.2)
        with pytest.raises(EnvironmentFailed, match="hangs"):
            pool.do(episode, "act open door to kitchen")
        for slot in pool._slots:
            slot._limits = LIMITS
        assert pool.jvms() == []
        assert pool.do(episode, "act open door to kitchen").text == "The door is now open."
        assert pool.do(other, "act go to kitchen").text == "You move to the kitchen."


def test_a_jvm_that_has_grown_is_replaced(expected):
    with closing(Pool(LIMITS._replace(rss_mb=1))) as pool:
        first = pool.start(BOIL)
        before = pool.jvms()[0].pid
        pool.start(BOIL)
        assert pool.jvms()[0].pid != before
        assert pool.do(first, f"act {PATHS[BOIL][0]}") == expected[BOIL][1]


def test_a_changed_past_is_noticed(pool):
    episode = pool.start(BOIL)
    pool.do(episode, "act open door to kitchen")
    live = pool.live()
    forged = Episode(BOIL, ["act look around", "act inventory"], episode.last)
    with pytest.raises(ReplayDiverged, match="boil/3"):
        pool.do(forged, "act inventory")
    with pytest.raises(ReplayDiverged, match="boil/3"):
        pool.options(forged)
    assert pool.live() == live
    pool.drop(episode)


def test_moves_are_to_places_that_exist(pool):
    episode = pool.start(BOIL)
    before = episode.last
    assert before is not None
    with pytest.raises(InvalidInit, match="bathroom, bedroom"):
        pool.do(episode, "movemoon")
    assert pool.do(episode, "act look around").key == before.key
    assert pool.do(episode, "movekitchen").text.startswith("This room is called the kitchen.")
    assert episode.deeds == ["act look around", "act look around", "movekitchen"]


def test_a_gold_path_keeps_nobody_waiting(pool):
    """It is worked out in a JVM of its own, which others need not wait for."""
    episode = pool.start(BOIL)
    with closing(Pool(LIMITS)) as other:
        mine = other.start(BOIL)
        assert len(other.jvms()) == 1
        with other._slots[0].lock:  # as when the pool is at work
            path = other.gold(BOIL)
        with other._aside.lock:  # as when a path is
            assert other.do(mine, "act inventory") == pool.do(episode, "act inventory")
        assert path[:2] == PATHS[BOIL][:2]
        assert len(other.jvms()) == 2
    assert other.jvms() == []
    pool.drop(episode)


def test_what_the_simulator_tells_changes_nothing(pool, expected):
    for game in (BOIL, Game("mendelian-genetics-known-plant", 11)):
        episode = pool.start(game)
        seen = [episode.last]
        for action in PATHS[game][:10]:
            for what in ("actions", "objects", "goals", "scene", "tree"):
                assert pool.tell(episode, what)
            seen.append(pool.do(episode, f"act {action}"))
        assert seen == expected[game][:11]
        with pytest.raises(InvalidInit):
            pool.tell(episode, "future")
        pool.drop(episode)


def test_closing_ends_every_jvm():
    pool = Pool(LIMITS._replace(jvms=2, heap_mb=256))
    for _ in range(2):
        pool.start(BOIL)
    jvms = pool.jvms()
    assert len(jvms) == 2
    pool.close()
    assert pool.jvms() == []
    assert all(jvm._process.poll() is not None for jvm in jvms)


def test_episodes_that_start_at_once_are_spread_over_the_jvms():
    with closing(Pool(LIMITS._replace(jvms=2))) as pool, ThreadPoolExecutor(8) as threads:
        list(threads.map(pool.start, [BOIL] * 8))
        assert sorted(map(len, pool._slots)) in ([4, 4], [3, 5])
        assert not any(slot.coming for slot in pool._slots)


def heap(pool: Pool) -> tuple[int, float]:
    """Simulators that live in the pool's only JVM, and the MB that are left there when all else is collected."""
    (jvm,) = pool.jvms()
    _, live, used = jvm.call(["heap"], 60.0)
    return int(live), int(used) / (1 << 20)


def test_an_episode_that_is_let_go_leaves_nothing():
    games = list(PATHS)[:4]
    with closing(Pool(LIMITS)) as pool:
        for game in games:
            play(pool, game)  # what is loaded once stays: classes, names, tables
        live, before = heap(pool)
        assert live == 0
        kept = pool.start(BOIL)
        live, with_one = heap(pool)
        assert live == 1
        pool.drop(kept)
        for game in games:
            play(pool, game)
        live, after = heap(pool)
        assert live == 0
        one = with_one - before
        assert one > 1, "a simulator takes no room? then this test says nothing"
        assert after - before < one / 4, f"{len(games) + 1} episodes left {after - before:.1f} MB, of {one:.1f} each"
