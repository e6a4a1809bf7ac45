"""Which jobs must end although their run has no result: nobody would end them, and their nodes are billed."""

from __future__ import annotations

from typing import Final

from launcher.errors import NotFound
from launcher.protocol.finish import silence
from launcher.protocol.read import read_run
from launcher.store.base import Store

SILENT: Final = 3600.0  # seconds beyond those after which another node may take over: it may wait in a queue


def overdue(store: Store, run: str, status: str) -> str:
    """Why the jobs of a run must end; "" if they may go on. A job that waits in a queue costs nothing. One that
    runs for too long is ended by Azure ML itself, by the limit in it. Raises Unreachable when the store does."""
    if status not in ("Running", "NotResponding"):
        return ""
    try:
        view = read_run(store, run, full=False)
    except NotFound:
        return ""  # a submit on another machine is about to write it, or its store is another
    if not view.attempts:
        return ""  # the image is pulled, or the inputs are loaded: `limits` of the job counts that
    silent = silence(view)
    stale = view.job.timing.stale if view.job is not None else 0.0
    return f"its nodes have been silent for {silent / 60:.0f} min" if silent > stale + SILENT else ""
