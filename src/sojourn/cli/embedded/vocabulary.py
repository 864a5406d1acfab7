"""The embedded policy's vocabulary: what is one token in the compact views of TextCraft and BabyAI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sojourn.envs.textcraft.minecraft import minecraft_book

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
_REACT = ("Thought:", "Action:", "\nAction:")
_CRAFT = ("craft", " craft", "\ncraft", " using", "\ngoal:", " goal:", " get", " got", " crafted", " inventory")
_CRAFT_REPLIES = (" inventory:", " empty", " not found", " not enough", " no recipe", " wrong count", " wrong format")
_VIEW = (" view:", " no objects", " wall", " carrying", " done", " actions:", " unknown action")
_EVENTS = (" invalid", " not possible", " no path", " locked", " no change")
_MOVES = (" turn left", " turn right", " move forward", " drop", " toggle", " go to", " pickup", " pick up")
_DOORS = (" go through", " toggle and go through", " go to goal", " check available actions")
_MISSION = "the a and or go to pick up open put next ball box key door in front of you behind on your left right"
_PHRASES = (" pick up the", " go to the", " go to a", " put the", " open the")


def pieces() -> list[str]:
    """Names of things, verbs with their particles, numbers, phrases of the views; most with their leading space."""
    names = [f" {name}" for name in minecraft_book().names.values()]
    numbers = [f" {n}" for n in range(100)]
    things = [f" {c} {t}" for c in COLOURS for t in ("ball", "box", "key", "door")]
    doors = [f" {c} {state} door" for c in COLOURS for state in ("open", "closed", "locked")]
    places = [f" {n} front" for n in range(8)] + [f" {n} {side}" for n in range(1, 8) for side in ("left", "right")]
    words = [f" {word}" for word in (*_MISSION.split(), *COLOURS)]
    return [
        *(*_REACT, *_CRAFT, *_CRAFT_REPLIES, *numbers, *names, *things, *doors, *places),
        *(*_VIEW, *_EVENTS, *_MOVES, *_DOORS, *words, *_PHRASES),
    ]


def exchangeable(tokenizer: PreTrainedTokenizerFast) -> list[list[int]]:
    """Classes of TextCraft items whose tokens may be exchanged in a whole episode without making it wrong.

    Two items are of one class when the same tags stand for them: recipes are in the prompt, membership is not.
    """
    book = minecraft_book()
    tags: dict[str, list[str]] = {item: [] for item in sorted(book.items) if item not in book.members}
    for tag, members in sorted(book.members.items()):
        for member in members:
            if member in tags:
                tags[member].append(tag)
    classes: dict[tuple[str, ...], list[int]] = {}
    for item, known_as in tags.items():
        [token] = tokenizer.encode(f" {book.names[item]}", add_special_tokens=False)
        classes.setdefault(tuple(known_as), []).append(token)
    return [tokens for tokens in classes.values() if len(tokens) > 1]
