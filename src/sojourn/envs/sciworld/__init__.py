"""SciWorld: elementary science in a simulated building, on the ScienceWorld simulator."""

from sojourn.envs.sciworld.env import SciWorldEnv, SciWorldService

__all__ = ["SciWorldEnv", "SciWorldService"]
