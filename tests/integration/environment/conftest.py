from __future__ import annotations

from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from tests.contract.environment.worlds import with_worlds, world

__all__ = ["world"]
IN_CI = (ActionType.CLICK, ActionType.KEY, ActionType.TYPE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    with_worlds(metafunc, programs=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A new desktop for each action of each environment: a second each. CI does every action in one environment, and
    a few in the others; the rest is the night's."""
    for item in items:
        if item.path.parent != Path(__file__).parent or not isinstance(item, pytest.Function):
            continue
        if item.originalname == "test_any_action_is_taken_or_refused":
            action = item.callspec.params["action"]
            assert isinstance(action, Action)
            if item.callspec.params["world"] != "desktop" and action.type not in IN_CI:
                item.add_marker(pytest.mark.nightly)
