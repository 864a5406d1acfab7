"""Classes by name, and what is said of those that cannot be had."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from sojourn import plugins
from sojourn.plugins import Registry
from sojourn.protocol.errors import UsageError

FOUND = {
    "overflow": "builtins:OverflowError",
    "zero": "builtins:ZeroDivisionError",
    "missing": "no_such_package_here:Thing",
    "renamed": "json:NoSuchThing",
    "function": "json:dumps",
}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[object]:
    points = [EntryPoint(name, value, "group") for name, value in FOUND.items() if name != "overflow"]
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: points if group == "group" else [])
    return Registry("fault", "group", {"overflow": FOUND["overflow"]}, ArithmeticError)


def test_ours_and_theirs(registry: Registry[object]) -> None:
    assert registry.names() == sorted(FOUND)
    assert registry.load("overflow") is OverflowError
    assert registry.load("zero") is ZeroDivisionError


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("overflw", r"no fault 'overflw', did you mean 'overflow'\? \(known: function, .*\)"),
        ("missing", "fault 'missing' needs 'no_such_package_here', which is not installed"),
        ("renamed", "fault 'renamed' cannot be loaded from json:NoSuchThing: "),
        ("function", r"fault 'function' does not lead to an ArithmeticError class \(json:dumps\)"),
    ],
)
def test_what_cannot_be_had_is_one_line(registry: Registry[object], name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as raised:
        registry.load(name)
    assert "\n" not in str(raised.value)
