"""From the sources of a config to examples: recordings, demonstrations, conversations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sojourn.client.interface import Envs
from sojourn.evaluation.tasks import eval_tasks
from sojourn.protocol.errors import UsageError
from sojourn.protocol.trajectory import Trajectory, TrajectoryGroup
from sojourn.rollout.agent import FORMATS
from sojourn.rollout.conversations import read_conversations, render
from sojourn.rollout.demonstration import demonstrate
from sojourn.rollout.recorder import Recorder, read, shards
from sojourn.rollout.renderer import Renderer, name_of
from sojourn.trainer.offline.config import Conversations, OfflineConfig, Oracle, Recordings
from sojourn.trainer.offline.pairs import Pairs, pairs_of
from sojourn.trainer.offline.rows import Example, rows_of

DEMONSTRATIONS = "demonstrations"
"""Folder of a run's directory."""


class Loader:
    """Reads a run's examples.

    Args:
        config: of the run.
        envs: where demonstrations are played.
        renderer: of the model in training.
        directory: of the run, where `keep` puts demonstrations.
        resume: read the demonstrations that are there.
        max_tokens: rows of more tokens are left out.
        on_note: told what was found and what was left out.
    """

    def __init__(
        self,
        config: OfflineConfig,
        envs: Envs,
        renderer: Renderer,
        directory: Path,
        max_tokens: int,
        on_note: Callable[[str], None],
        *,
        resume: bool = False,
    ) -> None:
        self.config = config
        self.envs = envs
        self.renderer = renderer
        self.directory = directory
        self.max_tokens = max_tokens
        self.on_note = on_note
        self.resume = resume
        self._played: dict[str, list[TrajectoryGroup]] = {}

    async def load(self) -> list[Example]:
        """The examples of all sources, in their order.

        Raises:
            UsageError: a source cannot be read, was made with another tokenizer, or nothing at all is left to learn.
        """
        examples: list[Example] = []
        for i, source in enumerate(self.config.data):
            if isinstance(source, Recordings):
                found = self._recorded(source)
            elif isinstance(source, Conversations):
                said = (render(conversation, self.renderer) for conversation in read_conversations(source.path))
                found = [Example((row,)) for row in rows_of(said)]
            else:
                found = [Example((row,)) for row in rows_of(await self._demonstrated(i, source))]
            examples += self._fitting(f"data.{i} ({source.type})", found)
        if not examples:
            raise UsageError("data: there is nothing to learn from: see the notes above for what was left out")
        return examples

    def keep(self) -> None:
        """Write the demonstrations that were played, so that a resumed run has the very same."""
        for split, groups in self._played.items():
            Recorder(self.directory / DEMONSTRATIONS).write(0, groups, split=split)

    def _fitting(self, what: str, found: Sequence[Example]) -> list[Example]:
        kept = [e for e in found if all(len(row.ids) <= self.max_tokens for row in e.rows)]
        long = len(found) - len(kept)
        left = f"; {long} of more than {self.max_tokens} tokens left out" if long else ""
        self.on_note(f"{what}: {len(kept)} examples{left}")
        return kept

    def _recorded(self, source: Recordings) -> list[Example]:
        path = Path(source.path)
        found = shards(path, split=source.split) if path.is_dir() else [path]
        if not found:
            raise UsageError(f"no recordings in {path}: give a shard, or a directory such as a run's trajectories/")
        groups = (group for shard in found for group in self._same_tokens(shard))
        if self.config.compares:
            return self._pairs(path, pairs_of(groups, self.config.pairs))
        chosen = (t for group in groups for t in group.trajectories if _good(t, source.min_score))
        return [Example((row,)) for row in rows_of(_at_most(chosen, source.max_per_task))]

    def _pairs(self, path: Path, pairs: Pairs) -> list[Example]:
        if pairs.unlike:
            self.on_note(f"{path}: {pairs.unlike} pairs left out: the two episodes did not begin alike")
        if pairs.rewritten:
            self.on_note(f"{path}: {pairs.rewritten} pairs left out: history was rewritten on the way")
        if pairs.contained:
            self.on_note(f"{path}: {pairs.contained} pairs left out: one episode is the beginning of the other")
        if not pairs.examples:
            raise UsageError(
                f"{path}: no pairs in {pairs.groups} groups: record several episodes of a task (--group-size), or "
                "lower pairs.min_gap and pairs.min_chosen"
            )
        return pairs.examples

    def _same_tokens(self, shard: Path) -> Iterator[TrajectoryGroup]:
        """The groups of a shard, whose ids are proven to be of our tokenizer: they say what was said."""
        for group in read(shard):
            for trajectory in group.trajectories:
                self._check_tokens(shard, trajectory)
            yield group

    def _check_tokens(self, shard: Path, trajectory: Trajectory) -> None:
        for turn in trajectory.turns[:1]:
            ids = trajectory.segments[turn.segment].ids
            known = max(ids, default=0) < len(self.renderer.tokenizer)
            if not known or self.renderer.decode(ids).strip() != turn.text.strip():
                raise UsageError(
                    f"{shard}: {trajectory.episode_id} was recorded with another tokenizer than that of "
                    f"{name_of(self.renderer.tokenizer)}: play it with this model, or give conversations"
                )

    async def _demonstrated(self, number: int, source: Oracle) -> list[Trajectory]:
        """The demonstrations of a source: those that the run has already, or played now."""
        directory, split = self.directory / DEMONSTRATIONS, f"data{number}"
        found = shards(directory, split=split) if self.resume and directory.is_dir() else []
        if found:
            return [t for shard in found for group in read(shard) for t in group.trajectories]
        played = await self._play(source)
        self._played[split] = [TrajectoryGroup(t.group_id, t.task, [t]) for t in played]
        return played

    async def _play(self, source: Oracle) -> list[Trajectory]:
        spec = await self.envs.spec(source.env)
        if not spec.solvable:
            raise UsageError(f"{source.env} has no scripted solutions there: give recordings or conversations")
        config, seed = self.config, self.config.seed
        entry = next(entry for entry in config.envs if entry.name == source.env)
        tasks = await eval_tasks(
            self.envs,
            source.env,
            split=source.split,
            episodes=source.episodes,
            view=entry.view,
            families=source.families or entry.families,
            seed=seed,
        )
        played = []
        for task in tasks:
            rng = random.Random(f"{seed}/{task.key}")
            trajectory = await demonstrate(
                self.envs,
                self.renderer,
                FORMATS[config.rollout.format](),
                task.env,
                task.task,
                view=task.view,
                horizon=source.horizon or spec.default_horizon,
                rng=rng,
                noise=source.noise,
                thoughts=source.thoughts,
                env_seed=rng.getrandbits(31),
                prompt=config.rollout.prompt,
                system_prompt=config.rollout.system_prompt,
                few_shot=entry.few_shot or (),
                init=entry.init,
                limits=config.rollout.limits,
            )
            played += [] if trajectory is None else [trajectory]
        if len(played) < len(tasks):
            self.on_note(
                f"{source.env}: {len(tasks) - len(played)} of {len(tasks)} tasks have no short enough solution"
            )
        return played


def _good(trajectory: Trajectory, min_score: float | None) -> bool:
    if trajectory.stop.is_error:
        return False
    return trajectory.success if min_score is None else trajectory.score >= min_score


def _at_most(trajectories: Iterator[Trajectory], most: int | None) -> Iterator[Trajectory]:
    """The first `most` of each task."""
    seen: Counter[tuple[str, str]] = Counter()
    for trajectory in trajectories:
        seen[trajectory.env, trajectory.task] += 1
        if most is None or seen[trajectory.env, trajectory.task] <= most:
            yield trajectory
