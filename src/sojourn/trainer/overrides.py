"""Dotted overrides of a configuration: `optim.lr=1e-4`, `envs.0.families=[UnlockLocal]`."""

from __future__ import annotations

from typing import Any

import yaml

from sojourn.protocol.errors import UsageError


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set one `key.path=value` in plain data; the value is YAML, a number in the path indexes a list.

    Raises:
        UsageError: it is not of that form, or leads nowhere.
    """
    path, separator, text = override.partition("=")
    if not separator or not path:
        raise UsageError(f"not an override: {override!r} (expected key.path=value)")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"the value of {override!r} is not YAML: {one_line(error)}") from error
    keys = path.split(".")
    node: Any = data
    for depth, key in enumerate(keys):
        node, place = _place(node, key, ".".join(keys[: depth + 1]))
        if depth == len(keys) - 1:
            node[place] = value
            return
        if isinstance(node, dict) and node.get(place) is None:
            node[place] = {}
        node = node[place]


def _place(node: Any, key: str, path: str) -> tuple[Any, Any]:
    """Where `key` stands in `node`."""
    if isinstance(node, dict):
        return node, key
    if isinstance(node, list):
        if key.isdigit() and int(key) < len(node):
            return node, int(key)
        raise UsageError(f"no entry {path!r}: the list has {len(node)}")
    raise UsageError(f"{path!r} leads into a value that has no keys")


def one_line(error: Exception) -> str:
    """The message of an error without its line breaks."""
    return " ".join(str(error).split())
