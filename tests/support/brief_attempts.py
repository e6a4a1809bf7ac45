"""A run ends as lost when MAX_BRIEF_ATTEMPTS of its attempts in a row died before their first heartbeat. A storm that
waits for `succeeded` must not kill that often in a row there, or it ends the run itself."""

from __future__ import annotations

from launcher.protocol.read import read_run
from launcher.reasons import MAX_BRIEF_ATTEMPTS
from launcher.store.base import Store
from launcher.store.layout import RunKeys


def survives_a_kill(store: Store, run: str, beat: float) -> bool:
    """Whether the run may be tried again after one more kill, however early. `beat`: seconds, of its timing."""
    if store.head(RunKeys(run).job) is None:  # not even started
        return True
    newest = read_run(store, run).computing[1 - MAX_BRIEF_ATTEMPTS :]
    return len(newest) < MAX_BRIEF_ATTEMPTS - 1 or not all(attempt.brief("main-0", beat) for attempt in newest)
