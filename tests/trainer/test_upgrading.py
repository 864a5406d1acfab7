"""A run of an older version goes on where this version reads its configuration alike."""

from copy import deepcopy

import pytest
import yaml

from sojourn.protocol.errors import UsageError
from sojourn.trainer.config_reading import parse_config, parse_offline
from sojourn.trainer.resuming import changed_keys
from sojourn.trainer.run_dir import RunDir
from sojourn.trainer.upgrading import as_read_now

NOW = {
    "envs": [{"name": "textcraft", "reward": [{"name": "success"}, {"name": "length_cost", "weight": 0.5}]}],
    "horizon": {"type": "fixed", "turns": 10},
    "algorithm": {"name": "ppo"},
}
ADDED = (
    ("rollout", "refill_rounds"),
    ("trainer", "max_skipped_steps"),
    ("model", "lora"),
    ("algorithm", "clip_high"),
    ("envs", 0, "dialect"),
    ("curriculum",),
)
"""Keys that a version before this one could have lacked."""


def older(config, *paths):
    """The dump of a version that lacked some keys."""
    dump = deepcopy(config.dump())
    for path in paths:
        section = dump
        for key in path[:-1]:
            section = section[key]
        del section[path[-1]]
    return dump


def changes(before, config):
    return changed_keys(as_read_now(before, config), config.dump())


def test_an_added_key_at_its_default_is_no_change():
    config = parse_config(NOW)
    before = older(config, *ADDED)
    assert len(changed_keys(before, config.dump())) > 4, "as they stand, the dumps differ"
    assert changes(before, config) == []


def test_an_added_key_that_is_used_is_told():
    used = parse_config({**NOW, "rollout": {"refill_rounds": 2}, "model": {"lora": {"r": 4}}})
    found = changes(older(used, *ADDED), used)
    assert found[-1] == "rollout.refill_rounds"
    assert "model.lora.r" in found
    assert all(key.startswith("model.lora") for key in found[:-1])


def test_a_key_that_was_removed_or_renamed_is_told():
    """And only that: what was added beside it stands at its default."""
    config = parse_config(NOW)
    before = older(config, *ADDED)
    before["rollout"]["fork_depth"] = 3
    before["envs"][0]["prompt"] = "x"
    before["algorithm"]["clip"] = 0.2
    before["logger"] = {"kind": "x"}
    assert changes(before, config) == ["algorithm.clip", "envs.0.prompt", "logger.kind", "rollout.fork_depth"]


def test_what_was_there_and_differs_is_told_as_ever():
    config = parse_config({**NOW, "optim": {"lr": 5e-4}, "algorithm": {"name": "grpo"}, "trainer": {"num_steps": 7}})
    before = older(parse_config(NOW), ("rollout", "refill_rounds"))
    found = changes(before, config)
    assert {"optim.lr", "algorithm.name"} <= set(found)
    assert not any(key.startswith(("rollout", "trainer", "envs")) for key in found)


@pytest.mark.parametrize("before", [None, [], "text", {}, {"envs": 3}])
def test_what_is_no_configuration_differs_in_everything(before):
    assert "horizon.turns" in changes(before, parse_config(NOW))


def test_runs_on_fixed_data_alike():
    config = parse_offline({"algorithm": {"name": "sft"}, "data": [{"type": "recordings", "path": "x"}]})
    before = older(config, ("trainer", "held_out"), ("data", 0, "max_per_task"), ("pairs",))
    assert changes(before, config) == []
    before["trainer"]["shuffle"] = True
    assert changes(before, config) == ["trainer.shuffle"]


def test_a_run_directory_of_an_older_version_is_resumed(tmp_path):
    config = parse_config(NOW)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(older(config, *ADDED)))
    RunDir(tmp_path, config, resume=True, on_note=print)
    path.write_text(yaml.safe_dump({**older(config, *ADDED), "seeds": 1}))
    with pytest.raises(UsageError, match=r"changed config: seeds; "):
        RunDir(tmp_path, config, resume=True, on_note=print)
