"""The tiers: each test is in one of those that CI runs, or nightly; a folder that used too much is told."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests import nightly, tiers
from tests.support.outcomes import QUIET_LOOP, Outcome


def test_every_test_is_in_one_tier_of_ci_or_in_a_part_of_the_night() -> None:
    parts = [phases[0].marks for name, phases in tiers.TIERS.items() if name != "quick"]
    parts += [nightly.PARTS[name].marks for name in ("machine", "cluster", "alone", "cluster-alone")]
    for marked in product((False, True), repeat=4):
        names = dict(zip(("nightly", "cluster", "alone", "ci"), marked, strict=True))
        if (names["alone"] and not names["nightly"]) or (names["ci"] and names["cluster"]):
            continue  # `alone` is said of nightly tests, `ci` of those that are neither nightly nor the cluster's
        assert sum(bool(eval(marks, {}, names)) for marks in parts) == 1, names


def test_what_only_ci_runs_is_there() -> None:
    assert not [path for path in tiers.CI_ONLY if not list(tiers.ROOT.glob(f"{path}*"))]


def test_what_only_ci_runs_is_not_even_collected_by_make_test() -> None:
    ignored = {f"--ignore-glob={path}*" for path in tiers.CI_ONLY}
    assert ignored <= set(tiers.command(tiers.TIERS["test"][0]))
    assert not ignored & set(tiers.command(tiers.TIERS["ci"][0]))


def test_ci_looks_where_its_tests_are() -> None:
    paths = tiers.of_ci()
    assert paths[-1] in tiers.command(tiers.TIERS["ci"][0])
    for path in ("tests/images", "tests/integration/rl/test_ppo.py", "tests/integration/runtime/test_ends.py"):
        assert path in paths
    assert "tests/integration/backend" in paths  # its conftest marks them
    assert tuple(paths[: len(tiers.FIRST)]) == tiers.FIRST


def test_the_phases_of_a_tier_share_its_marks() -> None:
    assert all(len({phase.marks for phase in phases}) == 1 for phases in tiers.TIERS.values())


def test_a_folder_over_its_budget_and_one_without_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tiers, "BUDGETS", tmp_path / "budgets.yaml")
    tiers.BUDGETS.write_text("unit/a: 10\nintegration/b: 10\n")
    results = [
        Outcome("tests/unit/a/test_x.py::test_1", cpu=9.0),
        Outcome("tests/unit/a/deeper/test_y.py::test_1[a/b]", cpu=5.9),
        Outcome("tests/integration/b/test_z.py::test_1", cpu=15.1, seconds=60.0),
        Outcome("tests/images/test_i.py::test_1", cpu=1.0),
    ]
    found = tiers.folders(results)
    assert [(folder.name, folder.tests) for folder in found] == [("integration/b", 1), ("unit/a", 2), ("images", 1)]
    assert tiers.over(found) == [
        "integration/b: 15 core-seconds, 1.5 times the budget is 15",
        "images: 1 core-seconds, and no budget in tests/budgets.yaml",
    ]


def test_a_slow_machine_spends_no_more_of_a_budget() -> None:
    fast = [
        Outcome("tests/unit/a/test_x.py::test_1", cpu=3.0, loop=QUIET_LOOP),
        Outcome("tests/b/test_y.py::test_1", cpu=1),
    ]
    slow = [replace(one, cpu=2 * one.cpu, loop=2 * one.loop) for one in fast]
    assert [one.cpu for one in tiers.on_a_quiet_machine(fast)] == [3, 1]
    assert [one.cpu for one in tiers.on_a_quiet_machine(slow)] == [3, 1]
    assert [one.cpu for one in tiers.on_a_quiet_machine(fast[1:])] == [1]  # where no loop was measured


def test_what_was_not_run_here_cannot_be_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    assert tiers.main(["test", "ci", "--check"]) == 2
    assert capsys.readouterr().out == "not run here yet: test, ci\n"
