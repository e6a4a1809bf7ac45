"""A pipeline on this machine, with real processes: run, deleted, submitted again, computed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.deleting.delete import carry_out
from launcher.deleting.plan import plan_rm
from launcher.errors import Conflict
from launcher.spec.hashing import run_id
from launcher.store.layout import RunKeys
from launcher.verbs.retry import retry
from tests.integration.deleting.stores import keys
from tests.integration.local.machine import Machine, machine, wait_for
from tests.support.jobs import OUT, changed, reads

WRITE = "out = pathlib.Path(E['SLIPWAY_OUTPUTS'], 'out'); out.mkdir(exist_ok=True); (out / 'a').write_text('1')\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path) as made:
        yield made


def rm(here: Machine, *runs: str) -> None:
    carry_out(here.store, plan_rm(here.store, runs), verb="rm")


def test_a_deleted_pipeline_computes_nothing_until_it_is_asked_to(here: Machine) -> None:
    first = here.job("first", WRITE + "say('ran', 'first')", outputs=OUT)
    second = here.job("second", "say('ran', 'second')", inputs={"x": reads(first)})
    here.submit(first, second)
    here.wait(first, second)
    rm(here, run_id(first))
    rm(here, run_id(second))
    tombstones = {*RunKeys(run_id(first)).tombstone, *RunKeys(run_id(second)).tombstone}
    assert keys(here.store, "runs/") == tombstones

    again = here.submit(first, second)
    assert [(one.state, one.reason) for one in again] == [("succeeded", "deleted")] * 2
    assert "deleted by launcher rm" in again[0].message
    assert here.lines("ran") == ["first", "second"]
    assert keys(here.store, "runs/") == tombstones

    third = here.job("third", "say('ran', 'third')", inputs={"x": reads(first)})
    with pytest.raises(Conflict, match=f"launcher retry {run_id(first)}"):
        here.submit(first, third)
    (anew,) = retry(here.store, [run_id(first)]).runs
    here.submit(anew)
    assert [result.outcome for result in here.wait(anew)] == ["succeeded"]
    assert [one.state for one in here.submit(first, third)] == ["succeeded", "submitted"]
    assert [result.outcome for result in here.wait(third)] == ["succeeded"]
    assert here.lines("ran") == ["first", "second", "first", "third"]


def test_a_run_that_reads_at_this_moment_keeps_what_it_reads(here: Machine) -> None:
    first = here.job("first", WRITE, outputs=OUT)
    held = "while not (here / 'go').exists(): time.sleep(0.02)\n"
    second = here.job("second", held + "say('ran', 'second')", inputs={"x": reads(first)})
    here.submit(first, second)
    here.wait(first)
    wait_for(lambda: here.attempts(second), explain=here.explain)
    with pytest.raises(Conflict, match=run_id(second)):
        rm(here, run_id(first))
    (here.path / "go").touch()
    assert [result.outcome for result in here.wait(second)] == ["succeeded"]
    rm(here, run_id(first))
    fresh = changed(second, fresh=1)
    with pytest.raises(Conflict, match="deleted by launcher rm"):
        here.submit(first, fresh)
