"""Environment servers as a trainer sees them: one server (`session`), several (`pool`), somebody's AgentGym server."""

from sojourn.client.agentgym import AgentGymEnv
from sojourn.client.pool import EnvPool
from sojourn.client.session import EnvClient, EnvSession

__all__ = ["AgentGymEnv", "EnvClient", "EnvPool", "EnvSession"]
