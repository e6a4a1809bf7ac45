"""The same over a real S3 server: nothing here depends on a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cli import main
from launcher.store.base import Store
from tests.support.fakerun import login_pipeline

pytestmark = pytest.mark.s3


def test_every_view_works_from_s3(
    s3_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLIPWAY_STORE", s3_store.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    pipeline = login_pipeline(s3_store, n=20)
    for _ in range(2):  # from the store, then from the cache
        assert main(["status"]) == 0
        assert capsys.readouterr().out.count("succeeded") == 4
    assert main(["wait", pipeline.group]) == 0
    assert main(["results", pipeline.group]) == 0
    assert "eval-after against eval-before" in capsys.readouterr().out
    assert main(["compare", pipeline.before, pipeline.after]) == 0
    assert main(["report", pipeline.group]) == 0
    assert (tmp_path / "report.html").stat().st_size > 20_000
    capsys.readouterr()
    assert main(["logs", pipeline.before, "--tail", "1"]) == 0
