"""Every test of this folder runs once for each backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import WITH_AN_ENGINE
from tests.integration.backend.harness import HARNESSES, Harness
from tests.support.engine import engine

__all__ = ["engine", "harness"]


# of these the jobs are bound to each other, or have several ranks: on a cluster that takes JobSet's manager
SETS = ("test_cut_off_anywhere_then_again_is_once", "test_a_plan_writes_nothing", "test_a_group_with_roles")
STAGES = "test_a_stage_that_died_before_its_record_of_work_serves_the_next"  # one object with both, in CI as well
MARKS = {
    "kubernetes": [pytest.mark.cluster],
    "docker": [pytest.mark.ci, pytest.mark.timeout(WITH_AN_ENGINE)],
    "azureml": [pytest.mark.filterwarnings("ignore::DeprecationWarning")],  # of the SDK's marshmallow
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        if item.callspec.params.get("harness") == "kubernetes" and item.originalname == STAGES:
            item.add_marker(pytest.mark.cluster("jobset"))
        if item.callspec.params.get("harness") == "kubernetes" and item.originalname in SETS:
            item.add_marker(pytest.mark.cluster("jobset"))
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, [])) for name in sorted(HARNESSES)])
def harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    with HARNESSES[request.param](request, tmp_path, monkeypatch) as made:
        yield made
