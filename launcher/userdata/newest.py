"""The newest run of each job that this user submitted from this machine, by the store and the job's name: so that a
submit can say how its new run differs. Kept without a request to the store; losing it loses that line only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from launcher.errors import SlipwayError
from launcher.spec.hashing import decode_job, encode_job
from launcher.spec.model import ResolvedJob
from launcher.userdata.cache import cache_folder


def remember(store: str, jobs: Mapping[str, ResolvedJob]) -> None:
    """Keeps the jobs by their names (of a matrix: with the variant). A folder that cannot be written is no error."""
    for name, job in jobs.items():
        path = _path(store, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(encode_job(job))
            part.replace(path)
        except OSError:
            return


def newest(store: str, name: str) -> ResolvedJob | None:
    """The job that was kept under this name; None without one, and for one that this version cannot read."""
    try:
        return decode_job(_path(store, name).read_bytes())
    except (OSError, SlipwayError):
        return None


def _path(store: str, name: str) -> Path:
    place = hashlib.sha256(f"{store}\n{name}".encode()).hexdigest()[:32]
    return cache_folder() / "newest" / f"{place}.json"
