"""A tool that a machine lacks: its tests are skipped and counted, in CI they fail."""

from __future__ import annotations

import pytest

from tests.support import needs
from tests.support.needs import TOOLS, enforce, lacking, lines, need


def skipped(reason: str) -> pytest.TestReport:
    return pytest.TestReport(
        "t.py::test", ("t.py", 1, "test"), {}, "skipped", ("t.py", 1, f"Skipped: {reason}"), "setup"
    )


@pytest.fixture(autouse=True)
def _own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "SLIPWAY_MAY_LACK"):
        monkeypatch.delenv(name, raising=False)


def test_a_skip_says_what_is_missing_and_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOLS, "two", needs.Tool("two things", "make two", ("sh", "no-such-program", "/no/such/file")))
    with pytest.raises(
        pytest.skip.Exception, match=r"^needs two things: make two \(no no-such-program, /no/such/file\)$"
    ):
        need("two")
    assert needs.marked("two").mark.args == (True,)
    assert needs.marked("two", missing=False).mark.args == (False,)


def test_in_ci_a_skip_for_a_tool_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.skip.Exception) as told:
        lacking("docker", "nothing answers")
    for ci, may_lack, reason, outcome in (
        ("", "", told.value.msg, "skipped"),
        ("true", "", told.value.msg, "failed"),
        ("true", "go", told.value.msg, "failed"),
        ("true", "go docker", told.value.msg, "skipped"),
        ("true", "", "this engine gives GPUs", "skipped"),
    ):
        monkeypatch.setenv("CI", ci)
        monkeypatch.setenv("SLIPWAY_MAY_LACK", may_lack)
        report = skipped(reason)
        enforce(report)
        assert report.outcome == outcome, (ci, may_lack, reason)
        if outcome == "failed":
            assert "nothing answers" in report.longreprtext
            assert "SLIPWAY_MAY_LACK=docker" in report.longreprtext


def test_skips_are_counted_by_tool() -> None:
    desktop, git = TOOLS["desktop"].reason, TOOLS["git"].reason
    assert lines([f"{git} (no git)", desktop, f"{desktop} (no Xvfb)", "this Python has none"]) == [
        "skipped: 2 need the desktop packages: sudo make desktop-tools",
        "skipped: 1 need git: sudo apt-get install git",
        "skipped: 1 for another reason: this Python has none",
    ]


def test_no_tool_is_taken_for_another() -> None:
    reasons = [tool.reason for tool in TOOLS.values()]
    assert not [(one, other) for one in reasons for other in reasons if one is not other and one.startswith(other)]
