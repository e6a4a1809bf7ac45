"""Our functions in the order in which a program calls them first: what a page that explains the program must name.

`recorded` records this process and its threads. A program of several processes is recorded by `environment`: Python
imports `sitecustomize` when it starts, and every process appends to a file of its own.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_ROW: Final = re.compile(r"^\| `([\w/]+\.py:[\w.]+)` \|", re.MULTILINE)


class Profiler:
    """Calls `keep` with `file:function` when a function of ours is called for the first time."""

    def __init__(self, keep: Any) -> None:
        self.keep = keep
        self.seen: set[Any] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # modules and bodies of classes are no functions
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code not in self.seen:
            self.seen.add(code)
            path = code.co_filename
            if path.startswith(f"{ROOT}/") and "site-packages" not in path:
                self.keep(f"{path[len(str(ROOT)) + 1 :]}:{code.co_qualname}")


@contextmanager
def recorded() -> Iterator[list[str]]:
    calls: list[str] = []
    profiler = Profiler(calls.append)
    threading.setprofile(profiler)
    sys.setprofile(profiler)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def environment(folder: Path) -> dict[str, str]:
    """A variable with which Python writes its calls below `folder`; the supervisor hands it to its runs."""
    hook = folder / "hook"
    hook.mkdir(parents=True)
    (hook / "sitecustomize.py").write_text(
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        f"from tests.support import first_calls; first_calls.begin({str(folder)!r})\n"
    )
    return {"PYTHONPATH": str(hook)}


def begin(folder: str) -> None:
    """Records this process, and those that it forks, until they end."""

    def keep(call: str) -> None:
        with Path(folder, f"{os.getpid()}.calls").open("a") as file:
            file.write(f"{call}\n")

    profiler = Profiler(keep)
    os.register_at_fork(after_in_child=profiler.seen.clear)
    threading.setprofile(profiler)
    sys.setprofile(profiler)


def processes(folder: Path) -> list[list[str]]:
    """The calls of each process that was recorded below `folder`."""
    return [path.read_text().splitlines() for path in sorted(folder.glob("*.calls"))]


def listed(page: Path, heading: str = "") -> list[str]:
    """The functions in the first column of a section's tables; without a heading, of the whole page."""
    text = page.read_text(encoding="utf-8")
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return _ROW.findall(text)


def in_order(calls: list[str], named: list[str]) -> list[str]:
    """Those of the calls that are named."""
    return [call for call in calls if call in named]
