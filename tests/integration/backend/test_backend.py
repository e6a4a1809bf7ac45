"""What every backend owes (docs/reference/extending.md, Backend), seen from outside."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from launcher.backends.base import Handle
from launcher.errors import Conflict
from launcher.spec.hashing import encode_job, run_hash, run_id
from launcher.spec.model import ResolvedJob
from launcher.store import layout
from tests.integration.backend.harness import Harness, living, wait_for


def put(harness: Harness, *jobs: ResolvedJob) -> list[Handle]:
    """Submits as launcher.submit does, job.json first; the handles in order."""
    for one in jobs:
        harness.store.create(layout.RunKeys(run_id(one)).job, encode_job(one))
    handles = harness.backend.submit(harness.backend.render(jobs), jobs)
    return [handles[run_id(one)] for one in jobs]


def gone(harness: Harness, run: str) -> bool:
    seen = harness.backend.look_up(run)
    return seen is None or not seen.active


def test_submit_then_look_up(harness: Harness) -> None:
    one = harness.job("one")
    assert harness.backend.look_up(run_id(one)) is None
    (handle,) = put(harness, one)
    assert (handle.run, handle.fingerprint) == (run_id(one), run_hash(one))
    seen = harness.again().look_up(handle.run)
    assert seen is not None
    assert seen.active
    assert seen.handle == handle
    harness.let_go()
    wait_for(lambda: gone(harness, handle.run))
    assert harness.starts(handle.run) == 1


def test_what_is_rendered_is_what_is_sent(harness: Harness) -> None:
    jobs = [harness.job("one", config={"é": ["on", 1e-5, None]}), harness.job("two", labels={"a": "no"})]
    rendered = harness.backend.render(jobs)
    put(harness, *jobs)
    for one in jobs:
        assert harness.sent(run_id(one)) == harness.wire(rendered.documents[rendered.objects[run_id(one)]])
    harness.let_go()


def test_twice_is_once(harness: Harness) -> None:
    one = harness.job("one")
    (first,) = put(harness, one)
    wait_for(lambda: harness.starts(first.run) == 1)
    second = harness.again().submit(harness.backend.render([one]), [one])
    assert second[first.run] == first
    harness.let_go()
    wait_for(lambda: gone(harness, first.run))
    assert harness.starts(first.run) == 1


def test_two_at_once_are_one(harness: Harness) -> None:
    jobs = [harness.job(f"j{k}") for k in range(5)]
    for one in jobs:
        harness.store.create(layout.RunKeys(run_id(one)).job, encode_job(one))
    clients = [harness.again() for _ in range(4)]
    got: list[object] = []
    threads = [
        threading.Thread(target=lambda client=client: got.append(client.submit(client.render(jobs), jobs)))  # type: ignore[misc]
        for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(handles == got[0] for handles in got)
    assert len(got) == len(clients)
    harness.let_go()
    for one in jobs:
        wait_for(lambda one=one: gone(harness, run_id(one)))  # type: ignore[misc]
        assert harness.starts(run_id(one)) == 1


def test_another_job_under_the_name_is_a_conflict(harness: Harness) -> None:
    one, two = harness.job("one"), harness.job("two")
    (handle,) = put(harness, one)
    mixed = harness.backend.render([two])
    document = mixed.documents[mixed.objects[run_id(two)]]
    forged = replace(
        mixed,
        documents={f"{handle.run}.yaml": document},
        objects={handle.run: f"{handle.run}.yaml"},
    )
    with pytest.raises(Conflict):
        harness.backend.submit(forged, [two])
    harness.let_go()


def test_cancel_ends_the_processes_and_is_idempotent(harness: Harness) -> None:
    one, two = harness.job("one"), harness.job("two")
    first, second = put(harness, one, two)
    wait_for(lambda: harness.starts(first.run) == 1 and harness.starts(second.run) == 1)
    harness.store.create(layout.RunKeys(first.run).cancel, b'{"by":"me","time":0,"nonce":"x"}')
    harness.backend.cancel([first])
    harness.again().cancel([first])
    wait_for(lambda: gone(harness, first.run))
    assert living(first.run) == 0
    assert harness.starts(first.run) == 1
    assert not gone(harness, second.run)
    harness.backend.cancel([first])  # what has ended stays as it is
    harness.let_go()
    wait_for(lambda: gone(harness, second.run))


def test_mine_lists_what_carries_our_mark(harness: Harness) -> None:
    assert list(harness.backend.mine()) == []
    jobs = [harness.job(f"j{k}") for k in range(3)]
    handles = put(harness, *jobs)
    seen = {one.handle.run: one for one in harness.again().mine()}
    assert {run: one.handle for run, one in seen.items() if one.active} == {one.run: one for one in handles}
    harness.let_go(handles[0].run)
    wait_for(lambda: handles[0].run not in {one.handle.run for one in harness.backend.mine() if one.active})
    harness.let_go()
    wait_for(lambda: not any(one.active for one in harness.backend.mine()))


def test_watch_is_one_stream_that_ends_with_the_last(harness: Harness) -> None:
    handles = put(harness, *[harness.job(f"j{k}") for k in range(3)])
    unknown = replace(handles[0], run="gone-0123456789ab", name="gone-0123456789ab")
    phases: dict[str, list[bool]] = {}
    for seen in harness.backend.watch([*handles, unknown], None):
        phases.setdefault(seen.handle.run, []).append(seen.active)
        if seen.phase == "running":
            harness.let_go(seen.handle.run)
    assert set(phases) == {unknown.run, *(one.run for one in handles)}
    for run, active in phases.items():
        assert active[-1] is False
        assert all(active[:-1])
        assert (len(active) > 1) == (run != unknown.run)


def test_logs_live_and_whole(harness: Harness) -> None:
    (handle,) = put(harness, harness.job("one"))
    stream = harness.backend.logs(handle, "main", 0, False)
    first = next(stream)
    assert first.startswith(b"hello")
    harness.let_go()
    assert b"".join([first, *stream]) == b"hello from main-0\nbye\n"


def test_a_group_with_roles(harness: Harness) -> None:
    from launcher.spec.model import Role

    roles = {"agent": Role(("x",), leader=True), "desk": Role(("x",), replicas=2)}
    (handle,) = put(harness, harness.job("roles", roles=roles))
    wait_for(lambda: harness.starts(handle.run) == 3)
    assert next(harness.backend.logs(handle, "desk", 1, False)) == b"hello from desk-1\n"
    harness.let_go()
    wait_for(lambda: gone(harness, handle.run))
    assert harness.starts(handle.run) == 3
