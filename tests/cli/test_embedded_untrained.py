"""A policy that knows nothing yet: a vocabulary learnt from a world's own texts, and fresh weights."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.cli.embedded import __main__ as embedded
from sojourn.cli.embedded.phrases import phrases
from sojourn.cli.embedded.untrained import untrained
from sojourn.engines.models import load_model, load_tokenizer
from sojourn.engines.tiny import build_tokenizer
from sojourn.protocol.errors import UsageError
from sojourn.rollout.agent import ReAct
from tests.cli.conftest import Run
from tests.conftest import serve_in_process
from tests.rollout.world import StairsService

ROOM = "This room is called the kitchen. In it, you see:\n\ta red box\n\ta door to the hallway (that is closed)"
TEXTS = [ROOM] * 5 + [ROOM.replace("red", "blue")] * 5 + ["Action: open door to hallway"] * 5 + ["a platypus"]


def pieces_of(text, vocabulary):
    tokenizer = build_tokenizer(vocabulary)
    return tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))


def test_what_recurs_is_one_token_and_the_rest_is_words():
    found = phrases(TEXTS, 200, words=3, often=3)
    assert pieces_of("Action: open door to hallway", found) == ["Action: open door to hallway"]
    assert pieces_of(ROOM, found)[0] == "This room is called the kitchen. In it, you see:"
    assert pieces_of("Action: open box", found) == ["Action: open", " box"]


def test_no_phrase_spans_a_line_or_is_too_rare():
    found = phrases(TEXTS, 200, words=3, often=3)
    assert all("\n" not in piece[1:] for piece in found)
    assert not any("platypus" in piece for piece in found)
    assert any("platypus" in piece for piece in phrases(TEXTS, 200, words=1))


def test_words_come_before_phrases_and_the_most_frequent_first():
    words = phrases(TEXTS, 6)
    assert len(words) == 6
    assert all(len(piece.split()) == 1 for piece in words)
    assert "\n\ta" in words
    assert phrases(TEXTS, 60, often=2) == phrases(TEXTS, 60, often=2)
    assert len(phrases(TEXTS, 30, often=2)) == 30


def test_nothing_to_read_gives_no_pieces():
    assert phrases([], 10) == []
    assert phrases(["\n\n"], 10, words=3) == []


@given(texts=st.lists(st.text(max_size=40), max_size=5), size=st.integers(1, 40), text=st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_any_text_comes_back_whole(texts, size, text):
    found = phrases(texts * 2, size, often=2)
    assert len(found) <= size
    tokenizer = build_tokenizer(found)
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_a_model_is_written_that_a_run_learns_from(run: Run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world = ("--env", "babyai", "--family", "PickupLoc", "--view", "compact", "--no-thoughts")
    embedded.app(["untrained", *world, "--episodes", "6", "--pieces", "200", "--out", "fresh"], standalone_mode=False)
    tokenizer = load_tokenizer("fresh")
    assert load_model("fresh").config.vocab_size == len(tokenizer)
    assert any(piece.startswith("Action:") for piece in tokenizer.get_vocab())
    sections = {
        "name": "taught",
        "model": "fresh",
        "algorithm": {"name": "sft"},
        "data": [{"type": "oracle", "env": "babyai", "episodes": 4, "horizon": 20, "thoughts": False}],
        "envs": [{"name": "babyai", "view": "compact", "families": ["PickupLoc"]}],
        "rollout": {"prompt": "none"},
        "trainer": {"batch_size": 2},
    }
    (tmp_path / "taught.yaml").write_text(json.dumps(sections))
    said = run("train", "taught.yaml")
    assert said.code == 0, said
    assert "step_00000" in str(sorted((tmp_path / "runs" / "taught" / "checkpoints").iterdir()))


def test_a_model_that_is_there_stays(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"there is a model in .* already"):
        embedded.app(["untrained", "--env", "babyai", "--out", str(tmp_path)], standalone_mode=False)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--env", "babyai", "--family", "Nowhere"], "Nowhere"),
        (["--env", "babyai", "--view", "oil"], "no view 'oil'"),
        (["--env", "babyai", "--format", "opera"], "--format 'opera'"),
    ],
)
def test_what_there_is_not_is_told(options, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        embedded.app(["untrained", *options, "--out", str(tmp_path / "x")], standalone_mode=False)
    assert not (tmp_path / "x").exists()


def test_what_is_wrong_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    world = ["--env", "babyai", "--family", "PickupLoc", "--episodes", "1", "--pieces", "20"]
    for options, why in (
        (["--env", "nowhere", "--out", "x"], "no environment 'nowhere'"),
        ([*world, "--out", str(tmp_path / "file" / "x")], "cannot write"),
        (["--out", "x"], "--env"),
        ([*world, "--format", "tagged", "--out", "x"], "solutions of babyai cannot be written in this action format"),
    ):
        monkeypatch.setattr(sys, "argv", ["embedded", "untrained", *options])
        assert embedded.main() == 2
        said = capsys.readouterr().err
        assert (said.count("\n"), why in said) == (1, True), said


async def test_a_world_without_solutions_has_no_words_to_learn():
    async with serve_in_process([StairsService()]) as envs:
        with pytest.raises(UsageError, match="stairs has no scripted solutions"):
            await untrained(envs, "stairs", ReAct())
