"""A task on a real Linux desktop: an X server, a window manager, an editor."""

from __future__ import annotations

from pathlib import Path

from eval.config import convert
from eval.run import RunConfig, evaluate
from tests.support.desktops import need_desktops


def test_the_expert_writes_the_line_into_the_note(tmp_path: Path) -> None:
    need_desktops()
    tasks = {"count": 1, "seed": 1_000_000}
    given = {"benchmark": "note", "environment": "desktop", "tasks": tasks, "agent": {"kind": "scripted"}}
    rows = evaluate(convert(given, RunConfig, "run"), tmp_path)
    figures = {row.metric: (row.value, row.n, row.infra_failures) for row in rows}
    assert figures["success"] == (1.0, 1, 0)
    assert figures["step_accuracy"] == (1.0, 4, 0)  # end of the file, the line, save, done
