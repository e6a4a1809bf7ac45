"""Stores and manifests that earlier commits wrote, read with today's code: the verbs say what the old ones said.

tests/data/upgrades has one file for each commit, made once by its own code on `local`: a matrix of two runs that
succeeded, and one that failed. It has the store's files with their times, what its verbs printed with `-o json`, and
what it rendered for Kubernetes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.cli import main
from launcher.monitor.database import open_database
from launcher.store.file import FileStore
from tests.support.documented import ROOT
from tests.unit.monitor.contents import ingested

Capture = pytest.CaptureFixture[str]
WRITTEN = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "tests/data/upgrades").glob("*.json"))}


class Old:
    """A store of before, in this test's folder, and today's verbs on it."""

    def __init__(self, day: str, folder: Path, capsys: Capture) -> None:
        self.written, self.capsys, store = WRITTEN[day], capsys, folder / "store"
        for name, text in self.written["files"].items():
            path = store / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("STORE", str(store)), encoding="utf-8")
            # a store tells a record's age by the time of its file
            os.utime(path, ns=(self.written["times"][name],) * 2)
        (folder / "slipway.yaml").write_text("store: ./store\nprices: {cpu: 0.20 EUR}\n", encoding="utf-8")
        os.chdir(folder)

    def said(self, verb: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.written["said"][verb]
        return rows

    def now(self, *words: str, code: int = 0) -> Any:
        assert main([*words, "-o", "json"]) == code, self.capsys.readouterr().err
        return json.loads(self.capsys.readouterr().out)


@pytest.fixture(params=WRITTEN)
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Old:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Old(request.param, tmp_path, capsys)


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Money has six decimals since 26 November."""
    return {"cost": pytest.approx(row["cost"], abs=1e-6)} if row.get("cost") is not None else {}


def kept(before: list[dict[str, Any]], now: list[dict[str, Any]], key: tuple[str, ...]) -> None:
    """Every field of every row has its value; today's rows may have more fields."""
    rows = {tuple(row[name] for name in key): row for row in now}
    assert len(rows) == len(now) == len(before)
    for row in before:
        found = rows[tuple(row[name] for name in key)]
        assert {name: found.get(name) for name in row} == {**row, **rounded(row)}


def test_every_commit_wrote_two_results_and_a_failure() -> None:
    assert sorted(WRITTEN) == ["2026-11-22", "2026-11-26", "2026-11-28"]
    for written in WRITTEN.values():
        assert sorted(row["state"] for row in written["said"]["status"]) == ["failed", "succeeded", "succeeded"]


def test_status_and_groups(old: Old) -> None:
    kept(old.said("status"), old.now("status"), ("run",))
    kept(old.said("groups"), old.now("groups"), ("group",))


def test_results(old: Old) -> None:
    kept(old.said("results"), old.now("results", "kept", "broken"), ("run", "metric"))


def test_cost(old: Old) -> None:
    now = old.now("cost")
    if "cost" in old.written["said"]:  # the commit of 22 November has no such verb
        kept(old.said("cost"), now, ("run",))
    else:
        assert {row["run"] for row in now} == {row["run"] for row in old.said("status")}


def test_what_would_be_deleted(old: Old) -> None:
    kept(old.said("gc"), old.now("gc", "--older-than", "0s"), ("what", "name"))


def test_gather(old: Old, tmp_path: Path) -> None:
    old.now("gather", "kept", "--to", "copies")
    copied = sorted(path.read_text() for path in tmp_path.glob("copies/**/summary.json"))
    assert copied == sorted(text for name, text in old.written["files"].items() if name.endswith("/summary.json"))


def test_a_failed_run_can_be_tried_again(old: Old) -> None:
    (again,) = old.now("retry", "broken", "--dry-run")
    assert (again["name"], again["state"]) == ("broken", "would be submitted")


def test_the_monitor_takes_it(old: Old, tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'monitor.db'}")
    try:
        runs = {row["run"]: row for row in ingested(engine, FileStore(tmp_path / "store"))["runs"]}
    finally:
        engine.dispose()
    said = old.said("status")
    assert len(runs) == len(said)
    for row in said:
        held = runs[row["run"]]
        assert held["name"].partition("[")[0] == row["name"]  # the monitor names the variant
        assert (held["state"], held["attempts"]) == (row["state"], row["attempts"])
        assert (held["created"], held["ended"], held["group_name"]) == (row["created"], row["ended"], row["group"])


def test_what_it_rendered_is_still_taken(old: Old, tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(old.written["rendered"], encoding="utf-8")
    assert {one["kind"] for one in yaml.safe_load_all(old.written["rendered"])} >= {"Job"}
    old.now("validate", str(file))
