"""TextCraft as an environment: one episode crafts one item. Its state is an inventory, so a snapshot is a few bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from sojourn.envs.base import Env, EnvConfig, EnvService, pack_state, unpack_state
from sojourn.envs.textcraft.episode import Episode, load, save, start
from sojourn.envs.textcraft.init import TextCraftInit, TextCraftInject, find_item, parse_init, parse_inject
from sojourn.envs.textcraft.recipes import to_id, to_name
from sojourn.envs.textcraft.rules import MAX_GET, apply
from sojourn.envs.textcraft.tasks import FAMILIES, NAME, TextCraftTasks, published_tasks, split_table
from sojourn.envs.textcraft.views import VIEWS, Kind, Reply
from sojourn.protocol.env import EnvSpec, Info, Observation, Snapshot, Solution, StepResult, TaskRef
from sojourn.protocol.errors import Conflict, InvalidInit, NotSupported, UsageError

VERSION = "1"
LISTED_PER_RECIPE = 8
"""Most actions that one recipe contributes to the list of available ones."""


class TextCraftEnv(Env):
    """One episode. Making the goal ends it with reward 1, once; there is no cap of its own."""

    def __init__(self, tasks: TextCraftTasks, view: str | None = None) -> None:
        if view is not None and view not in VIEWS:
            raise UsageError(f"no view {view!r} (known: {', '.join(VIEWS)})")
        self._tasks = tasks
        self._view = VIEWS[view or next(iter(VIEWS))]
        self._current: Episode | None = None

    async def reset(self, task: TaskRef, *, seed: int | None = None, init: dict[str, Any] | None = None) -> Observation:
        self._current = start(self._tasks, task, seed, parse_init(init))
        return self._observe(self._current)

    async def step(self, action: str) -> StepResult:
        episode = self._episode()
        if episode.ended:
            episode.reply = Reply(Kind.OVER)
            return self._result(episode, 0.0)
        strict = self._view.strict
        try:
            action.encode()
        except UnicodeEncodeError:  # lone surrogates, which no snapshot or reply could carry
            action = action.encode(errors="replace").decode()
        reply = apply(episode.world.book, episode.inventory, action.strip() if strict else action, strict=strict)
        episode.reply = reply
        made = reply.kind is Kind.CRAFTED or reply.kind is Kind.GOT
        episode.ended = made and to_id(reply.text) == episode.goal
        return self._result(episode, float(episode.ended))

    async def available_actions(self) -> list[str] | None:
        """What the recipes on show suggest and the world would take now."""
        episode = self._episode()
        if episode.ended:
            return []
        return list(dict.fromkeys(["inventory", *_gets(episode), *_crafts(episode)]))

    async def inject(self, change: dict[str, Any]) -> Observation:
        episode = self._episode()
        inventory = dict(episode.inventory)
        for name, delta in parse_inject(change).items.items():
            item = find_item(episode.world, name, "items")
            total = inventory.get(item, 0) + delta
            if not 0 <= total <= MAX_GET:
                raise InvalidInit(f"items: {to_name(item)!r} would become {total} (0 to {MAX_GET} are possible)")
            inventory[item] = total
        episode.inventory = {item: count for item, count in inventory.items() if count}
        episode.reply = Reply(Kind.INVENTORY)
        return self._observe(episode)

    async def solve(self) -> Solution:
        """Moves from the present inventory to the goal; in a world of 64-bit counts some would never end."""
        episode = self._episode()
        if episode.ended:
            return Solution([], [])
        try:
            moves = list(episode.world.planner.plan(episode.goal, episode.inventory))
        except OverflowError as error:
            raise NotSupported(f"the scripted solution takes {error}") from error
        return Solution([move.action for move in moves], [move.thought for move in moves])

    async def snapshot(self) -> Snapshot:
        return pack_state(NAME, VERSION, "state", save(self._episode()))

    async def restore(self, snapshot: Snapshot) -> Observation:
        episode = load(self._tasks, unpack_state(snapshot, NAME, VERSION, "state"))
        if self._view.strict:  # `get 0` leaves empty entries, which only the reference's rules know
            episode.inventory = {item: count for item, count in episode.inventory.items() if count}
        self._current = episode
        return self._observe(episode)

    def _episode(self) -> Episode:
        if self._current is None:
            raise Conflict("the episode has not been reset")
        return self._current

    def _observe(self, episode: Episode) -> Observation:
        return Observation(self._text(episode), self._info(episode))

    def _result(self, episode: Episode, reward: float) -> StepResult:
        info = self._info(episode)
        if episode.reply.kind.is_refusal:
            info["invalid"] = True
        return StepResult(self._text(episode), reward, episode.ended, False, info)

    def _text(self, episode: Episode) -> str:
        if episode.reply.kind is Kind.START:
            return self._view.opening([recipe.line for recipe in episode.shown], to_name(episode.goal))
        return self._view.reply(episode.reply, episode.inventory, episode.world.book)

    def _info(self, episode: Episode) -> Info:
        names = episode.world.book.names
        held = {names[item]: count for item, count in episode.inventory.items()}
        return {
            "score": float(episode.ended),
            "success": episode.ended,
            "state_key": episode.state_key,
            "view": {"goal": names[episode.goal], "inventory": held},
        }


def _gets(episode: Episode) -> Iterator[str]:
    """The raw ingredients of the recipes on show, in the counts that they ask for."""
    book = episode.world.book
    for recipe in episode.shown:
        for slot in recipe.ingredients:
            if book.is_raw(slot.id) and episode.inventory.get(slot.id, 0) + slot.count <= MAX_GET:
                yield f"get {slot.count} {book.names[slot.id]}"


def _crafts(episode: Episode) -> Iterator[str]:
    """The recipes on show that the inventory allows, with each choice of a tag's members."""
    book, held = episode.world.book, episode.inventory
    for recipe in episode.shown:
        choices = [
            [m for m in (book.members[slot.id] if slot.is_tag else (slot.id,)) if held.get(m, 0) >= slot.count]
            for slot in recipe.ingredients
        ]
        for chosen in itertools.islice(itertools.product(*choices), LISTED_PER_RECIPE):
            if len(set(chosen)) == len(chosen):
                what = ", ".join(
                    f"{slot.count} {book.names[m]}" for m, slot in zip(chosen, recipe.ingredients, strict=True)
                )
                yield f"craft {recipe.count} {book.names[recipe.output]} using {what}"


class TextCraftService(EnvService):
    """Crafting tasks over Minecraft's recipes, which all episodes share."""

    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        self.spec = EnvSpec(
            name=NAME,
            version=VERSION,
            snapshot="state",
            execution="inline",
            views=tuple(VIEWS),
            action_help={name: view.help for name, view in VIEWS.items()},
            default_horizon=30,
            init_schema=TextCraftInit.model_json_schema(),
            inject_schema=TextCraftInject.model_json_schema(),
            splits={split: len(items) for split, items in split_table().items()},
            families=FAMILIES,
        )

    async def open(self) -> None:
        """Read the recipes, so that the first episode need not."""
        published_tasks()

    def tasks(self) -> TextCraftTasks:
        return published_tasks()

    def create(self, view: str | None = None) -> TextCraftEnv:
        return TextCraftEnv(self.tasks(), view)
