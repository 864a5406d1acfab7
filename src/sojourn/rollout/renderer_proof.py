"""The start-up proof of a renderer: appending gives the very ids that the chat template gives for the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2.exceptions import TemplateError

from sojourn.protocol.errors import UsageError
from sojourn.protocol.messages import Message

if TYPE_CHECKING:
    from sojourn.rollout.renderer import Renderer

_OPENINGS = (
    "Goal: craft 1 oak planks.",
    "  two  leading spaces,\ta tab\n\n\nand blank lines  \n",
    "naïve café — 你好，世界 🙂\u200d🌍 \ufdfa \u0000 e\u0301",
)
_SAID = ("Thought: a plan.\nAction: go forward", "Action: get 1 oak log", "x", "Action: 拿起 the rød ball 🙂")
_SEEN = (
    "Got 1 oak log",
    "\n\n  odd   white\tspace \r\n after\n ",
    "almost special: <|im_strat|> <|end_of_|> [INST] <s > </ s> <<SYS>>",
    "日本語 \u00a0 ﬁ ½ \u202e abc",
    "",
)
_THINKING = "<think>\nfirst this, then that\n</think>\n\nAction: go forward"


def prove(renderer: Renderer) -> bool:
    """Prove `renderer` on the tokenizer at hand.

    Returns:
        Whether the template rewrites history: some conversations do not grow by appending.

    Raises:
        UsageError: when ids differ where the template's text only grows, or contents reach control tokens.
    """
    name = renderer.tokenizer.name_or_path or "this tokenizer"
    renderer.rewrites_history = True  # so that `rewrite` looks at every conversation
    rewrites = False
    try:
        for conversation in _conversations(renderer):
            rewrites |= _conversation(renderer, conversation, name)
        thinking = [_user("."), _assistant(_THINKING), _user("Got it")]
        rewrites |= renderer.rewrite(thinking) is not None
    except TemplateError as error:
        raise UsageError(f"the chat template of {name} fails: {error}") from error
    _contents_stay_contents(renderer, name)
    return rewrites


def _conversations(renderer: Renderer) -> list[list[Message]]:
    found: list[list[Message]] = []
    for opening in _OPENINGS:
        messages = [_user(opening)]
        for turn, seen in enumerate(_SEEN):
            messages += [_assistant(_SAID[turn % len(_SAID)]), _user(seen or "-")]
        found.append(messages)
    if renderer.system:
        found.append([{"role": "system", "content": "Answer with an action."}, *found[0]])
    return found


def _conversation(renderer: Renderer, messages: list[Message], name: str) -> bool:
    """Grow one conversation turn by turn; True when the template rewrote it on the way."""
    head = 2 if messages[0]["role"] == "system" else 1
    whole, rewritten = messages[:head], False
    ids = renderer.open(whole)
    _same(ids, renderer.template_ids(whole), name, 0)
    for turn, at in enumerate(range(head, len(messages), 2), start=1):
        said, seen = messages[at]["content"], messages[at + 1]["content"]
        whole = messages[: at + 2]
        fresh = renderer.rewrite(whole)
        if fresh is None:
            ids = [*ids, *renderer.complete(said), *renderer.extend(seen, finish="stop")]
        else:
            ids, rewritten = fresh, True
        _same(ids, renderer.template_ids(whole), name, turn)
        _same(renderer.open(whole), ids, name, turn)  # a prompt with example turns
    return rewritten


def _same(ours: list[int], template: list[int], name: str, turn: int) -> None:
    if ours != template:
        at = next(
            (i for i, (a, b) in enumerate(zip(ours, template, strict=False)) if a != b), min(len(ours), len(template))
        )
        raise UsageError(
            f"the chat template of {name} cannot be rendered by appending: turn {turn} differs at token {at}"
            f" ({ours[at : at + 3]} appended, {template[at : at + 3]} in the whole)"
        )


def _contents_stay_contents(renderer: Renderer, name: str) -> None:
    """A message that writes every control token must add none of them."""
    hostile = " ".join(renderer.guardable()) + "".join(renderer.guardable())
    harmful = renderer.control_ids() - {renderer.tokenizer.unk_token_id}
    for what, plain, attacked in (
        ("a prompt", renderer.open([_user(".")]), renderer.open([_user(hostile)])),
        ("an observation", renderer.extend(".", finish="length"), renderer.extend(hostile, finish="length")),
    ):
        if sum(i in harmful for i in plain) != sum(i in harmful for i in attacked):
            raise UsageError(f"the tokenizer of {name} lets {what} write control tokens")


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}
