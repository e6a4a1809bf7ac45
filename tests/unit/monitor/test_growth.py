"""How many statements and transactions the first ingest takes: many runs share each, evaluations too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.spec.model import Output
from launcher.store.file import FileStore
from tests.support.fakerun import FakeAttempt, eval_files, fake_job, write_run

TASKS = 4  # of each evaluation
BATCH = 32  # runs, or rollouts, of a transaction


@pytest.fixture
def count(tmp_path: Path) -> Any:
    """A function: how many evaluations -> what their first ingest took."""

    def counted(runs: int) -> Counter[str]:
        store = FileStore(tmp_path / f"store-{runs}", sync=False)
        for index in range(runs):
            job = fake_job("evaluate", config={"index": index}, outputs={"results": Output()})
            write_run(store, job, [FakeAttempt(outputs={"results": eval_files([True] * TASKS)})])
        engine = open_database(f"sqlite:///{tmp_path / f'{runs}.sqlite'}")
        follower = StoreFollower(engine, store)
        taken: Counter[str] = Counter()
        event.listen(engine, "commit", lambda *each: taken.update(["commit"]))
        event.listen(engine, "before_cursor_execute", lambda *each: taken.update(["statement"]))
        found = follower.once()
        assert (found.runs, found.written, found.rollouts, found.problems) == (runs, runs, runs * TASKS, ())
        engine.dispose()
        return taken

    return counted


def test_runs_and_their_results_share_transactions(count: Any) -> None:
    """It was four transactions and 21 statements a run."""
    few, many = count(BATCH), count(4 * BATCH)
    # runs, those that are complete, what refers to rollouts; and the rollouts
    assert many["commit"] <= 4 * (3 + TASKS) + 5
    assert many["statement"] <= 4 * BATCH * 5
    assert many["statement"] <= 4.2 * few["statement"]
