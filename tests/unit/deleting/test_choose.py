"""What goes and what stays, decided from what is known of the runs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.deleting.choose import DeletionSelection, find_needed, selected
from launcher.deleting.survey import Known, survey
from launcher.deleting.unreferenced import BYTES, MANIFEST, MARKER, RECORD, deletion_order
from launcher.spec.hashing import work_hash
from launcher.spec.model import Input
from launcher.store.layout import RunKeys
from tests.support.fakerun import fake_job, write_run
from tests.support.memory_store import MemoryStore

DAY = 86400.0


def done(run: str, ended: float = 0.0, **fields: object) -> Known:
    name = run.rpartition("-")[0]
    return Known(run, name, created=ended, ended=ended, outcome=str(fields.pop("outcome", "succeeded")), **fields)  # type: ignore[arg-type]


def by_run(*runs: Known) -> dict[str, Known]:
    return {known.run: known for known in runs}


RUNS = by_run(
    done("a-1", 1 * DAY, labels={"team": "x"}),
    done("a-2", 2 * DAY, outcome="failed"),
    done("a-3", 3 * DAY, labels={"team": "x"}),
    done("b-1", 4 * DAY),
    Known("b-2", "b", created=5 * DAY),
    Known("a-0", "a", ended=0.0, deleted=True),
)


@pytest.mark.parametrize(
    ("wanted", "runs"),
    [
        (DeletionSelection(), []),
        (DeletionSelection(older_than=0), ["a-1", "a-2", "a-3", "b-1"]),
        (DeletionSelection(older_than=7.5 * DAY), ["a-1", "a-2"]),
        (DeletionSelection(labels={"team": None}), ["a-1", "a-3"]),
        (DeletionSelection(labels={"team": "y"}), []),
        (DeletionSelection(states=("failed",)), ["a-2"]),
        (DeletionSelection(keep=1), ["a-1", "a-2"]),
        (DeletionSelection(keep=0), ["a-1", "a-2", "a-3", "b-1"]),
        (DeletionSelection(keep=2, older_than=7.5 * DAY), ["a-1"]),
        (DeletionSelection(labels={"team": "x"}, keep=1), ["a-1"]),
    ],
)
def test_options_select_together(wanted: DeletionSelection, runs: list[str]) -> None:
    assert selected(RUNS, wanted, 10 * DAY) == runs


def test_what_a_living_run_needs_stays() -> None:
    runs = by_run(
        done("named-1"),
        done("resumed-1", outcome="failed"),
        done("served-1", work="w"),
        done("served-2", work="w"),
        done("same-1", work="own"),
        done("failed-1", work="w", outcome="failed"),
        done("free-1", work="other"),
        Known("open-1", "open", work="own", works=frozenset({"w"}), runs=frozenset({"named-1", "resumed-1"})),
    )
    kept = find_needed(runs, list(runs))
    assert set(kept) == {"named-1", "resumed-1", "served-1", "served-2", "same-1", "open-1"}
    assert "launcher cancel open-1" in kept["open-1"]
    assert "open-1 reads it" in kept["served-1"]


def test_every_form_of_an_input_keeps_the_runs_that_it_reads() -> None:
    """Read out of job.json, as a submit writes it."""
    store = MemoryStore("memory:", lambda: 1000.0)
    jobs = {name: fake_job(name) for name in ("plain", "first", "second", "named", "resumed", "unread")}
    jobs = {name: msgspec.structs.replace(job, config={"name": name}) for name, job in jobs.items()}
    runs = {name: write_run(store, job) for name, job in jobs.items()}
    inputs = {
        "a": Input(work=work_hash(jobs["plain"]), output="model"),
        "b": Input(works={name: work_hash(jobs[name]) for name in ("first", "second")}, output="model"),
        "c": Input(run=runs["named"], output="model"),
        "d": Input(url="s3://bucket/data"),
    }
    reader = write_run(store, fake_job("reader", inputs=inputs, resume=runs["resumed"]), outcome=None)
    found = survey(store).runs
    assert set(find_needed(found, list(found))) == {reader, *runs.values()} - {runs["unread"]}


def test_adopted_results_go_together_or_not_at_all() -> None:
    runs = by_run(done("first-1"), done("second-1", adopted="first-1"), done("third-1", adopted="second-1"))
    assert find_needed(runs, ["first-1"]) == {"first-1": "its results are also those of second-1"}
    assert set(find_needed(runs, ["first-1", "second-1"])) == {"first-1", "second-1"}
    assert find_needed(runs, list(runs)) == {}
    assert find_needed(runs, ["third-1"]) == {}
    assert find_needed(runs, ["first-1"], whole=False) == {}  # a run that lends its results keeps its newest checkpoint


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["open", "done", "deleted"]), st.booleans()),
        min_size=6,
        max_size=6,
    ),
    st.sets(st.integers(0, 5)),
)
@settings(max_examples=300, deadline=None)
def test_nobody_that_stays_lends_from_what_goes(shape: list[tuple[int, str, bool]], chosen: set[int]) -> None:
    runs: dict[str, Known] = {}
    for number, (other, state, lends) in enumerate(shape):
        run, target = f"r-{number}", f"r-{other}"
        if state == "open":
            runs[run] = Known(run, "r", runs=frozenset({target}))
        else:
            adopted = target if lends and other != number else ""
            runs[run] = Known(run, "r", ended=0.0, outcome="succeeded", adopted=adopted, deleted=state == "deleted")
    going = [f"r-{number}" for number in chosen]
    goes = set(going) - set(find_needed(runs, going))
    for known in runs.values():
        if known.ended is None:
            assert known.run not in goes
            assert not known.runs & goes
        elif not known.deleted and known.run not in goes:
            assert known.adopted not in goes


def test_markers_go_before_manifests_before_bytes_before_records() -> None:
    keys = RunKeys("r-1")
    first = keys.attempt(1)
    order = {
        first.checkpoint_complete(10): MARKER,
        first.output_manifest("model"): MARKER,
        first.live_manifest("model", 3): MARKER,
        first.checkpoint_manifest(10, "main-0"): MANIFEST,
        first.checkpoint_files(10, "main-0") + "complete.json": BYTES,
        first.output("model") + "weights.json": BYTES,
        first.logs("main-0") + "0.log": BYTES,
        first.claim("main-0"): RECORD,
        first.exit("main-0"): RECORD,
        keys.cancel: RECORD,
        keys.event(1, "main-0", 0): RECORD,
    }
    assert {key: deletion_order("r-1", key) for key in order} == order
