"""Example turns from the command line: a run trains, resumes and is evaluated with those of its file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from sojourn.protocol.trajectory import Trajectory
from sojourn.rollout.recorder import read, shards
from tests.cli.conftest import Run
from tests.models import byte_tokenizer

SEEN = "goal: craft 1 stick"


def write(path: Path, *answers: str) -> Path:
    said = [
        {"messages": [{"role": "user", "content": SEEN}, {"role": "assistant", "content": answer}]}
        for answer in answers
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in said))
    return path


def episodes(directory: Path | str) -> Iterator[Trajectory]:
    yield from (t for path in shards(directory) for group in read(path) for t in group.trajectories)


def opening(trajectory: Trajectory) -> str:
    assert not any(trajectory.segments[0].mask)
    return str(byte_tokenizer().decode(trajectory.segments[0].ids))


def test_train_resume_and_eval(run: Run, config: Path, tmp_path: Path) -> None:
    shown = write(tmp_path / "shown.jsonl", "Action: inventory")
    values = yaml.safe_load(config.read_text())
    values["envs"][0]["few_shot"] = "shown.jsonl"
    values["rollout"] |= {"prompt": "full", "system_prompt": True}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    outcome = run("train", "run.yaml", "--quiet")
    assert outcome.code == 0, outcome
    played = [opening(t) for t in episodes("runs/small/trajectories")]
    assert len(played) == 8
    assert all(
        text.count("Action: inventory") == 1 and text.index(SEEN) > text.index("Thought: why") for text in played
    )

    write(shown, "Action: inventory", "Action: get 1 log")
    changed = run("train", "run.yaml", "trainer.num_steps=3", "--resume")
    assert (changed.code, changed.err.count("\n")) == (2, 1)
    assert "envs.0.few_shot.1" in changed.err
    write(shown, "Action: inventory")
    assert run("train", "run.yaml", "trainer.num_steps=3", "--resume", "--quiet").code == 0

    # The run's own manners, its file no longer needed; then other examples in their place.
    shown.unlink()
    common = ("eval", "--model", "runs/small", "--env", "textcraft", "--episodes", 1, "--horizon", 1)
    assert run(*common, "--record", "own").code == 0
    [text] = [opening(t) for t in episodes("own")]
    assert text.count("Action: inventory") == 1
    assert text.index("system") < text.index("Thought: why") < text.index(SEEN)
    other = write(tmp_path / "other.jsonl", "Action: get 2 log")
    assert run(*common, "--few-shot", other, "--record", "other").code == 0
    [text] = [opening(t) for t in episodes("other")]
    assert "Action: get 2 log" in text
    assert "Action: inventory" not in text


def test_rollouts_and_demonstrations_begin_alike(run: Run, model: Path, tmp_path: Path) -> None:
    shown = write(tmp_path / "shown.jsonl", "Action: inventory")
    common = ("rollout", "--env", "textcraft", "--model", model, "--view", "compact", "--family", "depth1")
    given = ("--episodes", 1, "--prompt", "none", "--few-shot", shown)
    assert run(*common, *given, "--horizon", 1, "--out", "played").code == 0
    assert run(*common, *given, "--oracle", "--out", "solved").code == 0
    [played], [solved] = episodes("played"), episodes("solved")
    assert "Action: inventory" in opening(played)
    assert played.segments[0].ids == solved.segments[0].ids


def test_examples_that_cannot_be_used(run: Run, model: Path, tmp_path: Path) -> None:
    common = ("--model", model, "--env", "textcraft", "--episodes", 1, "--few-shot")
    for path, why in (("absent.jsonl", "absent.jsonl"), (write(tmp_path / "odd.jsonl", "go up"), "'go up'")):
        for command in (("eval",), ("rollout", "--out", "x"), ("rollout", "--oracle", "--out", "x")):
            outcome = run(*command, *common, path)
            assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome
            assert why in outcome.err


def test_demonstrations_in_a_format_that_the_world_does_not_have(run: Run, model: Path) -> None:
    common = ("rollout", "--env", "textcraft", "--model", model, "--episodes", 1)
    outcome = run(*common, "--oracle", "--format", "tagged", "--out", "x")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome
    assert "solutions of textcraft cannot be written in this action format" in outcome.err
