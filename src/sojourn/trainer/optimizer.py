"""AdamW over named parameters, with a warm-up, a clipped gradient and a state that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

Beta = Annotated[float, Field(ge=0, lt=1)]
"""How much of a moving average stays at each step."""


class OptimConfig(BaseModel):
    """AdamW with a linear warm-up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lr: float = Field(default=1e-6, gt=0, allow_inf_nan=False)
    """Learning rate once the warm-up is over."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    eps: float = Field(default=1e-8, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    warmup_steps: int = Field(default=0, ge=0)
    """Training steps over which the learning rate rises to `lr`."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """A longer gradient is scaled down to this norm."""


class Optimizer:
    """The optimiser of some parameters.

    Args:
        parameters: by name; the names are those of the checkpoint.
        config: its options.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], config: OptimConfig) -> None:
        self.parameters = dict(parameters)
        self.config = config
        self._adam = torch.optim.AdamW(
            self.parameters.values(),
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def begin_step(self, step: int, scale: float = 1.0) -> float:
        """Set and return the learning rate of training step `step` (from 0), times `scale`."""
        warm = min(1.0, (step + 1) / self.config.warmup_steps) if self.config.warmup_steps else 1.0
        rate = self.config.lr * warm * scale
        for group in self._adam.param_groups:
            group["lr"] = rate
        return rate

    def clip(self) -> float:
        """Clip the gradient; its norm before."""
        return float(nn.utils.clip_grad_norm_(self.parameters.values(), self.config.max_grad_norm))

    def step(self) -> None:
        self._adam.step()

    def clear(self) -> None:
        """Forget the gradient."""
        self._adam.zero_grad(set_to_none=True)

    def weights(self) -> dict[str, Tensor]:
        """The parameters by name."""
        return {name: p.detach() for name, p in self.parameters.items()}

    def tensors(self) -> dict[str, Tensor]:
        """The state, flat: `name/exp_avg` and so on."""
        state = self._adam.state
        return {f"{name}/{key}": v for name, p in self.parameters.items() for key, v in state.get(p, {}).items()}

    def load(self, weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
        """Take over what `weights` and `tensors` gave; names that are not of these parameters are left alone."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])
        number = {name: i for i, name in enumerate(self.parameters)}
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            name, _, what = key.rpartition("/")
            if name in number:
                state.setdefault(number[name], {})[what] = value
        groups = [{**g, "params": list(range(len(number)))} for g in self._adam.param_groups]
        self._adam.load_state_dict({"state": state, "param_groups": groups})
