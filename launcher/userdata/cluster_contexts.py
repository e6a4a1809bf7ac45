"""How this machine reaches the clusters of its runs, where a job said so: a context of its kubeconfig.

Such a name means something on this machine only, so it is not in job.json. A submit notes it here for the verbs that
follow; a machine without the note asks the context of slipway.yaml, or the kubeconfig's current one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from launcher.decoding import decode
from launcher.spec.backends import traits
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob

KEPT: Final = 365 * 86400  # seconds that a note lasts


def folder() -> Path:
    home = Path(os.environ.get("HOME") or Path.home())
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "slipway" / "reached"


def remember(jobs: Iterable[ResolvedJob], options: Mapping[str, Any], notes: Path | None = None) -> None:
    """Notes how these runs are reached; without options, deletes what was noted before. A folder that cannot be written
    is no error: later verbs then ask the current context."""
    notes = notes or folder()
    try:
        if not options and not notes.is_dir():
            return
        notes.mkdir(parents=True, exist_ok=True, mode=0o700)
        for job in jobs:
            path = notes / f"{run_id(job)}.json"
            if options:
                part = path.with_suffix(f".{os.getpid()}")
                part.write_bytes(msgspec.json.encode(dict(options)))
                part.replace(path)
            else:
                path.unlink(missing_ok=True)
        for path in notes.iterdir():
            if time.time() - path.stat().st_mtime > KEPT:
                path.unlink(missing_ok=True)
    except OSError:
        return


def reached(job: ResolvedJob, notes: Path | None = None) -> dict[str, Any]:
    """The options by which this machine reaches a run's backend; empty where no note says so."""
    own = traits(job.backend).machine
    if not own:
        return {}
    notes = notes or folder()
    if not notes.is_dir():
        return {}
    try:
        noted = decode((notes / f"{run_id(job)}.json").read_bytes(), dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}
    return {name: value for name, value in noted.items() if name in own}
