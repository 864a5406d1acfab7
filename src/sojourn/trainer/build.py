"""From a configuration to the parts of a run: policy, engine, player, learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from sojourn.algorithms import registry
from sojourn.algorithms.agentevol import AgentEvolConfig
from sojourn.algorithms.base import Algorithm
from sojourn.algorithms.policy_gradient import PolicyGradient
from sojourn.client.interface import Envs
from sojourn.engines import models
from sojourn.engines.base import Engine
from sojourn.engines.hf import HFEngine
from sojourn.protocol.errors import UsageError
from sojourn.rollout.agent import FORMATS
from sojourn.rollout.player import Player
from sojourn.rollout.renderer import Renderer
from sojourn.trainer.config import TrainConfig, few_shots
from sojourn.trainer.evolving import EvolvingLearner
from sojourn.trainer.learner import Learner
from sojourn.trainer.offline.config import OfflineConfig
from sojourn.trainer.policy import TrainPolicy


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of."""

    policy: TrainPolicy
    engine: Engine
    player: Player
    learner: Learner
    tokenizer: PreTrainedTokenizerBase


def build(config: TrainConfig, envs: Envs) -> Parts:
    """Load the model and put the parts together. Seeds torch: adapters are drawn at random.

    Raises:
        UsageError: an unknown model, or one that cannot be trained or rendered for.
    """
    source = models.resolve(config.model.name)
    tokenizer = models.load_tokenizer(source)
    model = models.load_model(source, dtype=config.model.dtype, device=config.model.device)
    engine = HFEngine(model, name=f"hf:{source.name}", config=config.engine)
    torch.manual_seed(config.seed)
    algorithm_class = registry.load(config.algorithm.name)
    algorithm = algorithm_class(config.algorithm)
    policy = TrainPolicy(
        model,
        config.optim,
        temperature=config.sampling.temperature,
        lora=config.model.lora,
        autocast=config.model.autocast,
        reference=algorithm.needs_reference,
        critic=algorithm.critic,
    )
    player = player_of(config, envs, engine, Renderer(tokenizer))
    return Parts(policy, engine, player, _learner(config, policy, algorithm), tokenizer)


def player_of(config: TrainConfig | OfflineConfig, envs: Envs, engine: Engine, renderer: Renderer) -> Player:
    """Who plays, and how they talk."""
    return Player(
        envs=envs,
        engine=engine,
        renderer=renderer,
        format=FORMATS[config.rollout.format](),
        sampling=config.sampling,
        limits=config.rollout.limits,
        run_seed=config.seed,
        prompt=config.rollout.prompt,
        system_prompt=config.rollout.system_prompt,
        few_shot=few_shots(config.envs),
    )


def _learner(config: TrainConfig, policy: TrainPolicy, algorithm: Algorithm[Any]) -> Learner:
    options: dict[str, Any] = {
        "minibatches": config.trainer.minibatches,
        "epochs": config.trainer.epochs,
        "target_kl": config.trainer.target_kl,
        "token_budget": config.trainer.token_budget,
        "seed": config.seed,
    }
    if config.trainer.target_kl and not isinstance(algorithm, PolicyGradient):
        raise UsageError(f"trainer.target_kl: {config.algorithm.name} has no policy before the step to stay close to")
    if isinstance(config.algorithm, AgentEvolConfig):
        return EvolvingLearner(policy, algorithm, config.rewards(), config=config.algorithm, **options)
    return Learner(policy, algorithm, config.rewards(), **options)
