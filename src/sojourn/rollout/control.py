"""Control tokens: what gives a rendered conversation its structure, and what no message may contain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_GUARD, _FIRST = "\U000f0000", 0xF1000
"""Private-use characters: one that says that a number follows, and the one that stands for number 0."""
_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""White space as tokenizers know it (Unicode's White_Space), which is less than `str.strip` takes."""


class ControlTokens:
    """The tokens by which a template gives structure, and the encoding that keeps contents free of them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        template = str(tokenizer.get_chat_template())
        self._tokenizer = tokenizer
        self._added = {
            token.content: (int(i), token)
            for i, token in tokenizer.added_tokens_decoder.items()
            if token.content.strip() and (token.special or token.content in template)
        }
        self.texts = sorted(self._added, key=lambda t: (-len(t), t))
        self.ids = frozenset(i for i, _ in self._added.values())
        unknown = tokenizer.unk_token_id
        special = [t for t in self.texts if self._added[t][1].special]
        self._any = _alternatives(self.texts)
        self._seen = _alternatives([_GUARD, *self.texts])
        self._said = _alternatives([_GUARD, *special])
        self._leaky = _alternatives([t for t in self.texts if self.ids.intersection(self._encode(t)) - {unknown}])
        self._known = [_GUARD, *self.texts]
        self._number = {text: n for n, text in enumerate(self._known)}
        self._guarded = re.compile(f"{_GUARD}(.)", re.DOTALL)

    def guard(self, content: str, *, said: bool) -> str:
        """Hide the control tokens written in a content behind private-use characters, so that the template passes them.

        What the policy said keeps tokens that are not special, such as `<think>`: templates look for them.
        """
        pattern = self._said if said else self._seen
        return pattern.sub(lambda m: _GUARD + chr(_FIRST + self._number[m[0]]), content)

    def match(self, text: str) -> int | None:
        """The id of the control token that `text` starts with."""
        found = self._any.match(text)
        return self._added[found[0]][0] if found else None

    def encode(self, text: str) -> list[int]:
        """Ids of guarded text: control tokens as themselves, all between them as the plain text it is."""
        ids: list[int] = []
        position = 0
        for found in self._any.finditer(text):
            number, token = self._added[found[0]]
            run = text[position : found.start()]
            ids += self._literal(self._shown(run.rstrip(_SPACE) if token.lstrip else run))
            ids.append(number)
            position = len(text) - len(text[found.end() :].lstrip(_SPACE)) if token.rstrip else found.end()
        return ids + self._literal(self._shown(text[position:]))

    def _shown(self, run: str) -> str:
        """A run with what was guarded in it."""
        return self._guarded.sub(lambda m: self._known[ord(m[1]) - _FIRST], run) if _GUARD in run else run

    def _literal(self, run: str) -> list[int]:
        """Encode text in which nothing is a control token.

        Some tokenizers give one even so (their model has it as a piece): its text is then cut after one character.
        """
        ids: list[int] = []
        start = 0
        while found := self._leaky.search(run, start):
            ids += self._encode(run[start : found.start() + 1])
            start = found.start() + 1
        return ids + self._encode(run[start:])

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids: Any = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return list(ids)


def _alternatives(texts: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)) if texts else r"(?!)")
