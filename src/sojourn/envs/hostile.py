"""Actions that nobody would want and any model may write: long, unprintable, in other scripts, with absurd numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence

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
