"""The newest run of each job that this user submitted from this machine, by the store and the job's name: so that a
submit can say how its new run differs. Kept without a request to the store; losing it loses that line only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from launcher.errors import SlipwayError
from launcher.files import keep
from launcher.spec.hashing import decode_job, encode_job
from launcher.spec.model import ResolvedJob
from launcher.userdata.cache import cache_folder


def remember(store: str, jobs: Mapping[str, ResolvedJob]) -> None:
    """Keeps the jobs by their names (of a matrix: with the variant). A folder that cannot be written is no error."""
    for name, job in jobs.items():
        keep(_path(store, name), encode_job(job))


def newest(store: str, name: str) -> ResolvedJob | None:
    """The job that was kept under this name; None without one, and for one that this version cannot read."""
    try:
        return decode_job(_path(store, name).read_bytes())
    except (OSError, SlipwayError):
        return None


def _path(store: str, name: str) -> Path:
    place = hashlib.sha256(f"{store}\n{name}".encode()).hexdigest()[:32]
    return cache_folder() / "newest" / f"{place}.json"
