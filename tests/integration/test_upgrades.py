"""What earlier commits wrote, read with today's code: the verbs say what the old ones said, value by value.

tests/data/upgrades has one file for each commit, made by its own code on `local` (tests/support/upgrades.py): a matrix
of two runs, two evaluations of the same tasks, and a run that failed after a checkpoint.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from sqlalchemy import text

from launcher.cli import main
from launcher.monitor.database import open_database
from launcher.store.file import FileStore
from tests.support import upgrades_inside as inside
from tests.support.upgrades import DATA, ROOT, SAID, SOURCE, as_bytes, gathered, here, write
from tests.unit.monitor.contents import ingested

Capture = pytest.CaptureFixture[str]
WRITTEN: Final = {path.stem: json.loads(path.read_text()) for path in sorted(DATA.glob("*.json"))}
DAYS: Final = ("2026-11-22", "2026-11-23", "2026-11-26", "2026-11-28")  # of 24 and 25 November there is no commit
# What a stored field can have beyond the values that the code of a day takes: before 0.1.0, which is the first release
# What no evaluation said before 29 November, so that today's code says that it does not know it
JUDGE: Final = "judge unknown: neither {a} nor {b} says which judge, programs and desktop its tasks had"
NEW_BEFORE_THE_FIRST_RELEASE: Final = {"Episode.outcome": {"not run"}}


class Old:
    """A store of before, in this test's folder, and today's verbs on it."""

    def __init__(self, day: str, folder: Path, capsys: Capture) -> None:
        self.written, self.capsys, self.folder, self.store = WRITTEN[day], capsys, folder, folder / "store"
        for name, body in self.written["files"].items():
            path = self.store / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_bytes(body, self.store))
            # a store tells a record's age by the time of its file
            os.utime(path, ns=(self.written["times"][name],) * 2)
        for file in SOURCE.glob("*.yaml"):
            (folder / file.name).write_bytes(file.read_bytes())
        os.chdir(folder)

    def said(self, verb: str) -> Any:
        return here(self.written["said"].get(verb), self.folder)

    def now(self, *words: str) -> Any:
        assert main([*words, "-o", "json"]) == 0, self.capsys.readouterr().err
        return json.loads(self.capsys.readouterr().out)


@pytest.fixture(params=WRITTEN)
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Old:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "SLIPWAY_STORE", "SLIPWAY_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Old(request.param, tmp_path, capsys)


def kept(before: Any, now: Any, where: str = "") -> None:
    """Every field has its value; today's mappings may have more fields."""
    if isinstance(before, dict):
        assert isinstance(now, dict), where
        for name, value in before.items():
            assert name in now, f"{where}.{name}"
            kept(value, now[name], f"{where}.{name}")
    elif isinstance(before, list):
        assert len(now) == len(before), where
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            kept(one, other, f"{where}[{number}]")
    elif where.endswith((".cost", ".cost_per_solved")) and before is not None:
        assert now == pytest.approx(before, abs=1e-6), where  # money has six decimals since 26 November
    else:
        assert now == before, where


def by(rows: Sequence[dict[str, Any]], *key: str) -> dict[str, dict[str, Any]]:
    found = {" ".join(str(row[name]) for name in key): row for row in rows}
    assert len(found) == len(rows)
    return found


KEYS: Final = {
    "status": ("run",),
    "groups": ("group",),
    "results": ("run", "benchmark", "metric"),
    "cost": ("run",),
    "gc": ("what", "name"),
    "retry": ("name",),
}


def test_every_commit_wrote_results_evaluations_and_a_failure() -> None:
    assert tuple(WRITTEN) == DAYS
    for written in WRITTEN.values():
        ends = ["broken failed", "idles succeeded", "kept succeeded", "kept succeeded", "solves succeeded"]
        assert [" ".join(pair) for pair in states(written)] == ends
        assert [row["checkpoint"] for row in written["said"]["status"] if row["name"] == "broken"] == [7]
        assert "compare" in written["said"]
    assert [day for day in DAYS if WRITTEN[day]["monitor"]] == ["2026-11-26", "2026-11-28"]  # there was none before


def test_the_page_has_the_matrix() -> None:
    """Each row is a test of this file, each column what a commit wrote."""
    page = (ROOT / "docs/reference/promises.md").read_text(encoding="utf-8").partition("## What earlier code wrote")[2]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.partition("\n## ")[0].splitlines()
        if line.startswith("|")
    ]
    assert head == ["", *DAYS]
    table = {name.strip("`").removesuffix(" --dry-run"): cells for name, *cells in rows}
    told = {True: "as then", False: "new"}
    for verb in (*SAID, "compare", "gather"):
        assert table[verb] == [told[WRITTEN[day]["said"].get(verb) is not None] for day in DAYS], verb
    assert table["the monitor's database"] == [told[bool(WRITTEN[day]["monitor"])] for day in DAYS]
    assert len(table) == len(SAID) + 6


@pytest.mark.parametrize("verb", SAID)
def test_a_verb_says_what_it_said(old: Old, verb: str) -> None:
    now = by(old.now(*SAID[verb]), *KEYS[verb])
    before = old.said(verb)
    if verb == "retry":  # the new run's name follows the packages of this machine
        before[0]["run"] = now["broken"]["run"]
    if before is None:  # the commit of 22 November has no such verb
        assert (verb, old.written["day"]) == ("cost", "2026-11-22")
        assert set(now) == {row["run"] for row in old.said("status")}
    else:
        kept(by(before, *KEYS[verb]), now)
        assert len(now) == len(before)


def test_compare(old: Old) -> None:
    (group,) = old.said("groups")
    now = old.now("compare", f"{group['group']}/idles", f"{group['group']}/solves")
    for before in old.said("compare"):
        before["notes"].append(JUDGE.format(**before))
        kept([before], now)


def test_gather(old: Old, tmp_path: Path) -> None:
    old.now("gather", "kept", "solves", "--to", "copies")
    assert gathered(tmp_path / "copies") == old.said("gather")


def test_the_profile_is_read_as_it_was(old: Old) -> None:
    kept(old.said("profile"), inside.profile())


def test_the_monitors_database_is_taken_over(old: Old, tmp_path: Path) -> None:
    """It is brought to today's version with its rows, and a pass over the store leaves what a new database has."""
    fresh = open_database(f"sqlite:///{tmp_path / 'fresh.sqlite'}")
    file = tmp_path / "monitor.sqlite"
    if old.written["monitor"]:
        file.write_bytes(zlib.decompress(base64.b64decode(old.written["monitor"])))
    engine = open_database(f"sqlite:///{file}")
    try:
        if before := old.written["views"]:
            with engine.connect() as connection:
                for view, rows in before.items():
                    found = connection.execute(text(f"SELECT * FROM {view}")).mappings()
                    kept(rows, [dict(row) for row in found], view)
            assert len(before["v_runs"]) == len(old.said("status"))
        read = {row["run"]: row for row in ingested(fresh, FileStore(tmp_path / "store"))["runs"]}
    finally:
        engine.dispose()
        fresh.dispose()
    assert len(read) == len(old.said("status"))
    for row in old.said("status"):
        held = read[row["run"]]
        assert held["name"].partition("[")[0] == row["name"]  # the monitor names the variant
        assert (held["state"], held["attempts"]) == (row["state"], row["attempts"])
        assert (held["created"], held["ended"], held["group_name"]) == (row["created"], row["ended"], row["group"])


def test_what_it_rendered_is_still_taken(old: Old, tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(old.written["rendered"], encoding="utf-8")
    assert {one["kind"] for one in yaml.safe_load_all(old.written["rendered"])} >= {"Job"}
    old.now("validate", str(file))


def test_a_stored_field_that_old_code_decodes_strictly_gets_no_new_value(old: Old) -> None:
    before, today = old.written["strict"], inside.strict()
    assert {"Output.kind", "Output.sync", "Episode.outcome"} <= set(before)
    # the code of 22 and 23 November took no other reasons; later code shows one that it does not know
    assert set(before) - set(today) <= {"Exit.reason", "Result.reason"}
    for field in set(before) & set(today):
        new = set(today[field]) - set(before[field]) - NEW_BEFORE_THE_FIRST_RELEASE.get(field, set())
        assert not new, f"{field}: the code of {old.written['day']} cannot read {new}"


def states(written: dict[str, Any]) -> list[tuple[str, str]]:
    """The job's name, without its variant, and its state, of each run."""
    return sorted((row["name"].partition("[")[0], row["state"]) for row in written["said"]["status"])


@pytest.mark.ci
def test_the_command_makes_such_a_file(tmp_path: Path) -> None:
    """For today's code, which is the next one to be upgraded from."""
    found = json.loads(write(ROOT, tmp_path).read_text(encoding="utf-8"))
    before = WRITTEN["2026-11-28"]
    assert found.keys() == before.keys()
    assert found["said"].keys() == before["said"].keys()
    assert states(found) == states(before)
    assert str(tmp_path.parent) not in json.dumps(found["said"])
