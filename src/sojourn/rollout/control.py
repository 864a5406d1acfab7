"""Control tokens: what gives a rendered conversation its structure, and what no message may contain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_GUARD = "\U000f0000"
"""Private-use character that stands before the number of a control token written in a message."""


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
        self._number = {text: n for n, text in enumerate([_GUARD, *self.texts])}
        self._guarded = re.compile(f"{_GUARD}(.)", re.DOTALL)

    def guard(self, content: str, *, said: bool) -> str:
        """Hide the control tokens written in a content behind private-use characters, so that the template passes them.

        What the policy said keeps tokens that are not special, such as `<think>`: templates look for them.
        """
        pattern = self._said if said else self._seen
        return pattern.sub(lambda m: _GUARD + chr(0xF1000 + self._number[m[0]]), content)

    def match(self, text: str) -> int | None:
        """The id of the control token that `text` starts with."""
        found = self._any.match(text)
        return self._added[found[0]][0] if found else None

    def split(self, text: str) -> list[int | str]:
        """Cut template text into control tokens (as ids) and plain runs, guarded contents shown again."""
        pieces: list[int | str] = []
        position = 0
        for found in self._any.finditer(text):
            self._run(pieces, text[position : found.start()])
            token = self._added[found[0]][1]
            if token.lstrip and pieces and isinstance(pieces[-1], str):
                pieces[-1] = pieces[-1].rstrip()
            pieces.append(self._added[found[0]][0])
            position = found.end()
            if token.rstrip:
                position += len(text[position:]) - len(text[position:].lstrip())
        self._run(pieces, text[position:])
        return pieces

    def _run(self, pieces: list[int | str], run: str) -> None:
        if run:
            known = [_GUARD, *self.texts]
            pieces.append(self._guarded.sub(lambda m: known[ord(m[1]) - 0xF1000], run))

    def encode(self, pieces: Sequence[int | str]) -> list[int]:
        """Ids of pieces; neighbouring runs are encoded as one, special tokens inside them as the text they are."""
        ids: list[int] = []
        run = ""
        for piece in pieces:
            if isinstance(piece, str):
                run += piece
                continue
            ids += self._literal(run)
            ids.append(piece)
            run = ""
        return ids + self._literal(run)

    def _literal(self, run: str) -> list[int]:
        """Encode text in which nothing is a control token.

        Some tokenizers give one even so (their model has it as a piece): its text is then cut after one character.
        """
        ids: list[int] = []
        start = 0
        for found in self._leaky.finditer(run):
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
