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

from sojourn.algorithms.base import CriticConfig
from sojourn.protocol.errors import UsageError
from sojourn.trainer.batch import MicroBatch, TrainBatch, micro_batches
from sojourn.trainer.critic import Critic
from sojourn.trainer.optimizer import OptimConfig, Optimizer

if TYPE_CHECKING:
    from peft.tuners.lora import Linear as LoraLinear

_PROBE_TOLERANCE = 1e-3
"""Largest difference of logits that is numerics and not another formula."""


class LoraConfig(BaseModel):
    """Train low-rank adapters instead of the whole model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    r: int = Field(default=16, ge=1)
    """Rank."""
    alpha: int = Field(default=32, ge=1)
    """An adapter's output counts `alpha / r`."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Which layers have one, as `peft` names them."""


class Scores(NamedTuple):
    """What a forward pass says of the action tokens of a micro-batch."""

    logprobs: Tensor
    """# [m]"""
    entropy: Tensor
    """In nats; detached unless asked for.  # [m]"""
    values: Tensor | None = None
    """The critic's, if there is one; with a gradient where grad mode is on.  # [m]"""


class StepOutcome(NamedTuple):
    """One optimiser step."""

    grad_norm: float
    """Of the policy, before clipping."""
    skipped: bool
    """A gradient was not finite, the policy's or the critic's: nothing moved."""
    critic_norm: float | None = None
    """Of the critic's own weights, before clipping; None: there is no critic."""


class TrainPolicy:
    """A causal language model with its optimiser and, where wanted, a frozen reference.

    Args:
        model: trained in place.
        optim: the optimiser's options.
        temperature: of sampling; log-probabilities are those of the distribution that was sampled from.
        lora: train adapters; the reference is then the model without them.
        autocast: dtype of matrix products while the weights keep theirs; None: the weights' own.
        reference: hold what `reference_logprobs` needs.
        critic: hold a critic beside it.

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
        critic: CriticConfig | None = None,
    ) -> None:
        _check_head(model)
        self.optim = optim or OptimConfig()
        self.temperature = temperature
        self._autocast = getattr(torch, autocast) if autocast else None
        self.model = model
        model.train(False)  # no dropout: ratios compare one function of the weights with itself
        self.critic = Critic(critic, model, self.optim) if critic else None
        self.adapted = lora is not None
        if lora:
            _adapt(model, lora)
        self._reference = copy.deepcopy(model).requires_grad_(False) if reference and not lora else None
        self._optimizer = Optimizer({n: p for n, p in model.named_parameters() if p.requires_grad}, self.optim)
        self._optimizers = [self._optimizer, *([self.critic.optimizer] if self.critic else [])]
        self._critic_leads = False

    @property
    def device(self) -> torch.device:
        return self.model.device

    def score(self, micro: MicroBatch, *, entropy_grad: bool = False) -> Scores:
        """Log-probability, entropy and value of the action tokens; with gradients where grad mode is on.

        The value comes from the same forward pass, unless the critic is a model of its own.
        """
        hidden = self._hidden(self.model.base_model, micro)
        scores = self._scores(self.model, hidden, micro, entropy_grad)
        return scores._replace(values=self._values(self.critic, hidden, micro)) if self.critic else scores

    def scores(self, batch: TrainBatch, rows: Sequence[int], token_budget: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities and the critic's values under the present weights, without gradient; 0 for other rows.

        Returns:
            # [M], [M]
        """
        logprobs, values = torch.zeros(batch.tokens), torch.zeros(batch.tokens)
        with torch.no_grad():
            for micro in micro_batches(batch, rows, token_budget):
                scores = self.score(micro)
                assert scores.values is not None, "the policy was built without a critic"
                logprobs[micro.tokens], values[micro.tokens] = scores.logprobs.cpu(), scores.values.cpu()
        return logprobs, values

    def values(self, batch: TrainBatch, rows: Sequence[int], token_budget: int) -> Tensor:
        """The critic's values alone: no logits are computed.  # [M]"""
        assert self.critic is not None, "the policy was built without a critic"
        result = torch.zeros(batch.tokens)
        with torch.no_grad():
            for micro in micro_batches(batch, rows, token_budget):
                hidden = None if self.critic.trunk else self._hidden(self.model.base_model, micro)
                result[micro.tokens] = self._values(self.critic, hidden, micro).cpu()
        return result

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

    def begin_step(self, step: int, scale: float = 1.0) -> float:
        """Set and return the learning rate of training step `step` (from 0), times `scale`."""
        self._critic_leads = self.critic is not None and self.critic.leads(step)
        if self.critic:
            self.critic.optimizer.begin_step(step, scale)
        return self._optimizer.begin_step(step, scale)

    def step(self) -> StepOutcome:
        """Clip the gradient, step, and clear it. A gradient that is not finite is thrown away: weights stay finite.

        While a critic is warmed up, only its own weights step.
        """
        norms = [optimizer.clip() for optimizer in self._optimizers]
        skipped = not all(map(math.isfinite, norms))
        for optimizer in self._optimizers:
            if not skipped and not (self._critic_leads and optimizer is self._optimizer):
                optimizer.step()
            optimizer.clear()
        return StepOutcome(norms[0], skipped, norms[1] if self.critic else None)

    def drop_gradient(self) -> float:
        """The norm of the gradient (of the policy's and the critic's, the worse), which is then forgotten."""
        norms = [optimizer.clip() for optimizer in self._optimizers]
        for optimizer in self._optimizers:
            optimizer.clear()
        return max(norms, key=lambda norm: norm if math.isfinite(norm) else math.inf)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The whole model's weights under its own names, adapters merged in: what an engine loads."""
        if not self.adapted:
            for name, parameter in self.model.named_parameters():
                yield name, parameter.detach()
        else:
            yield from _merged(self.model)

    def trained_weights(self) -> dict[str, Tensor]:
        """The policy's parameters in training by name (adapters only, under LoRA)."""
        return self._optimizer.weights()

    def critic_weights(self) -> dict[str, Tensor]:
        """The critic's parameters by name; empty without one."""
        return self.critic.optimizer.weights() if self.critic else {}

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The state of the optimisers, flat: `name/exp_avg` and so on."""
        return {name: tensor for optimizer in self._optimizers for name, tensor in optimizer.tensors().items()}

    def load(self, trained: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Take over what `trained_weights` and `critic_weights` gave, together, and `optimizer_tensors`."""
        for part in self._optimizers:
            part.load(trained, optimizer)

    def _logprobs(self, model: PreTrainedModel, batch: TrainBatch, rows: Sequence[int], token_budget: int) -> Tensor:
        result = torch.zeros(batch.tokens)
        with torch.no_grad():
            for micro in micro_batches(batch, rows, token_budget):
                hidden = self._hidden(model.base_model, micro)
                result[micro.tokens] = self._scores(model, hidden, micro, False).logprobs.cpu()
        return result

    def _hidden(self, decoder: nn.Module, micro: MicroBatch) -> Tensor:
        """The hidden states that predict the action tokens.  # [m, H]"""
        device = self.device
        packed = {} if micro.position_ids is None else {"position_ids": micro.position_ids.to(device)}
        with self._casting():
            hidden: Tensor = decoder(input_ids=micro.inputs.to(device), use_cache=False, **packed).last_hidden_state
        return hidden[micro.row.to(device), micro.column.to(device)]

    def _values(self, critic: Critic, hidden: Tensor | None, micro: MicroBatch) -> Tensor:
        """Values from the policy's hidden states, or from those of the critic's own model."""
        if critic.trunk is not None:
            hidden = self._hidden(critic.trunk, micro)
        assert hidden is not None
        return critic.values(hidden)

    def _scores(self, model: PreTrainedModel, hidden: Tensor, micro: MicroBatch, entropy_grad: bool) -> Scores:
        with self._casting():
            logits = _head(model)(hidden).float() / self.temperature
        log_p = logits.log_softmax(-1)
        logprobs = log_p.gather(1, micro.targets.to(self.device)[:, None])[:, 0]
        if not entropy_grad:
            log_p = log_p.detach()
        return Scores(logprobs, -(log_p.exp() * log_p).sum(-1))

    def _casting(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, self._autocast) if self._autocast else nullcontext()


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
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
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
