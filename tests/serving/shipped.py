"""The registered environments as tests open them, and what is known of them beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from sojourn.envs import registry
from sojourn.envs.base import EnvService
from sojourn.protocol.errors import UsageError

OPTIONS: dict[str, dict[str, Any]] = {"sciworld": {"jvms": 1}}
WORDS = {"sciworld": ["look around", "open door to kitchen"]}
"""Where listing the actions takes long."""


def service_of(name: str) -> EnvService:
    """The environment, or a skip with the line that says what it lacks here."""
    try:
        cls = registry.load(name)
        if (lack := cls.lack()) is not None:
            pytest.skip(lack)
        return cls(cls.Config(**OPTIONS.get(name, {})))
    except UsageError as error:
        if "not installed" not in str(error):
            raise
        pytest.skip(str(error))
