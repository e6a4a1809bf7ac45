"""What the tests of two real backends share: a run that moves from one to the other, and what it left on this disk."""

from __future__ import annotations

from pathlib import Path

from launcher.backends.base import Backend
from launcher.spec.model import ResolvedJob
from launcher.store.base import Store
from launcher.userdata.cache import Cache
from launcher.verbs.reap import reap


class MovedRuns:
    """`path` holds the store, and the steps that the command of tests/integration/local/test_moving.py notes."""

    path: Path
    store: Store
    backends: dict[str, Backend]

    def of(self, one: ResolvedJob) -> Backend:
        return self.backends[one.backend]

    def steps(self, attempt: int) -> list[int]:
        path = self.path / "steps"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [int(row[1]) for row in rows if len(row) == 2 and row[0] == str(attempt)]

    def newest(self, run: str, attempt: int) -> int:
        """The step of the attempt's newest complete checkpoint; -1 before the first."""
        folder = self.path / "store/runs" / run / "attempts" / str(attempt) / "checkpoints"
        return max((int(path.parent.name) for path in folder.glob("*/complete.json")), default=-1)

    def reap(self) -> list[tuple[str, str]]:
        rows = reap(self.store, self.of, self.backends, cache=Cache(self.path / "cache"))
        return [(row.did, row.detail) for row in rows]
