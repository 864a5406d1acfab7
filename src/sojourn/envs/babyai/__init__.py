"""BabyAI (minigrid's levels) as a text game: see `env`."""

from sojourn.envs.babyai.env import BabyAIConfig, BabyAIEnv, BabyAIService

__all__ = ["BabyAIConfig", "BabyAIEnv", "BabyAIService"]
