"""A supervisor whose engine is away, answers too late, or has something left of a run."""

from __future__ import annotations

import time

import pytest

from launcher.backends.local.state import QueueNote, StartRecord, read
from launcher.backends.local.supervisor.spawner import Launch, LiveRuntime
from launcher.errors import Unreachable
from launcher.files import create
from launcher.runtime.process import procs
from launcher.spec.model import Limits
from tests.integration.local.bench import Bench, Engine, Guarded, bench
from tests.support.jobs import job

__all__ = ["bench"]


def test_what_can_not_be_asked_after_a_takeover_is_waited_for_and_adopted(bench: Bench) -> None:
    (run,) = bench.queue(job("one"))
    script = "echo $me >> starts; while [ ! -e go ]; do sleep 0.05; done"
    first = bench.supervisor(script)
    bench.drive(first, lambda: bench.lines("starts") == [run])
    (engine := Engine()).away = True
    second = bench.supervisor(script, spawner=engine)
    bench.drive(
        second, lambda: (note := read(bench.state.note(run), QueueNote)) is not None and note.evidence == "away"
    )
    engine.away = False
    bench.drive(second, lambda: bool(second.runs[run].live()))
    assert bench.lines("starts") == [run]
    (bench.path / "go").touch()
    bench.drain(second)


def test_a_cancelled_run_is_not_over_while_nobody_can_say_that_it_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.backends.local.supervisor.run.FLUSH", 0.0)
    (run,) = bench.queue(job("one", limits=Limits(grace=0.0)))
    script = "echo $$ >> starts; trap '' TERM; while :; do sleep 0.05; done"
    bench.drive(bench.supervisor(script), lambda: bool(bench.lines("starts")))
    pid = int(bench.lines("starts")[0])
    since = procs.start_time(pid) or 0
    create(bench.state.cancel(run), b"")
    (engine := Engine()).away = True
    second = bench.supervisor(script, spawner=engine)
    bench.drive(second, lambda: run in second.runs and second.runs[run].kills >= 2)
    assert bench.state.entry(run).exists()
    engine.away = False
    bench.drive(second, lambda: second.runs[run].over)
    assert not procs.alive(pid, since, procs.boot_id())


def test_killing_what_does_not_end_is_tried_again_later_and_later_and_said_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("launcher.backends.local.supervisor.run.FLUSH", 0.0)
    (run,) = bench.queue(job("one", limits=Limits(grace=0.0)))
    engine = Engine()
    supervisor = bench.supervisor("trap '' TERM; echo up >> starts; while :; do sleep 0.05; done", spawner=engine)
    bench.drive(supervisor, lambda: bool(bench.lines("starts")))
    engine.away = True
    create(bench.state.cancel(run), b"")
    bench.drive(supervisor, lambda: supervisor.runs[run].kills >= 3)
    assert supervisor.turn() > 0.0  # it sleeps in between
    said = capsys.readouterr().err
    assert (said.count("killed"), said.count("away")) == (1, 1)
    engine.away = False
    bench.drive(supervisor, lambda: supervisor.runs[run].over)


def test_what_is_left_of_a_run_is_cleared_away_once_it_has_left_the_queue(bench: Bench) -> None:
    first, second = bench.queue(job("one"), job("two"))
    seen: list[tuple[str, frozenset[str]]] = []

    class Clearing(Guarded):
        def forget(self, queue: str, queued: frozenset[str]) -> None:
            seen.append((queue, queued))

    script = f"[ $me = {second} ] && while [ ! -e go ]; do sleep 0.05; done; exit 0"
    supervisor = bench.supervisor(script, spawner=Clearing())
    bench.drive(supervisor, lambda: bool(seen))
    (bench.path / "go").touch()
    bench.drain(supervisor)
    assert seen == [(bench.state.id, frozenset({second})), (bench.state.id, frozenset())]
    assert first not in bench.state.queued()


def test_a_start_whose_answer_was_lost_is_swept_before_the_next(bench: Bench) -> None:
    bench.queue(job("one"))
    lost: list[LiveRuntime] = []

    class Losing(Guarded):
        def spawn(self, launch: Launch, record: StartRecord) -> LiveRuntime:
            made = super().spawn(launch, record)
            if lost:
                return made
            lost.append(made)
            while not bench.lines("starts"):
                time.sleep(0.01)
            made.close()
            raise Unreachable("the answer was lost")

    script = "echo $$ >> starts; [ $(wc -l < starts) = 2 ] && exit 0\nsleep 60"
    bench.drain(bench.supervisor(script, spawner=Losing()))
    first, _ = bench.lines("starts")
    assert not procs.alive(int(first), lost[0].record.start, procs.boot_id())
