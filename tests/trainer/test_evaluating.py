"""Which episodes a run is evaluated in: those of every entry, each counted once."""

import json

import pytest

from sojourn.trainer.loop import Trainer
from tests.trainer import runs


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return runs.save_model(tmp_path_factory.mktemp("model"))


async def test_entries_that_begin_otherwise_are_counted_apart_and_shared_episodes_once(model, tmp_path):
    entry = {"name": "textcraft", "view": "compact", "families": ["depth1"]}
    sections = {
        "envs": [entry, {**entry, "weight": 2.0}, {**entry, "init": {"exchange_names": True}}],
        "trainer": {"num_steps": 1, "eval_every": 1},
        "eval": {"episodes": 3, "horizon": 1},
    }
    async with runs.serving() as envs:
        await Trainer(
            runs.config(model, **sections), envs, run_dir=tmp_path / "run", resume=False, observer=runs.Notes()
        ).run()
    found = json.loads((tmp_path / "run" / "evaluations" / "step_000000.json").read_text())["results"]
    assert [result["init"] for result in found] == [None] * 3 + [{"exchange_names": True}] * 3
    assert len({result["key"] for result in found}) == 6
