"""Simulators for any number of episodes on a few JVMs.

An episode is its log: what was loaded and every deed since. While it is played it also lives in a JVM; when others need
the room it is let go there, and comes back by replay. So neither many episodes, nor the end of a JVM, cost an episode.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, TypeVar

from sojourn.envs.sciworld.jvm import Jvm, JvmDied, JvmHung
from sojourn.protocol.errors import EnvironmentFailed, InvalidInit, ReplayDiverged

logger = logging.getLogger("sojourn.envs.sciworld")

T = TypeVar("T")
_ids = count(1)
_TRIES = 3
_MORE_S = 1.0
"""What a replayed deed may add to a call's time limit."""
_GOLD_S = 60.0
_IDLE_S = 60.0
"""Unused for so long, an episode is the first to be let go."""
_OFTEN_S = 60.0
"""When as many busy episodes as fit are let go within so long, there are too many."""


class Game(NamedTuple):
    """What is loaded into a simulator."""

    task: str
    variation: int
    simplifications: str = ""


class Told(NamedTuple):
    """What a simulator says after a deed."""

    text: str
    points: int
    """-100 to 100; below zero the episode has failed."""
    over: bool
    moves: int
    key: str
    """Digest of the world."""
    trail: str
    """Digest of all texts so far."""
    error: str
    """What went wrong inside the simulator; empty as a rule."""
    task: str
    """The task's description."""


@dataclass(slots=True, eq=False)
class Episode:
    """One game and what was done in it. For one thread at a time."""

    game: Game
    deeds: list[str] = field(default_factory=list)
    """Four letters, `act ` or `move`, and the words."""
    last: Told | None = None
    id: str = field(default_factory=lambda: str(next(_ids)))
    home: _Slot | None = None

    def again(self) -> Episode:
        """Another episode with the same past."""
        return Episode(self.game, list(self.deeds), self.last)


class PoolLimits(NamedTuple):
    """How much a pool may take."""

    jvms: int
    live: int
    """Simulators in a JVM at a time."""
    heap_mb: int
    rss_mb: int
    """A JVM above this is ended before the next load."""
    call_s: float
    """The longest a deed may take."""


class Pool:
    """JVMs, started when needed, and the episodes that live in them. For any number of threads."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self._slots = [_Slot(limits, self._crowded) for _ in range(limits.jvms)]
        self._placing = threading.Lock()
        self._said = False
        self._let_go: deque[float] = deque(maxlen=limits.jvms * limits.live)
        """When the last busy episodes were let go, as many as fit."""
        self._aside = _Slot(limits, self._crowded)
        """Where gold paths are worked out: that takes seconds, for which nobody else has to wait."""

    def start(self, game: Game) -> Episode:
        """A fresh episode, after a look around."""
        episode = Episode(game)
        self.do(episode, "act look around")
        return episode

    def do(self, episode: Episode, deed: str) -> Told:
        """Act in an episode.

        Raises:
            InvalidInit: a move to a place that is not there.
            EnvironmentFailed: the deed hangs the simulator, or JVMs keep ending.
            ReplayDiverged: an episode that was let go did not come back the same.
        """
        episode.last = self._at_home(episode, lambda slot: slot.do(episode, deed))
        episode.deeds.append(deed)
        return episode.last

    def options(self, episode: Episode) -> list[str]:
        """Actions that the world would take now, sorted; raises as `do`."""
        return sorted(set(self._at_home(episode, lambda slot: slot.ask("list", episode))))

    def tell(self, episode: Episode, what: str) -> list[str]:
        """What the simulator tells beside its texts: `actions`, `objects`, `goals`, `scene`, `tree`; raises as `do`."""
        return self._at_home(episode, lambda slot: slot.ask("tell", episode, what))

    def drop(self, episode: Episode) -> None:
        """Let an episode go for good."""
        if episode.home is not None:
            episode.home.drop(episode)

    def gold(self, game: Game) -> list[str]:
        """The actions of the simulator's own scripted agent, as it plays them; takes seconds, in a JVM of its own."""
        return self._retry(lambda: self._aside.gold(game))

    def games(self) -> list[str]:
        """Tasks with the variations of each split, as the simulator lists them."""
        return self._retry(self._slots[0].games)

    def jvms(self) -> list[Jvm]:
        """Those that run now."""
        return [slot.jvm for slot in (*self._slots, self._aside) if slot.jvm is not None]

    def live(self) -> int:
        """Simulators in all JVMs."""
        return sum(map(len, self._slots))

    def close(self) -> None:
        """End all JVMs."""
        for slot in (*self._slots, self._aside):
            with slot.lock:
                slot.end()

    def _at_home(self, episode: Episode, call: Callable[[_Slot], T]) -> T:
        def attempt() -> T:
            if episode.home is None or episode.id not in episode.home:
                episode.home = self._place(episode)
            try:
                return call(episode.home)
            finally:
                episode.home.coming.discard(episode.id)

        return self._retry(attempt)

    def _crowded(self) -> None:
        """Count a busy episode that is let go, and say once why everything is slow.

        A few do not count: who is dropped and who comes in its stead may meet in the door.
        """
        now = time.monotonic()
        self._let_go.append(now)
        often = len(self._let_go) == self._let_go.maxlen and now - self._let_go[0] < _OFTEN_S
        if often and not self._said:
            self._said = True
            logger.warning(
                "more than %d ScienceWorld episodes are played at a time: each of those beyond is played again from "
                "its log at every turn; play fewer (rollout.concurrency, eval.concurrency), or serve with more jvms",
                self._let_go.maxlen,
            )

    def _place(self, episode: Episode) -> _Slot:
        """The slot with the fewest episodes, counted with those on their way in, and without those on their way out."""
        with self._placing:
            slot = min(self._slots, key=lambda slot: len(slot) + len(slot.coming) - len(slot.leaving))
            slot.coming.add(episode.id)
        return slot

    @staticmethod
    def _retry(call: Callable[[], T]) -> T:
        """Once more when a JVM has died under it; what hangs would hang again."""
        for left in reversed(range(_TRIES)):
            try:
                return call()
            except JvmHung as error:
                raise EnvironmentFailed("the simulator hangs on this action") from error
            except JvmDied as error:
                if not left:
                    raise EnvironmentFailed(f"{_TRIES} JVMs ended, one after the other") from error
        raise AssertionError


class _Seat(NamedTuple):
    """One live simulator, as its slot sees it."""

    used: float
    deeds: int


class _Slot:
    """A place for one JVM. Its lock is held for every exchange with it."""

    def __init__(self, limits: PoolLimits, on_crowded: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.jvm: Jvm | None = None
        self.coming: set[str] = set()
        """Episodes that are to live here and have not been brought in yet: many may start at once."""
        self.leaving: set[str] = set()
        """Episodes that live here and wait to be dropped: their places are free."""
        self._limits = limits
        self._on_crowded = on_crowded
        self._live: OrderedDict[str, _Seat] = OrderedDict()
        """By episode, the longest unused first."""

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, episode: str) -> bool:
        return episode in self._live

    def do(self, episode: Episode, deed: str) -> Told:
        with self.lock, self._sound(episode):
            if episode.deeds:
                self._bring(episode)
                reply = self._call([deed[:4], episode.id, deed[4:]])
            else:
                reply = self._load(episode, [deed])
            self._seat(episode, len(episode.deeds) + 1)
            return _told(reply)

    def ask(self, what: str, episode: Episode, *more: str) -> list[str]:
        with self.lock, self._sound(episode):
            self._bring(episode)
            return self._call([what, episode.id, *more])[1:]

    def gold(self, game: Game) -> list[str]:
        with self.lock:
            self._ready()
            return self._call(["gold", game.task, str(game.variation), game.simplifications], _GOLD_S)[1:]

    def games(self) -> list[str]:
        with self.lock:
            self._ready()
            return self._call(["games"], _GOLD_S)[1:]

    def drop(self, episode: Episode) -> None:
        if episode.id not in self._live:
            return
        self.leaving.add(episode.id)
        with self.lock:
            self.leaving.discard(episode.id)
            if self._live.pop(episode.id, None) is not None:
                self._try_drop(episode.id)

    def end(self) -> None:
        self._live.clear()
        if self.jvm is not None:
            self.jvm.close()
            self.jvm = None

    @contextlib.contextmanager
    def _sound(self, episode: Episode) -> Iterator[None]:
        """What failed in the middle has left a simulator in a state that no log describes: it must not be met again."""
        try:
            yield
        except (EnvironmentFailed, ReplayDiverged):
            if self._live.pop(episode.id, None) is not None:
                self._try_drop(episode.id)
            raise

    def _bring(self, episode: Episode) -> None:
        if episode.id not in self._live:
            self._load(episode, episode.deeds)

    def _ready(self) -> Jvm:
        if self.jvm is not None and self.jvm.rss_mb() > self._limits.rss_mb:
            self.end()
        if self.jvm is None:
            self.jvm = Jvm(self._limits.heap_mb)
        return self.jvm

    def _load(self, episode: Episode, deeds: list[str]) -> list[str]:
        """Bring an episode in, after these deeds."""
        self._ready()
        while len(self._live) >= self._limits.live:
            victim = self._victim()
            del self._live[victim]
            self._try_drop(victim)
        game = episode.game
        reply = self._call(
            ["load", episode.id, game.task, str(game.variation), game.simplifications, *deeds], _MORE_S * len(deeds)
        )
        self._seat(episode, len(deeds))
        if episode.last is not None and _told(reply).trail != episode.last.trail:
            raise ReplayDiverged(f"{game.task}/{game.variation} did not come back as it was")
        return reply

    def _seat(self, episode: Episode, deeds: int) -> None:
        self.coming.discard(episode.id)
        self._live[episode.id] = _Seat(time.monotonic(), deeds)
        self._live.move_to_end(episode.id)

    def _victim(self) -> str:
        """Who is let go: whoever leaves anyway, is idle, is cheapest to bring back, or acted last, in this order.

        When more episodes than fit act in turn, the longest unused is the next to act: to let that one go would bring
        every episode back at every turn.
        """
        leaving = next((episode for episode in self._live if episode in self.leaving), None)
        if leaving is not None:
            return leaving
        oldest, seat = next(iter(self._live.items()))
        if time.monotonic() - seat.used > _IDLE_S:
            return oldest
        self._on_crowded()
        return min(reversed(self._live), key=lambda episode: self._live[episode].deeds)

    def _try_drop(self, episode: str) -> None:
        with contextlib.suppress(JvmDied):  # then it is gone as well
            self._call(["drop", episode])

    def _call(self, request: list[str], more_s: float = 0.0) -> list[str]:
        if self.jvm is None:
            raise JvmDied("the JVM has ended")
        try:
            reply = self.jvm.call(request, self._limits.call_s + more_s)
        except BaseException:
            self.end()
            raise
        if reply[0] == "refused":
            raise InvalidInit(reply[1])
        if reply[0] == "failed":
            raise EnvironmentFailed(f"the simulator failed: {reply[1][:300]}")
        return reply


def _told(reply: list[str]) -> Told:
    _, text, score, over, moves, key, trail, error, task = reply
    points = round(100 * float(score))
    return Told(text, points, over == "true" or points < 0, int(moves), key, trail, error, task)
