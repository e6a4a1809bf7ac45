"""Desktops with a task of OSWorld's format, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from eval.benchmarks.osworld import environment
from eval.desktop import Task
from eval.desktops.live import LiveDesktop
from tests.support.desktops import need_isolation
from tests.support.documented import ROOT
from tests.support.needs import need

JUDGE = ROOT / ".venv-osworld/bin/python"


def need_judge() -> None:
    need_isolation()
    need("osworld")


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {"folder": str(folder), "judge": str(JUDGE), "screen": [1280, 720], "tree": False, **more}


@contextlib.asynccontextmanager
async def opened(folder: Path, **more: Any) -> AsyncIterator[tuple[LiveDesktop, Task]]:
    """A desktop, not reset yet, and the first task of the folder."""
    (task,) = environment.tasks(1, 0, options(folder, **more))
    desktop = environment.desktop(options(folder, **more))
    assert isinstance(desktop, LiveDesktop)
    try:
        yield desktop, task
    finally:
        await desktop.close()
