"""`launcher.submit` over every backend: exactly once, whatever is cut off or lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from launcher.errors import BadInput, Conflict, NotFound, Unreachable
from launcher.protocol.records import Cancel, Result
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job, run_id, work_hash
from launcher.spec.model import Code
from launcher.store import layout
from launcher.store.find import GroupRecord
from launcher.verbs.cancel import cancel
from launcher.verbs.submit import failure, submit
from tests.integration.backend.harness import Harness, living, wait_for
from tests.support.jobs import changed, group, reads


class Killed(BaseException):
    """kill -9, as far as what is outside of the process can tell."""


class Faulty:
    """Passes calls on to a store or a backend; the n-th of all fails, before or after it took effect."""

    def __init__(self, under: Any, turn: Iterator[int], at: int, after: bool, error: type[BaseException]) -> None:
        self.under, self.turn, self.at, self.after, self.error = under, turn, at, after, error

    @property
    def url(self) -> str:
        return str(self.under.url)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.under, name)

        def passed(*arguments: Any, **options: Any) -> Any:
            hit = next(self.turn) == self.at
            if hit and not self.after:
                raise self.error(name)
            answer = call(*arguments, **options)
            if hit:
                raise self.error(name)
            return answer

        return passed


def gone(harness: Harness, run: str) -> bool:
    seen = harness.backend.look_up(run)
    return seen is None or not seen.active


HOW: Final[list[tuple[bool, type[BaseException]]]] = [(False, Killed), (True, Killed), (True, Unreachable)]
# at every call at night, at every third otherwise, each of the three at others
CUTS = [
    *((number, 3, *how) for number, how in enumerate(HOW)),
    *(pytest.param(0, 1, *how, marks=pytest.mark.nightly) for how in HOW),
]


@pytest.mark.parametrize(("begin", "apart", "after", "error"), CUTS)
def test_cut_off_anywhere_then_again_is_once(
    harness: Harness, begin: int, apart: int, after: bool, error: type[BaseException]
) -> None:
    runs: list[str] = []
    harness.let_go()
    for at in range(begin, 200, apart):
        first = harness.job(f"a{at}")
        both = group(first, harness.job(f"b{at}", inputs={"x": reads(first)}))
        turn = count()
        store, backend = (Faulty(under, turn, at, after, error) for under in (harness.store, harness.again()))
        try:
            submit(both, store, backend)  # type: ignore[arg-type]
            whole = True
        except (Killed, Unreachable):
            whole = False
        done = submit(both, harness.store, harness.again())
        assert {one.state for one in done} <= {"submitted", "attached", "succeeded"}
        assert msgspec.json.decode(harness.store.get(layout.group(both.id)), type=GroupRecord).runs == tuple(
            run_id(one) for one in both.runs
        )
        runs += [run_id(one) for one in both.runs]
        if whole:
            break
    assert len(runs) > 20 / apart
    # on docker each run is a container, made one after the other
    wait_for(lambda: all(harness.store.head(layout.RunKeys(run).result) for run in runs), 60.0 + len(runs))
    wait_for(lambda: all(gone(harness, run) for run in runs))
    assert [harness.starts(run) for run in runs] == [1] * len(runs)


def test_two_submitters_at_once_are_one_run(harness: Harness) -> None:
    one = group(harness.job("one"))
    states: list[str] = []
    threads = [
        threading.Thread(target=lambda: states.append(submit(one, harness.store, harness.again())[0].state))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 4
    assert set(states) <= {"submitted", "attached"}
    harness.let_go()
    run = run_id(one.runs[0])
    wait_for(lambda: gone(harness, run))
    assert harness.starts(run) == 1


def test_what_succeeded_is_said_and_not_run(harness: Harness) -> None:
    one = group(harness.job("one"))
    run = run_id(one.runs[0])
    harness.let_go()
    assert [done.state for done in submit(one, harness.store, harness.backend)] == ["submitted"]
    wait_for(lambda: gone(harness, run))
    done = submit(one, harness.store, harness.again())
    assert [(one.state, one.final) for one in done] == [("succeeded", True)]
    assert failure(done) is None
    assert harness.starts(run) == 1
    assert harness.store.head(layout.work_run(_work(harness, run), run)) is not None


def _work(harness: Harness, run: str) -> str:
    from launcher.spec.hashing import decode_job, work_hash

    return work_hash(decode_job(harness.store.get(layout.RunKeys(run).job)))


def test_a_stage_that_died_before_its_record_of_work_serves_the_next(harness: Harness) -> None:
    """Killed between result.json and works/: its outputs were not deleted, so their reader is submitted."""
    first = harness.job("first")
    run = run_id(first)
    harness.store.create(layout.RunKeys(run).job, encode_job(first))
    result = Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n")
    harness.store.create(layout.RunKeys(run).result, msgspec.json.encode(result))
    both = group(first, harness.job("second", inputs={"x": reads(first)}))
    done = submit(both, harness.store, harness.backend)
    assert [one.state for one in done] == ["succeeded", "submitted"]
    assert harness.store.head(layout.work_run(work_hash(first), run)) is not None


def test_a_run_that_has_succeeded_is_reported_while_its_backend_is_away(harness: Harness) -> None:
    """The store has the result: nothing is asked for that the backend would have to answer."""
    one = group(harness.job("one"))
    run = run_id(one.runs[0])
    harness.store.create(layout.RunKeys(run).job, encode_job(one.runs[0]))
    result = Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n")
    harness.store.create(layout.RunKeys(run).result, msgspec.json.encode(result))
    backend = harness.again()

    class Away:
        def compare_ended(self, runs: object) -> None:
            raise Unreachable("away")

        def __getattr__(self, name: str) -> Any:
            known = getattr(backend, name)
            if not callable(known) or name in ("render", "check"):
                return known

            def away(*_: Any, **__: Any) -> Any:
                raise Unreachable("away")

            return away

    (done,) = submit(one, harness.store, Away())  # type: ignore[arg-type]
    assert done.state == "succeeded"
    with pytest.raises(Unreachable):
        submit(group(*one.runs, harness.job("another")), harness.store, Away())  # type: ignore[arg-type]


@pytest.mark.parametrize(("outcome", "reason"), [("failed", Reason.USER_ERROR), ("cancelled", Reason.CANCELLED)])
def test_what_failed_is_said_with_the_way_on(harness: Harness, outcome: str, reason: Reason) -> None:
    one = group(harness.job("one"))
    run = run_id(one.runs[0])
    result = Result(outcome, 1, reason, "why", 0.0, "n")
    harness.store.create(layout.RunKeys(run).result, msgspec.json.encode(result))
    done = submit(one, harness.store, harness.backend)
    assert [done[0].state, done[0].reason, done[0].message] == [outcome, str(reason), "why"]
    assert f"launcher retry {run}" in str(failure(done))
    assert harness.sent(run) is None
    assert harness.starts(run) == 0


def test_a_cancel_that_came_between_is_obeyed(harness: Harness) -> None:
    """cancel.json appears while the backend takes the run: it is read once more, and the run is ended."""
    one = group(harness.job("one"))
    run = run_id(one.runs[0])
    backend = harness.again()

    class Slow:
        def __getattr__(self, name: str) -> Any:
            if name == "submit":
                body = msgspec.json.encode(Cancel("me", 0.0, "n"))
                harness.store.create(layout.RunKeys(run).cancel, body)
            return getattr(backend, name)

    (done,) = submit(one, harness.store, Slow())  # type: ignore[arg-type]
    assert done.state == "cancelled"
    wait_for(lambda: gone(harness, run))
    assert living(run) == 0


def test_cancelled_before_it_was_given_to_the_backend(harness: Harness) -> None:
    one = group(harness.job("one"))
    run = run_id(one.runs[0])
    harness.store.create(layout.RunKeys(run).job, encode_job(one.runs[0]))
    assert cancel(harness.store, run, harness.backend).state == "cancelled"
    (done,) = submit(one, harness.store, harness.backend)
    assert done.state == "cancelled"
    assert harness.starts(run) == 0


def test_cancel_then_it_ends_cancelled(harness: Harness) -> None:
    one = group(harness.job("one"))
    run = run_id(one.runs[0])
    submit(one, harness.store, harness.backend)
    wait_for(lambda: harness.starts(run) == 1)
    assert cancel(harness.store, run, harness.again(), reason="enough").state == "stopping"
    assert msgspec.json.decode(harness.store.get(layout.RunKeys(run).cancel), type=Cancel).reason == "enough"
    wait_for(lambda: living(run) == 0)
    with pytest.raises(NotFound):
        cancel(harness.store, "none-0123456789ab", harness.backend)


def test_another_job_under_the_same_name(harness: Harness) -> None:
    one = group(harness.job("one"))
    run = run_id(one.runs[0])
    harness.store.create(layout.RunKeys(run).job, encode_job(harness.job("other")))
    with pytest.raises(Conflict, match="another job"):
        submit(one, harness.store, harness.backend)
    assert harness.sent(run) is None


def test_a_plan_writes_nothing(harness: Harness) -> None:
    first = harness.job("one")
    both = group(first, harness.job("two", inputs={"x": reads(first)}))
    done = submit(both, harness.store, harness.backend, plan=True)
    assert [one.state for one in done] == ["submitted", "submitted"]
    assert list(harness.store.scan("")) == []
    assert list(harness.backend.mine()) == []


def test_code_goes_up_once_under_its_digest(harness: Harness, tmp_path: Path) -> None:
    from launcher.spec.code.overlay import Overlay

    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "main.py").write_text("print('hi')\n")
    digest = Overlay(folder).digest()
    one = group(harness.job("one", code=Code(digest)))
    with pytest.raises(NotFound):
        submit(one, harness.store, harness.backend)
    harness.let_go()
    submit(one, harness.store, harness.backend, overlays={digest: Overlay(folder)})
    assert harness.store.head(layout.blob(digest)) is not None
    assert harness.store.head(layout.blob_note(digest)) is not None
    (folder / "main.py").write_text("print('ho')\n")
    other = group(harness.job("two", code=Code("0" * 64)))
    with pytest.raises(BadInput, match="changed while"):
        submit(other, harness.store, harness.backend, overlays={"0" * 64: Overlay(folder)})


def test_a_store_is_checked_once(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("launcher.store.opening.conditional_puts_hold", lambda store: asked.append(store.url))
    for name in ("one", "two"):
        submit(group(harness.job(name)), harness.store, harness.backend, checked=tmp_path / "seen")
    assert asked == [harness.store.url]
    harness.let_go()


def test_jobs_of_people_differ_but_the_run_is_one(harness: Harness) -> None:
    """`variant` is there for people and no part of the hash: the second submit attaches."""
    one = harness.job("one", variant={"lr": 1})
    run = run_id(one)
    submit(group(one), harness.store, harness.backend)
    (done,) = submit(group(changed(one, variant={})), harness.store, harness.again())
    assert (done.run, done.state) == (run, "attached")
    harness.let_go()
