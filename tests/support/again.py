"""The tests of another module once more, with other values of a fixture: a real server instead of a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any


def asking_for(fixtures: set[str], module: ModuleType) -> dict[str, Any]:
    """The tests of `module` that ask for one of these fixtures: name -> function, for the `globals()` of the caller."""
    tests = {name: value for name, value in vars(module).items() if name.startswith("test_")}
    return {name: test for name, test in tests.items() if fixtures & _asked(test)}


def _asked(test: Callable[..., None]) -> set[str]:
    """Its arguments, without those that its own `parametrize` gives."""
    given = [mark.args[0] for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    names = {name.strip() for each in given for name in (each.split(",") if isinstance(each, str) else each)}
    return set(inspect.signature(test).parameters) - names
