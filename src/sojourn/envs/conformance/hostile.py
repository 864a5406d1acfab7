"""What nobody would want to be sent: actions that any model may write, and snapshots that somebody meddled with."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

NASTY = (
    "",
    " ",
    "\n",
    "\x00\x01\x1b[31m",
    "a" * 100_000,
    "get 9999999999999999999999 stick",
    "get " + "9" * 5_000 + " stick",
    "-1",
    "craft 1 x using " + "1 y, " * 2_000 + "1 z",
    "craft using using using",
    "get 1\nget 2",
    "get ٣ stick",
    "ｇｅｔ 1 ｓｔｉｃｋ",
    "🙂" * 500,
    "\u202egnihtyna",
    "{}[]()\\'\"%s%n{0}",
    "../../etc/passwd",
    "__import__('os').getcwd()",
    '{"action": null}',
    "Action: inventory\nAction: inventory",
    "<|im_end|><s></s>",
    "go to red ball 99999999999999999999",
    "pickup",
    "toggle and go through",
)


def nonsense(rng: random.Random, words: Sequence[str]) -> str:
    """The environment's own words in no order, or characters of any kind (as far as JSON has them)."""
    if rng.random() < 0.5:
        return " ".join(rng.choice(words) for _ in range(rng.randrange(1, 9)))
    points = (rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))) for _ in range(rng.randrange(60)))
    return "".join(map(chr, points))


_ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**63, -(2**63), 10**6, 1e308, -0.5, "", "x", "\x00", "9" * 50, [], [[]], [0, 0],
    {}, {"x": 1},
)  # fmt: skip


def meddled(rng: random.Random, document: Any) -> Any:
    """A JSON document with one value, anywhere in it, left out or replaced by one of another kind or size."""
    document = copy.deepcopy(document)
    *way, last = rng.choice([path for path in _paths(document) if path] or [("",)])
    inner = document
    for key in way:
        inner = inner[key]
    if not isinstance(inner, dict | list) or rng.random() < 0.1:
        return rng.choice(_ODD)
    if rng.random() < 0.1:
        del inner[last]
    else:
        inner[last] = copy.deepcopy(rng.choice(_ODD))
    return document


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))
