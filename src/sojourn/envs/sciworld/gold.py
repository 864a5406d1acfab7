"""Gold paths: how the simulator's own scripted agent does each task.

A path is worked out by a simulator when it is first asked for (half a second as a rule, eight for Mendelian genetics),
played to see that it succeeds, and kept in `$SOJOURN_HOME/sciworld` (else `~/.cache/sojourn/sciworld`).

`python -m sojourn.envs.sciworld --split test` fills that folder beforehand.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from pathlib import Path

import orjson

from sojourn.envs.sciworld.java import RELEASE
from sojourn.envs.sciworld.pool import Episode, Game, Pool
from sojourn.files import write_whole

logger = logging.getLogger("sojourn.envs.sciworld")
_KEPT = 512


class GoldPaths:
    """Paths by game. For any number of threads."""

    def __init__(self, pool: Pool, folder: Path | None = None) -> None:
        self._pool = pool
        self._folder = folder or default_folder()
        self._known: OrderedDict[Game, list[str] | None] = OrderedDict()
        self._lock = threading.Lock()

    def path(self, game: Game) -> list[str] | None:
        """Actions that lead from a fresh episode to success, the last one; None when the scripted agent fails."""
        with self._lock:
            if game in self._known:
                return self._known[game]
        path = self._recall(game)
        with self._lock:
            self._known[game] = path
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return path

    def rest(self, episode: Episode) -> list[str] | None:
        """Actions that lead from an episode as it is to success; None when the path does not lead there from here."""
        path = self.path(episode.game)
        if path is None:
            return None
        past = [deed.removeprefix("act ") for deed in episode.deeds[1:]]
        if past == path[: len(past)]:
            return path[len(past) :]
        done = 0
        for action in past:
            done += done < len(path) and action == path[done]
        for start in dict.fromkeys((done, 0)):
            if (rest := self._succeeds(episode.again(), path[start:])) is not None:
                return rest
        return None

    def _recall(self, game: Game) -> list[str] | None:
        file = (
            self._folder / RELEASE / game.task / f"{game.variation}{game.simplifications and '-'}{game.simplifications}"
        )
        try:
            found = orjson.loads(file.read_bytes())
            if found is None or (isinstance(found, list) and all(isinstance(action, str) for action in found)):
                return found
        except (OSError, orjson.JSONDecodeError):
            logger.debug("no gold path in %s", file)
        path = self._succeeds(self._pool.start(game), self._pool.gold(game))
        self._keep(file, path)
        return path

    def _succeeds(self, episode: Episode, actions: list[str]) -> list[str] | None:
        """The actions up to the one that brings success, tried out on an episode that is then let go."""
        try:
            for i, action in enumerate(actions):
                told = self._pool.do(episode, f"act {action}")
                if told.over or told.error:
                    return actions[: i + 1] if told.points >= 100 else None
            return None
        finally:
            self._pool.drop(episode)

    def _keep(self, file: Path, path: list[str] | None) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, orjson.dumps(path))
        except OSError as error:
            logger.warning("cannot keep a gold path in %s: %s", file, error)


def default_folder() -> Path:
    """Where paths are kept."""
    home = os.environ.get("SOJOURN_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".cache" / "sojourn") / "sciworld"
