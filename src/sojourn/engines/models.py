"""Models by name: those shipped with the package, SmolLM2 from the cache, a directory, or a Hugging Face hub id.

Nothing that a model repository brings is ever executed: `trust_remote_code` stays off.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from sojourn.engines.smollm2 import add_smollm2, cache_root
from sojourn.protocol.errors import UsageError

__all__ = ["DTYPES", "EMBEDDED", "ModelSource", "add_smollm2", "load_model", "load_tokenizer", "resolve"]

EMBEDDED = {"sojourn-tiny": "tiny", "sojourn-tiny-weak": "tiny-weak", "sojourn-tiny-search": "tiny-search"}
"""Models in the package, by name: their directories under `engines/embedded`."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_HUB_TIMEOUT_S = 10.0
_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")


class ModelSource(NamedTuple):
    """Where a model is loaded from."""

    name: str
    """What the user called it."""
    path: str
    """A directory or a hub id."""


def resolve(name: str) -> ModelSource:
    """Find a model by name, path or hub id (a hub id is not looked up yet).

    Raises:
        UsageError: not installed, not fetched, or neither a directory nor a hub id.
    """
    if name in EMBEDDED:
        path = Path(str(resources.files("sojourn.engines"))) / "embedded" / EMBEDDED[name]
        if not (path / "config.json").is_file():
            raise UsageError(f"this installation has no model {name!r}: {path} is missing; reinstall sojourn")
        return ModelSource(name, str(path))
    if name == "smollm2":
        path = cache_root() / "smollm2"
        if not (path / "model.safetensors").is_file():
            raise UsageError("the model 'smollm2' is not on this machine yet: run `sojourn models add smollm2`")
        return ModelSource(name, str(path))
    path = Path(name).expanduser()
    if name and path.is_dir():
        if not (path / "config.json").is_file():
            raise UsageError(f"no model in {name}: it has no config.json")
        return ModelSource(name, str(path))
    if _HUB_ID.fullmatch(name):
        return ModelSource(name, name)
    run, _, checkpoint = name.partition("/checkpoints/")
    if checkpoint:
        raise UsageError(f"no such model: {name}: the run {run} has not written this checkpoint; train it first")
    raise UsageError(f"no such model: {name!r} (expected {', '.join(EMBEDDED)}, smollm2, a directory or a hub id)")


def load_tokenizer(source: ModelSource | str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model; `UsageError` when there is none."""
    source = resolve(source) if isinstance(source, str) else source
    location = _location(source)
    with _one_line(source, "tokenizer"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(location, trust_remote_code=False)
    return tokenizer


def load_model(source: ModelSource | str, *, dtype: str = "float32", device: str = "cpu") -> PreTrainedModel:
    """The model's weights in `dtype` on `device`, ready for inference.

    Raises:
        UsageError: unknown dtype, device or model, or no connection to the hub.
    """
    source = resolve(source) if isinstance(source, str) else source
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r} (expected {', '.join(DTYPES)})")
    target = _device(device)
    location = _location(source)
    with _one_line(source, "model"), _no_progress_bar():
        model: Any = AutoModelForCausalLM.from_pretrained(
            location,
            dtype=DTYPES[dtype],
            attn_implementation="sdpa",
            trust_remote_code=False,
        )
    loaded: PreTrainedModel = model.to(target).eval()
    return loaded


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"no device {name!r}: {str(error).splitlines()[0]}") from error
    return device


def _location(source: ModelSource) -> str:
    """Where to load from: the hub is asked once and quickly, for the loaders would keep trying for a minute."""
    if Path(source.path).is_dir():
        return source.path
    try:
        HfApi().model_info(source.path, timeout=_HUB_TIMEOUT_S)
    except RepositoryNotFoundError as error:
        raise UsageError(f"the hub has no model {source.path!r}, or access to it is restricted") from error
    except Exception:  # the hub's HTTP library, and with it what it raises, changes with releases
        try:
            return snapshot_download(source.path, local_files_only=True)
        except OSError as error:
            raise UsageError(
                f"the model {source.path!r} is neither here nor in the hub's cache, and the hub cannot be reached: "
                f"give {', '.join(EMBEDDED)}, smollm2, a directory, or a hub id once the hub answers"
            ) from error
    return source.path


@contextlib.contextmanager
def _one_line(source: ModelSource, what: str) -> Iterator[None]:
    """Turn what transformers raises for an unknown, broken or unreachable model into one line."""
    try:
        yield
    except ModuleNotFoundError:
        raise  # a package is missing, not the model
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UsageError(f"cannot load the {what} of {source.name!r}: {reason}") from error


@contextlib.contextmanager
def _no_progress_bar() -> Iterator[None]:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
