"""Where a policy for any environment with scripted solutions begins: its vocabulary, from the world's own texts, and
fresh weights that have learnt nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from sojourn.cli.embedded.phrases import phrases
from sojourn.client.interface import Envs, Session
from sojourn.engines.tiny import build_model, build_tokenizer
from sojourn.evaluation.tasks import eval_tasks
from sojourn.protocol.errors import NotSupported, UsageError
from sojourn.rollout.agent import ActionFormat
from sojourn.rollout.demonstration import written

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

NO_ACTION = "?"
"""No world knows it: what a world says to that has to be read, too."""


async def untrained(
    envs: Envs,
    env: str,
    action_format: ActionFormat,
    *,
    families: Sequence[str] | None = None,
    view: str | None = None,
    thoughts: bool = True,
    episodes: int = 256,
    pieces: int = 768,
    seed: int = 0,
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A model of random weights and a tokenizer of at most `pieces` words and phrases of training tasks.

    Args:
        families: whose tasks are looked at; None: all of them.
        view: how the world is worded; None: its first view.
        thoughts: whether the solution's reasons are read, too, where it gives any.
        episodes: of the scripted solution, whose texts are read.
        seed: of the tasks and of the weights.

    Raises:
        UsageError: there is no such view, split or family, or no scripted solution to read in this
            format.
    """
    if not (await envs.spec(env)).solvable:
        raise UsageError(f"{env} has no scripted solutions, whose words a vocabulary is made of")
    tasks = await eval_tasks(
        envs, env, split="train", episodes=episodes, view=view, families=families or None, seed=seed
    )
    texts: list[str] = []
    for task in tasks:
        async with await envs.create(env, task.task, seed=seed, view=task.view) as session:
            texts += [text async for text in _texts(session, action_format, thoughts)]
    tokenizer = build_tokenizer(phrases(texts, pieces))
    return build_model(len(tokenizer), seed=seed), tokenizer


async def _texts(session: Session, action_format: ActionFormat, thoughts: bool) -> AsyncIterator[str]:
    """What world and agent say in one episode, as the chat template writes it: a space before what the world says."""
    yield f" {session.observation.text}"
    refused = await session.step(NO_ACTION)
    yield f" {refused.observation}"
    try:
        plan = await session.solution()
    except NotSupported:
        return
    for i, action in enumerate(plan.actions):
        yield written(action_format, session.env, plan.thoughts[i] if plan.thoughts and thoughts else "", action)
        result = await session.step(action)
        yield f" {result.observation}"
        if result.done:
            return
