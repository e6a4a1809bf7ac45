"""A verb tells a store that went away from one that is still to come: by what this machine remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cli import main
from launcher.errors import Unreachable
from launcher.store.opening import check_store, make_store, memory, open_known, open_store


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "slipway.yaml").write_text("store: ./store\n")
    return tmp_path


@pytest.mark.parametrize("verb", [["status"], ["cancel", "one"], ["logs", "one"], ["wait", "one"], ["groups"]])
@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_a_store_that_went_away_is_one_clear_line(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: list[str], left: str
) -> None:
    store = open_store((project / "store").as_uri())
    make_store(store)
    check_store(store, memory({"XDG_CACHE_HOME": str(project / "cache")}))
    (project / "store").rename(project / "aside")
    if left == "an empty folder":
        (project / "store").mkdir()
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    if verb[0] == "wait":  # it would wait for the store to come back
        with pytest.raises(Unreachable, match="unmounted, moved away"):
            open_known(store.url).folders("runs/")
        return
    assert main(verb) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "unmounted, moved away, deleted" in line
    assert not list(project.glob("store/*"))


def test_a_store_to_come_is_an_empty_one(project: Path) -> None:
    assert open_known((project / "store").as_uri()).folders("runs/") == []
    assert main(["status"]) == 0
    assert not (project / "store").exists()
