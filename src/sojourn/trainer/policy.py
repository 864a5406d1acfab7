"""The policy in training: scores action tokens, takes optimiser steps, hands out its weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from transformers import PreTrainedModel

from sojourn.protocol.errors import UsageError
from sojourn.trainer.batch import MicroBatch, TrainBatch, micro_batches

if TYPE_CHECKING:
    from peft.tuners.lora import Linear as LoraLinear

_PROBE_TOLERANCE = 1e-3
"""Largest difference of logits that is numerics and not another formula."""


class LoraConfig(BaseModel):
    """Train low-rank adapters instead of the whole model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    r: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    target_modules: str | tuple[str, ...] = "all-linear"


class OptimConfig(BaseModel):
    """AdamW with a linear warm-up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lr: float = Field(default=1e-6, gt=0)
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    warmup_steps: int = Field(default=0, ge=0)
    """Training steps over which the learning rate rises to `lr`."""
    max_grad_norm: float = Field(default=1.0, gt=0)


class Scores(NamedTuple):
    """What a forward pass says of the action tokens of a micro-batch."""

    logprobs: Tensor
    """# [m]"""
    entropy: Tensor
    """In nats; detached unless asked for.  # [m]"""


class StepOutcome(NamedTuple):
    """One optimiser step."""

    grad_norm: float
    """Before clipping; not finite when the step was skipped."""
    skipped: bool


class TrainPolicy:
    """A causal language model with its optimiser and, where wanted, a frozen reference.

    Args:
        model: trained in place.
        optim: the optimiser's options.
        temperature: of sampling; log-probabilities are those of the distribution that was sampled from.
        lora: train adapters; the reference is then the model without them.
        autocast: dtype of matrix products while the weights keep theirs; None: the weights' own.
        reference: hold what `reference_logprobs` needs.

    Raises:
        UsageError: the head is more than a matrix product (its logits are not `lm_head(hidden)`).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        optim: OptimConfig | None = None,
        *,
        temperature: float = 1.0,
        lora: LoraConfig | None = None,
        autocast: Literal["bfloat16"] | None = None,
        reference: bool = False,
    ) -> None:
        _check_head(model)
        self.optim = optim or OptimConfig()
        self.temperature = temperature
        self._autocast = getattr(torch, autocast) if autocast else None
        self.model = model
        model.train(False)  # no dropout: ratios compare one function of the weights with itself
        self.adapted = lora is not None
        if lora:
            _adapt(model, lora)
        self._reference = copy.deepcopy(model).requires_grad_(False) if reference and not lora else None
        self._trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            self._trained.values(),
            lr=self.optim.lr,
            betas=self.optim.betas,
            eps=self.optim.eps,
            weight_decay=self.optim.weight_decay,
            fused=True,
        )

    @property
    def device(self) -> torch.device:
        return next(iter(self._trained.values())).device

    def score(self, micro: MicroBatch, *, entropy_grad: bool = False) -> Scores:
        """Log-probability and entropy of the action tokens; the first carries a gradient where grad mode is on."""
        return self._score(self.model, micro, entropy_grad)

    def logprobs(self, batch: TrainBatch, rows: Sequence[int], token_budget: int) -> Tensor:
        """Log-probabilities under the present weights, without gradient; 0 for tokens of other rows.  # [M]"""
        return self._logprobs(self.model, batch, rows, token_budget)

    def reference_logprobs(self, batch: TrainBatch, rows: Sequence[int], token_budget: int) -> Tensor:
        """The same under the frozen start policy.  # [M]"""
        if self.adapted:
            with _without_adapters(self.model):
                return self._logprobs(self.model, batch, rows, token_budget)
        assert self._reference is not None, "the policy was built without a reference"
        return self._logprobs(self._reference, batch, rows, token_budget)

    def begin_step(self, step: int) -> float:
        """Set and return the learning rate of training step `step` (from 0)."""
        warm = min(1.0, (step + 1) / self.optim.warmup_steps) if self.optim.warmup_steps else 1.0
        for group in self._optimizer.param_groups:
            group["lr"] = self.optim.lr * warm
        return self.optim.lr * warm

    def step(self) -> StepOutcome:
        """Clip the gradient, step, and clear it. A gradient that is not finite is thrown away: weights stay finite."""
        norm = float(nn.utils.clip_grad_norm_(self._trained.values(), self.optim.max_grad_norm))
        skipped = not math.isfinite(norm)
        if not skipped:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return StepOutcome(norm, skipped)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The whole model's weights under its own names, adapters merged in: what an engine loads."""
        if not self.adapted:
            for name, parameter in self.model.named_parameters():
                yield name, parameter.detach()
        else:
            yield from _merged(self.model)

    def trained_weights(self) -> dict[str, Tensor]:
        """The parameters in training by name (adapters only, under LoRA)."""
        return {name: p.detach() for name, p in self._trained.items()}

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state, flat: `name/exp_avg` and so on."""
        state = self._optimizer.state
        return {f"{name}/{key}": v for name, p in self._trained.items() for key, v in state.get(p, {}).items()}

    def load(self, trained: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Take over what `trained_weights` and `optimizer_tensors` gave."""
        with torch.no_grad():
            for name, parameter in self._trained.items():
                parameter.copy_(trained[name])
        parameters = list(self._trained.values())
        number = {name: i for i, name in enumerate(self._trained)}
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in optimizer.items():
            name, _, what = key.rpartition("/")
            state.setdefault(number[name], {})[what] = value
        groups = [{**g, "params": list(range(len(parameters)))} for g in self._optimizer.param_groups]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _logprobs(self, model: PreTrainedModel, batch: TrainBatch, rows: Sequence[int], token_budget: int) -> Tensor:
        result = torch.zeros(batch.tokens)
        with torch.no_grad():
            for micro in micro_batches(batch, rows, token_budget):
                result[micro.tokens] = self._score(model, micro, False).logprobs.cpu()
        return result

    def _score(self, model: PreTrainedModel, micro: MicroBatch, entropy_grad: bool) -> Scores:
        device = self.device
        with self._casting():
            hidden = _decoder(model)(input_ids=micro.inputs.to(device), use_cache=False).last_hidden_state
            chosen = hidden[micro.row.to(device), micro.column.to(device)]
            logits = _head(model)(chosen).float() / self.temperature
        log_p = logits.log_softmax(-1)
        logprobs = log_p.gather(1, micro.targets.to(device)[:, None])[:, 0]
        if not entropy_grad:
            log_p = log_p.detach()
        return Scores(logprobs, -(log_p.exp() * log_p).sum(-1))

    def _casting(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, self._autocast) if self._autocast else nullcontext()


def _decoder(model: PreTrainedModel) -> nn.Module:
    """The model below its head."""
    return model.base_model


def _head(model: PreTrainedModel) -> nn.Module:
    """The matrix from hidden states to logits."""
    head: nn.Module | None = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None:
        raise UsageError(f"{type(model).__name__} is not a causal language model")
    return head


def _check_head(model: PreTrainedModel) -> None:
    """Prove that logits are `lm_head(last hidden state)`: some architectures cap or scale them."""
    ids = torch.arange(4, device=model.device)[None]
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        hidden = _decoder(model)(input_ids=ids, use_cache=False).last_hidden_state
        ours = _head(model)(hidden)
    if not torch.allclose(whole, ours, atol=_PROBE_TOLERANCE):
        raise UsageError(
            f"{type(model).__name__} transforms its logits after the head, which training does not support"
        )


def _adapt(model: PreTrainedModel, lora: LoraConfig) -> None:
    """Put adapters into the model, in place, and freeze the rest."""
    from peft import LoraConfig as PeftLora
    from peft import inject_adapter_in_model  # slow to import, and needed by few

    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    inject_adapter_in_model(
        PeftLora(r=lora.r, lora_alpha=lora.alpha, target_modules=targets, lora_dropout=0.0, bias="none"), model
    )


def _lora_layers(model: PreTrainedModel) -> Iterator[tuple[str, LoraLinear]]:
    from peft.tuners.lora import Linear

    yield from ((name, module) for name, module in model.named_modules() if isinstance(module, Linear))


@contextmanager
def _without_adapters(model: PreTrainedModel) -> Iterator[None]:
    layers = [layer for _, layer in _lora_layers(model)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def _merged(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    deltas = {f"{name}.base_layer.weight": module.get_delta_weight("default") for name, module in _lora_layers(model)}
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        weight = parameter.detach()
        if name in deltas:
            weight = weight + deltas[name].detach().to(weight.dtype)
        yield name.replace(".base_layer.", "."), weight


def copy_weights(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Write named weights into a model of the same architecture."""
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in weights:
            own[name].copy_(value)
