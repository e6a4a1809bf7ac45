"""Visits in the history of Chrome or Edge, as a step of a task's set-up adds them."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

EMPTY: Final = "history_empty.sqlite"  # a history without visits, among the files of Windows Agent Arena's package
# where OSWorld's harness gets one, and its name among the kept downloads of a task
DOWNLOAD: Final = (
    "https://huggingface.co/datasets/xlangai/ubuntu_osworld_file_cache/resolve/main/chrome"
    "/44ee5668-ecd5-4366-a6ce-c1c9b8d4e938/history_empty.sqlite?download=true"
)
KEPT: Final = "history_new.sqlite"
EPOCH: Final = datetime(1601, 1, 1, tzinfo=UTC)  # the browsers count microseconds from here
BY_LINK: Final = 0x30000000  # how a visit began: by a link, the first and last page of a chain

# what a guest prints where the file of a browser is, by the name of the step
PLACES: Final = {
    "update_browse_history": ("Google/Chrome", ".config/google-chrome"),
    "update_browse_history_edge": ("Microsoft/Edge", ".config/microsoft-edge"),
}


def place_of(step: str) -> list[str]:
    """The command that prints where the history file of a step's browser is, in Windows or Linux."""
    windows, linux = PLACES[step]
    told = f"['AppData', 'Local', *{windows.split('/')!r}, 'User Data'] if os.name == 'nt' else [{linux!r}]"
    code = f"import os; print(os.path.join(os.path.expanduser('~'), *({told}), 'Default', 'History'))"
    return ["python", "-c", code]


def write_history(empty: Path, out: Path, visits: Sequence[Any], now: datetime) -> None:
    """Copies an empty history to `out` and adds visits, each `{url, title, visit_time_from_now_in_seconds}`."""
    shutil.copyfile(empty, out)
    with closing(sqlite3.connect(out)) as base, base:
        for visit in visits:
            ago = timedelta(seconds=float(visit["visit_time_from_now_in_seconds"]))
            when = (now - ago - EPOCH) // timedelta(microseconds=1)
            page = base.execute(
                "INSERT INTO urls (url, title, visit_count, typed_count, last_visit_time, hidden)"
                " VALUES (?, ?, 1, 0, ?, 0)",
                (str(visit["url"]), str(visit["title"]), when),
            ).lastrowid
            base.execute(
                "INSERT INTO visits (url, visit_time, from_visit, transition, segment_id, visit_duration)"
                " VALUES (?, ?, 0, ?, 0, 0)",
                (page, when, BY_LINK),
            )
