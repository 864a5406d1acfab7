"""Sojourn trains LLM agents over long horizons by multi-turn reinforcement learning."""

__version__ = "0.1.0"
