"""Messages to token ids, exactly once: a conversation only ever grows, and what was sampled is never encoded again.

`open` writes the prompt; `extend` gives the ids that follow a completion. What they give is proven at construction, on
the tokenizer at hand, to be what its chat template would have written for the whole conversation. A template that
rewrites history (strips thinking) is detected; `rewrite` then says when appending no longer holds.
Nothing inside a message can become a control token: contents are encoded with special tokens split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError

from sojourn.protocol.errors import UsageError
from sojourn.protocol.messages import Finish, Message
from sojourn.rollout import renderer_proof
from sojourn.rollout.control import ControlTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
        self._control = ControlTokens(tokenizer)
        try:
            self.system = system and self._takes_system()
            self._gap, self._before, self._after = self._difference()
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
            ids = self._ids(self._before + self._control.guard(content, said=False) + self._after)
        sampled = finish == "stop" and last in (None, self.end_id)
        return ids[1:] if sampled else ids

    def complete(self, text: str) -> list[int]:
        """The completion that the template itself would have written for `text`: its ids and the end of turn."""
        return [*self._ids(self._gap + self._control.guard(text, said=True)), self.end_id]

    def rewrite(self, messages: Sequence[Message], *, opening: int | None = None) -> list[int] | None:
        """The prompt of a conversation whose earlier turns would now be written differently, None when appending holds.

        White space at the ends of what the policy said is not looked at: the sampled tokens stay.

        Args:
            messages: the last is the user message that answers the last completion.
            opening: how many of them were there before the first completion, which a window always keeps; None: a
                system message, if there is one, and the first of the user's.
        """
        if not self.rewrites_history:
            return None
        now = self._text(self._windowed(messages, opening))
        before = self._text(self._windowed(messages[:-2], opening))
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

    def _windowed(self, messages: Sequence[Message], opening: int | None) -> Sequence[Message]:
        """The opening and the last `window` exchanges."""
        if self.window is None:
            return messages
        opening = opening or (2 if messages[0]["role"] == "system" else 1)
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
        return self._control.encode(text)

    def _takes_system(self) -> bool:
        messages = [{"role": "system", "content": _SAID}, _user(_SEEN)]
        try:
            text = self.template_text(messages)
        except TemplateError:
            return False
        return text.count(_SAID) == 1 and text.count(_SEEN) == 1

    def _difference(self) -> tuple[str, str, str]:
        """The template's text around what follows a generation prompt.

        Returns:
            White space before a completion (some write a space there, as part of what is said); the text before and
            the text after the content of the user message that follows the completion.
        """
        text = self.template_text([_user("."), _assistant(_SAID), _user(_SEEN)])
        if text.count(_SAID) != 1 or text.count(_SEEN) != 1 or text.index(_SAID) > text.index(_SEEN):
            raise UsageError(
                f"the chat template of {name_of(self.tokenizer)} does not write each message once, in order"
            )
        head, _, tail = text.partition(_SAID)
        gap = head.removeprefix(self.template_text([_user(".")]))
        before, _, after = tail.partition(_SEEN)
        return "" if gap.strip() else gap, before, after

    def _content_rule(self) -> str | None:
        """How contents pass through the template: `verbatim`, `stripped`, or None (ask the template each time)."""
        content = f" \n{_SEEN} \t{_SEEN}\n\n"
        text = self.template_text([_user("."), _assistant(_SAID), _user(content)]).partition(_SAID)[2]
        for rule, kept in (("verbatim", content), ("stripped", content.strip())):
            if text == self._before + kept + self._after:
                return rule
        return None


def name_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """What to call a tokenizer in a message to the user."""
    return repr(tokenizer.name_or_path) if tokenizer.name_or_path else "this tokenizer"


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """The conversation with its system message put before the first user content."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    first = messages[1]
    return [_user(f"{messages[0]['content']}\n\n{first['content']}"), *messages[2:]]


def _dense(text: str) -> str:
    return "".join(text.split())


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}
