"""Which jobs must end although their run has no result: nobody would end them, and their nodes are billed."""

from __future__ import annotations

from typing import Final

from launcher.errors import NotFound
from launcher.protocol.finish import seconds_silent
from launcher.protocol.read import read_run
from launcher.store.base import Store

UNSENT: Final = 45 * 60.0  # seconds that a node waits for a job that no launcher has sent
SILENT: Final = 900.0  # seconds without a heartbeat, beyond those after which another node may take over


def overdue(store: Store, run: str, status: str, missing: str) -> str:
    """Why the jobs of a run must end; "" if they may go on. Two witnesses: Azure ML says that the nodes do not respond,
    and their heartbeat has stopped; or the workspace has no job `missing`, for which a node has waited for long: the
    launcher that was to send it is gone. Raises Unreachable when the store cannot be read.

    A job that waits in a queue costs nothing. One that runs without a heartbeat may have waited for hours until a
    moment ago, after its spot nodes were taken back; nothing says since when it runs, so the limit in it must end it.
    """
    if status != "NotResponding" and not missing:
        return ""
    try:
        view = read_run(store, run, full=False)
    except NotFound:
        return ""  # a submit on another machine is about to write it, or its store is another
    if missing and view.attempts:
        waiting = view.now - max(view.attempts[-1].claimed.values(), default=view.now)
        if waiting > UNSENT:
            return f"{missing} was never sent, and the others have waited for it for {waiting / 60:.0f} min"
    if status != "NotResponding":
        return ""
    silent = seconds_silent(view) if view.attempts else 0.0
    stale = view.job.timing.stale if view.job is not None else 0.0
    if silent <= stale + SILENT:
        return ""
    return f"Azure ML says that its nodes do not respond, and they have been silent for {silent / 60:.0f} min"
