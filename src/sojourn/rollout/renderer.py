"""Messages to token ids, exactly once: a conversation only ever grows, and what was sampled is never encoded again.

`open` writes the prompt; `extend` gives the ids that follow a completion. What they give is proven at construction, on
the tokenizer at hand, to be what its chat template would have written for the whole conversation. A template that
rewrites history (strips thinking) is detected; `rewrite` then says when appending no longer holds.
Nothing inside a message can become a control token: contents are encoded with special tokens split.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError

from sojourn.protocol.errors import UsageError
from sojourn.protocol.messages import Finish, Message
from sojourn.rollout import renderer_proof

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_GUARD = "\U000f0000"
"""Private-use character that stands before the number of a control token written in a message."""
_SAID, _SEEN = "\U000fff00", "\U000fff01"
"""Placeholder contents of an assistant and a user message, by which templates are differenced."""


class Renderer:
    """Token-exact rendering over any tokenizer with a chat template.

    Args:
        tokenizer: from `transformers`, with a chat template.
        system: False folds a system message into the first user message, as do templates that take none.
        window: turns of history kept beside the opening message; None keeps all. A bounded window rewrites history.
        template_options: further variables of the template, such as `enable_thinking`.

    Raises:
        UsageError: when there is no template, or when it cannot be proven that its conversations grow by appending.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        system: bool = True,
        window: int | None = None,
        template_options: dict[str, Any] | None = None,
    ) -> None:
        if window is not None and window < 1:
            raise UsageError(f"a window of {window} turns keeps no history: give at least 1, or none at all")
        if not tokenizer.chat_template:
            raise UsageError(f"{name_of(tokenizer)} has no chat template: choose an instruct model, or set one")
        self.tokenizer = tokenizer
        self.window: int | None = None
        self._options = template_options or {}
        self._control = _Control(tokenizer)
        try:
            self.system = system and self._takes_system()
            self._before, self._after = self._difference()
            self._keeps = self._content_rule()
        except TemplateError as error:
            raise UsageError(f"the chat template of {name_of(tokenizer)} fails: {error}") from error
        end = self._control.match(self._before)
        if end is None:
            raise UsageError(
                f"the chat template of {name_of(tokenizer)} does not close a turn with a special token"
                f" (it writes {self._before[:20]!r})"
            )
        self.end_id = end
        eos = tokenizer.eos_token_id
        self.stop_ids: tuple[int, ...] = (end,) if eos is None or eos == end else (end, int(eos))
        self.rewrites_history = False
        """Whether earlier turns may be written differently later; `rewrite` then decides turn by turn."""
        self.rewrites_history = renderer_proof.prove(self) or window is not None
        self.window = window

    def open(self, messages: Sequence[Message]) -> list[int]:
        """The whole prompt of a conversation, generation prompt included."""
        return self._ids(self._text(messages))

    def extend(self, observation: str, *, finish: Finish, last: int | None = None) -> list[int]:
        """The ids between a completion and the next one: end of turn, the observation, generation prompt.

        Args:
            observation: content of the user message.
            finish: how the completion ended; after "length" the end of turn comes first, which nobody sampled.
            last: the completion's last id, where it may be a stop token other than the end of turn.
        """
        if self._keeps is None:
            text = self._text([_user("."), _assistant(_SAID), _user(observation)]).partition(_SAID)[2]
            ids = self._ids(text)
        else:
            content = observation.strip() if self._keeps == "stripped" else observation
            before, after = self._control.split(self._before), self._control.split(self._after)
            ids = self._control.encode([*before, content, *after])
        sampled = finish == "stop" and last in (None, self.end_id)
        return ids[1:] if sampled else ids

    def complete(self, text: str) -> list[int]:
        """The canonical completion that says `text`: its ids and the end of turn."""
        return [*self._ids(self._control.guard(text, said=True)), self.end_id]

    def rewrite(self, messages: Sequence[Message]) -> list[int] | None:
        """The prompt of a conversation whose earlier turns would now be written differently, None when appending holds.

        `messages` ends with the user message that answers the last completion. White space at the ends of what the
        policy said is not looked at: the sampled tokens stay.
        """
        if not self.rewrites_history:
            return None
        now = self._text(self._windowed(messages))
        before = self._text(self._windowed(messages[:-2]))
        said = self._control.guard(messages[-2]["content"].strip(), said=True)
        added = self._text([_user("."), _assistant(_SAID), messages[-1]]).partition(_SAID)[2]
        if _dense(before + said + added) == _dense(now):
            return None
        return self._ids(now)

    def decode(self, ids: Sequence[int]) -> str:
        """What a completion says, without the stop token at its end."""
        said = list(ids)
        while said and said[-1] in self.stop_ids:
            said.pop()
        return str(self.tokenizer.decode(said, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _windowed(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The opening (system and first user message) and the last `window` exchanges."""
        if self.window is None:
            return messages
        opening = 2 if messages[0]["role"] == "system" else 1
        recent = messages[opening:][-2 * self.window :]
        return [*messages[:opening], *recent]

    def _text(self, messages: Sequence[Message]) -> str:
        """The template's text with contents guarded; control tokens in it are the template's own."""
        guarded = [
            {"role": m["role"], "content": self._control.guard(m["content"], said=m["role"] == "assistant")}
            for m in (messages if self.system else fold_system(messages))
        ]
        return self.template_text(guarded)

    def template_text(self, messages: Sequence[Any]) -> str:
        """What the chat template itself writes, generation prompt included."""
        return str(
            self.tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True, **self._options
            )
        )

    def template_ids(self, messages: Sequence[Any]) -> list[int]:
        """What `transformers` makes of the whole conversation: the judge of the proof."""
        ids: Any = self.tokenizer.apply_chat_template(
            list(messages), tokenize=True, return_dict=False, add_generation_prompt=True, **self._options
        )
        return [int(i) for i in ids]

    def control_ids(self) -> frozenset[int]:
        """Ids that no content may become."""
        return self._control.ids

    def guardable(self) -> list[str]:
        """The control tokens as text: what a hostile page would write."""
        return self._control.texts

    def _ids(self, text: str) -> list[int]:
        return self._control.encode(self._control.split(text))

    def _takes_system(self) -> bool:
        messages = [{"role": "system", "content": _SAID}, _user(_SEEN)]
        try:
            text = self.template_text(messages)
        except TemplateError:
            return False
        return text.count(_SAID) == 1 and text.count(_SEEN) == 1

    def _difference(self) -> tuple[str, str]:
        """The template's text before and after the content of a user message that follows a completion."""
        text = self.template_text([_user("."), _assistant(_SAID), _user(_SEEN)])
        if text.count(_SAID) != 1 or text.count(_SEEN) != 1 or text.index(_SAID) > text.index(_SEEN):
            raise UsageError(
                f"the chat template of {name_of(self.tokenizer)} does not write each message once, in order"
            )
        before, _, after = text.partition(_SAID)[2].partition(_SEEN)
        return before, after

    def _content_rule(self) -> str | None:
        """How contents pass through the template: `verbatim`, `stripped`, or None (ask the template each time)."""
        content = f" \n{_SEEN} \t{_SEEN}\n\n"
        text = self.template_text([_user("."), _assistant(_SAID), _user(content)]).partition(_SAID)[2]
        for rule, kept in (("verbatim", content), ("stripped", content.strip())):
            if text == self._before + kept + self._after:
                return rule
        return None


class _Control:
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


def name_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """What to call a tokenizer in a message to the user."""
    return repr(tokenizer.name_or_path) if tokenizer.name_or_path else "this tokenizer"


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """The conversation with its system message put before the first user content."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    first = messages[1]
    return [_user(f"{messages[0]['content']}\n\n{first['content']}"), *messages[2:]]


def _alternatives(texts: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)) if texts else r"(?!)")


def _dense(text: str) -> str:
    return "".join(text.split())


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}
