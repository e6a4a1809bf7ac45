"""The tests of another module once more, with other values of a fixture: a real server instead of a file."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any


def asking_for(fixtures: set[str], module: ModuleType) -> dict[str, Any]:
    """The tests of `module` that ask for one of these fixtures: name -> function, for the `globals()` of the caller."""
    tests = {name: value for name, value in vars(module).items() if name.startswith("test_")}
    return {name: test for name, test in tests.items() if fixtures & set(inspect.signature(test).parameters)}
