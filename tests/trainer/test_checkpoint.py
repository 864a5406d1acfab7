from __future__ import annotations

import json

import pytest
import torch

from sojourn.protocol.errors import UsageError
from sojourn.rollout.horizon import HorizonState
from sojourn.trainer.checkpoint import CheckpointStore, Progress, RunState, config_hash, read
from sojourn.trainer.policy import LoraConfig, TrainPolicy
from sojourn.trainer.tasks import SamplerState
from tests.models import tiny_llama


def _state(step: int) -> RunState:
    progress = Progress(
        step=step, sampler=SamplerState(drawn=(step, 2)), horizon=HorizonState(envs=("a",), step=step, caps={"a": 9})
    )
    return RunState(progress=progress, metrics_offset=7, config={"seed": 1}, config_hash=config_hash({"seed": 1}))


@pytest.mark.parametrize("lora", [None, LoraConfig(r=2)])
def test_round_trip(tmp_path, lora):
    policy = TrainPolicy(tiny_llama(layers=1), lora=lora)
    for parameter in policy.trained_weights():
        policy.model.get_parameter(parameter).grad = torch.ones_like(policy.model.get_parameter(parameter))
    policy.step()
    torch.manual_seed(5)
    path = CheckpointStore(tmp_path / "checkpoints").save(_state(3), policy)
    expected = torch.rand(3)
    torch.manual_seed(6)
    checkpoint = read(path)
    checkpoint.restore_rng()
    assert torch.equal(torch.rand(3), expected)
    assert checkpoint.state == _state(3)
    for name, weight in policy.trained_weights().items():
        assert torch.equal(checkpoint.trained[name], weight)
    assert checkpoint.optimizer.keys() == policy.optimizer_tensors().keys()
    for name, tensor in policy.optimizer_tensors().items():
        assert torch.equal(checkpoint.optimizer[name], tensor)


def test_the_last_few_are_kept(tmp_path):
    store, policy = CheckpointStore(tmp_path, keep=2), TrainPolicy(tiny_llama(layers=1))
    for step in (1, 2, 3, 10):
        store.save(_state(step), policy)
    assert store.steps() == [3, 10]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000003", "step_000010"]
    assert store.latest().state.progress.step == 10


@pytest.mark.parametrize("keep", [1, 2])
def test_what_a_run_fell_back_from_is_not_taken_for_its_last(tmp_path, keep):
    """Step 10 is corrupted, the run goes on from 5: what it saves then is what it must come back to."""
    policy = TrainPolicy(tiny_llama(layers=1))
    for step in (5, 10):
        CheckpointStore(tmp_path).save(_state(step), policy)
    (tmp_path / "step_000010" / "state.json").write_text("{}")
    store = CheckpointStore(tmp_path, keep=keep)
    assert store.latest(fall_back=True).state.progress.step == 5
    store.save(_state(6), policy)
    assert store.steps() == [5, 6][-keep:]
    assert store.latest().state.progress.step == 6


def test_a_write_that_was_cut_is_no_checkpoint(tmp_path, monkeypatch):
    store, policy = CheckpointStore(tmp_path), TrainPolicy(tiny_llama(layers=1))
    store.save(_state(1), policy)
    with monkeypatch.context() as patch:
        patch.setattr("sojourn.trainer.checkpoint._seal", lambda _: (_ for _ in ()).throw(OSError("no space left")))
        with pytest.raises(UsageError, match=r"cannot write .*: no space left"):
            store.save(_state(2), policy)
    assert store.latest().state.progress.step == 1
    store.save(_state(2), policy)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000001", "step_000002"]


@pytest.mark.parametrize("victim", ["state.json", "optimizer.safetensors", "model/model.safetensors", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "truncate", "delete"])
def test_a_corrupted_checkpoint_is_named_and_never_skipped_silently(tmp_path, victim, harm):
    store, policy = CheckpointStore(tmp_path), TrainPolicy(tiny_llama(layers=1))
    store.save(_state(1), policy)
    file = store.save(_state(2), policy) / victim
    data = file.read_bytes()
    if harm == "delete":
        file.unlink()
    else:
        file.write_bytes(data[: len(data) // 2] if harm == "truncate" else bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(UsageError, match=r"checkpoint .*step_000002 is corrupted"):
        store.latest()
    notes: list[str] = []
    assert store.latest(fall_back=True, on_note=notes.append).state.progress.step == 1
    assert "step_000002 is corrupted" in notes[0]


def test_nothing_to_fall_back_to(tmp_path):
    store = CheckpointStore(tmp_path)
    with pytest.raises(UsageError, match="no checkpoint in"):
        store.latest()
    path = store.save(_state(1), TrainPolicy(tiny_llama(layers=1)))
    (path / "state.json").write_text("{}")
    with pytest.raises(UsageError, match=r"is corrupted: state\.json"):
        store.latest(fall_back=True)


def test_state_of_another_version(tmp_path):
    path = CheckpointStore(tmp_path).save(_state(1), TrainPolicy(tiny_llama(layers=1)))
    state = path / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "novelty": 1}))
    manifest = json.loads((path / "manifest.json").read_text())
    import hashlib

    manifest["state.json"] = hashlib.sha256(state.read_bytes()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="of another version"):
        read(path)
