"""Limits, leases and tokens of one environment server."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

MIB = 1 << 20
SENDABLE = r"[!-~]+"
"""What a token may hold: anything else would not come through a header as it is."""


class DialectsConfig(BaseModel):
    """How the servers that we imitate are imitated: `/agentgym/{env}/...` and `/openenv/{env}/...`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    root: Literal["agentgym", "openenv"] | None = None
    """The dialect spoken at the root path as well, for clients that are given a bare host and port."""
    root_env: str | None = None
    """The environment that answers there."""
    legacy_scoring: bool = False
    """AgentGym's BabyAI score, which adds the latest reward at every step; else the score stays in [0, 1]."""
    goal_map: Path | None = None
    """TextCraft goals by AgentGym's `data_idx`, as `sojourn import-goal-map` writes them; else our own order."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.root is None) != (self.root_env is None):
            raise ValueError("root and root_env go together")
        return self


class ServingConfig(BaseModel):
    """How one worker process serves. The defaults suit text environments on one machine."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    worker: str = Field(default="w0", pattern=r"^[a-z0-9-]{1,32}$")
    """Prefix of every session id, so that an id names its worker."""
    workers: int = Field(default=1, ge=1)
    """Workers behind one address, this one included."""
    dialects: DialectsConfig = DialectsConfig()
    max_sessions: int = Field(default=1024, ge=1)
    """Open sessions; one more is answered 429."""
    retry_after_s: float = Field(default=1.0, gt=0)
    """What a 429 tells the client to wait."""
    lease_s: float = Field(default=600.0, gt=0)
    """How long a session lives without being used or renewed, unless its creator says otherwise."""
    max_lease_s: float = Field(default=86_400.0, gt=0)
    sweep_s: float = Field(default=1.0, gt=0)
    """How often expired sessions are looked for."""
    deadline_s: float = Field(default=30.0, gt=0)
    """The longest one operation on one world may take, waiting for a thread included."""
    threads: int = Field(default_factory=lambda: max(16, os.cpu_count() or 1), ge=1)
    """Threads shared by the environments whose `spec.execution` is `thread`; by default one a core, and at least 16."""
    max_body_bytes: int = Field(default=MIB, ge=1024)
    max_batch: int = Field(default=1024, ge=1)
    """Items of one `/v1/steps` request."""
    max_fork: int = Field(default=256, ge=1)
    """Children of one fork request."""
    max_snapshot_bytes: int = Field(default=64 * MIB, ge=1024)
    """The largest single snapshot, taken here or uploaded."""
    snapshot_store_bytes: int = Field(default=512 * MIB, ge=1024)
    """All stored snapshots together; the least recently used are evicted."""
    drain_s: float = Field(default=10.0, ge=0)
    """How long a shutdown waits for operations in flight."""
    token: SecretStr | None = None
    """Bearer token that may do everything; None leaves the server open (loopback only)."""
    step_token: SecretStr | None = None
    """Second token that may only step."""

    @model_validator(mode="after")
    def _tokens(self) -> Self:
        if self.step_token is not None and self.token is None:
            raise ValueError("step_token needs a token beside it: without one everybody may do everything")
        for secret in (self.token, self.step_token):
            if secret is not None and not re.fullmatch(SENDABLE, secret.get_secret_value()):
                raise ValueError("a token must be printable ASCII characters without spaces, and not empty")
        if self.token is not None and self.token == self.step_token:
            raise ValueError("token and step_token must differ")
        return self
