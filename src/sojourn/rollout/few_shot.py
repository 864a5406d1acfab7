"""Example turns before an episode: what a policy that was never trained on a world is shown of it.

They come from a file of conversations (the two forms of `rollout.conversations`), of which every one begins with what
the world says and ends with an answer. In a prompt they stand between the instructions, if there are any, and the first
observation: given text, never trained.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from sojourn.protocol.errors import UsageError
from sojourn.protocol.messages import Message
from sojourn.rollout.action_format import ActionFormat
from sojourn.rollout.conversations import Conversation, read_conversations


@dataclass(frozen=True, slots=True)
class Exchange:
    """One example turn."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    user: str
    """What the world says."""
    assistant: str
    """The answer, with its action."""


FewShot = tuple[Exchange, ...]


def read_few_shot(path: str | os.PathLike[str]) -> FewShot:
    """The turns of all conversations in a file, in its order. What `loss` and `weight` say is not looked at.

    Raises:
        UsageError: unreadable, empty, or a conversation in which user and assistant do not take turns, the assistant
            last; names the file and the line.
    """
    shown = tuple(turn for conversation in read_conversations(path) for turn in _exchanges(conversation))
    if not shown:
        raise UsageError(f"{path} holds no conversation: there is nothing to show")
    return shown


def check_actions(few_shot: FewShot, action_format: ActionFormat) -> None:
    """See that every answer holds an action, as the policy's own have to.

    Raises:
        UsageError: one does not; says which, and why.
    """
    for number, turn in enumerate(few_shot, start=1):
        if error := action_format.parse(turn.assistant).error:
            raise UsageError(f"few-shot turn {number} answers {turn.assistant[:60]!r}: {error}")


def as_messages(few_shot: FewShot) -> list[Message]:
    """The turns as messages."""
    found: list[Message] = []
    for turn in few_shot:
        found += [{"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.assistant}]
    return found


def _exchanges(conversation: Conversation) -> Sequence[Exchange]:
    said = [s.message for s in conversation.said]
    if said[0]["role"] == "system":
        raise UsageError(
            f"{conversation.where}: a system message is no example: the instructions are the environment's "
            "(rollout.system_prompt puts them there)"
        )
    for number, message in enumerate(said, start=1):
        wanted = "user" if number % 2 else "assistant"
        if message["role"] != wanted:
            raise UsageError(
                f"{conversation.where}: message {number} is the {message['role']}'s where the {wanted}'s belongs (in "
                "an example user and assistant take turns)"
            )
    if len(said) % 2:
        raise UsageError(f"{conversation.where}: ends with the user's turn: an example ends with the answer to it")
    return [Exchange(a["content"], b["content"]) for a, b in zip(said[::2], said[1::2], strict=True)]
