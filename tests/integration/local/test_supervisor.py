"""The supervisor with a shell script in the runtime's place: what it starts, how often, and how it ends it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from pathlib import Path

import msgspec
import pytest

from launcher.backends.local.state import QueueNote, StartRecord, read
from launcher.backends.local.supervisor.spawner import Launch, LiveRuntime
from launcher.errors import Unreachable
from launcher.files import create, replace
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.runtime.process import procs
from launcher.spec.hashing import run_id
from launcher.spec.model import Limits, Resources, Role, Timing
from launcher.store import Store, layout, open_store
from tests.integration.local.bench import Bench, Guarded, bench
from tests.support.jobs import changed, job, reads
from tests.support.waiting import until

__all__ = ["bench"]


@pytest.mark.parametrize("code", [0, 78])
def test_codes_that_are_for_good(bench: Bench, code: int) -> None:
    (run,) = bench.queue(job("one"))
    bench.drain(bench.supervisor(f"echo $me >> starts; exit {code}"))
    assert bench.lines("starts") == [run]
    assert not bench.state.site(run).exists()


@pytest.mark.parametrize("code", ["75", "143", "1", "3", "kill"])
def test_everything_else_starts_again(bench: Bench, code: str) -> None:
    (run,) = bench.queue(job("one"))
    last = "kill -9 $$" if code == "kill" else f"exit {code}"
    bench.drain(bench.supervisor(f"echo $me >> starts; [ $(wc -l < starts) = 3 ] && exit 0\n{last}"))
    assert bench.lines("starts") == [run] * 3


@pytest.mark.timeout(60)
def test_nothing_waits_for_the_next_routine_look(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts, pipelines, failures of the store: each has its own alarm, and the loop ends by itself."""
    monkeypatch.setattr("launcher.backends.local.supervisor.loop.LOOK", 3600.0)
    first = changed(job("first"), store=bench.url)
    runs = bench.queue(first, job("second", inputs={"x": reads(first)}))
    bench.succeed(first)
    opened: list[str] = []

    def opener(url: str) -> Store:
        opened.append(url)
        if len(opened) == 1:
            raise Unreachable("away")
        return open_store(url)

    script = "echo $me >> starts; [ $(grep -c $me starts) = 3 ] && exit 0\nexit 75"
    bench.supervisor(script, opener=opener).run()
    assert sorted(bench.lines("starts")) == sorted(runs * 3)


def test_the_numbers_of_a_supervisor_that_fails_stay_and_grow_old(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TEXTFILES", str(tmp_path))
    idle = bench.supervisor("exit 0")
    idle.run()
    assert not list(tmp_path.glob("*.prom"))
    failing = bench.supervisor("exit 0")
    failing.turn()
    monkeypatch.setattr(failing, "read_queue", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.run()
    assert [path.name for path in tmp_path.glob("*.prom")] == [f"slipway-supervisor-{failing.runner.id}.prom"]


def test_starts_again_later_and_later(bench: Bench) -> None:
    bench.queue(job("one", timing=Timing(beat=1.5, stale=60, fence=30)))
    bench.drain(bench.supervisor("date +%s.%N >> starts; [ $(wc -l < starts) = 4 ] && exit 0\nexit 75"))
    times = [float(line) for line in bench.lines("starts")]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(wait >= least for wait, least in zip(waits, (0.2, 0.4, 0.8), strict=True)), waits


def test_a_runtime_that_can_not_even_start_is_given_up(bench: Bench) -> None:
    (run,) = bench.queue(job("broken", timing=Timing(beat=0.02, stale=60, fence=30)))
    bench.drain(bench.supervisor("echo x >> starts; exit 127"))
    assert len(bench.lines("starts")) == 21
    result = bench.result(run)
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", Reason.INFRASTRUCTURE)
    assert "127" in result.message


def test_one_process_per_member_with_its_own_address(bench: Bench) -> None:
    roles = {
        "agent": Role(("x",), leader=True, resources=Resources(cpus=2, gpus=1)),
        "desk": Role(("x",), replicas=2, resources=Resources(cpus=1)),
    }
    (run,) = bench.queue(job("roles", roles=roles, secrets={"TOKEN": "local"}))
    bench.drain(
        bench.supervisor("echo $rank:$CUDA_VISIBLE_DEVICES:$OMP_NUM_THREADS:$TOKEN:${HOME-none} >> starts", gpus=("5",))
    )
    assert sorted(bench.lines("starts")) == ["agent-0:5:2:hush:none", "desk-0::1:hush:none", "desk-1::1:hush:none"]
    assert "hush" not in "".join(path.read_text() for path in bench.state.path.rglob("*") if path.is_file())
    assert run


def test_first_come_first_served(bench: Bench) -> None:
    jobs = [job(f"j{k}", role={"resources": Resources(cpus=1)}) for k in range(4)]
    runs = bench.queue(*jobs)
    script = "echo start $me >> log; sleep 0.05; echo end $me >> log"
    bench.drain(bench.supervisor(script, cpus=1.0))
    assert bench.lines("log") == [f"{what} {run}" for run in runs for what in ("start", "end")]


def test_a_dead_supervisor_is_taken_over(bench: Bench) -> None:
    """The next one adopts what lives, and starts again what died unseen."""
    runs = bench.queue(job("lives"), job("dies"))
    script = "echo $me $$ >> starts; while [ ! -e go ]; do sleep 0.02; done"
    first = bench.supervisor(script)
    bench.drive(first, lambda: len(bench.lines("starts")) == 2)
    pids = dict(line.split() for line in bench.lines("starts"))
    os.kill(int(pids[runs[1]]), signal.SIGKILL)
    os.waitpid(int(pids[runs[1]]), 0)
    second = bench.supervisor(script)  # the first is never asked again
    bench.drive(second, lambda: len(bench.lines("starts")) == 3)
    assert [line.split()[0] for line in bench.lines("starts")].count(runs[0]) == 1
    (bench.path / "go").touch()
    bench.drain(second)
    # how the adopted one ended could not be seen, so its runtime is asked once more
    assert [line.split()[0] for line in bench.lines("starts")].count(runs[0]) == 2


def test_after_a_reboot_everything_starts_again_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another boot id: no pid of before means anything, even where another process has it now."""
    (run,) = bench.queue(job("one"))
    first = bench.supervisor("echo $$ >> starts; exec sleep 60")
    bench.drive(first, lambda: len(bench.lines("starts")) == 1)
    record = read(bench.state.record(run, "main-0"), StartRecord)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    os.waitpid(record.pid, 0)
    bystander = msgspec.structs.replace(
        record, pid=os.getpid(), start=procs.start_time(os.getpid()) or 0, boot="earlier"
    )
    replace(bench.state.record(run, "main-0"), msgspec.json.encode(bystander))
    bench.drain(bench.supervisor("echo $$ >> starts"))
    assert len(bench.lines("starts")) == 2


def test_orphans_end_before_the_next_start(bench: Bench) -> None:
    """A killed runtime leaves children behind: none of them may see the next attempt."""
    bench.queue(job("one"))
    script = """
    echo start >> log
    [ $(grep -c start log) = 2 ] && {
      [ -n "$(tr -d '\\0' < /proc/$(cat orphan)/cmdline)" ] && echo overlap >> log
      exit 0
    }
    setsid sh -c 'trap "" TERM HUP; echo $$ > orphan; while :; do sleep 0.05; done' &
    while [ ! -s orphan ]; do sleep 0.02; done
    kill -9 $$
    """
    bench.drain(bench.supervisor(script))
    assert bench.lines("log") == ["start", "start"]


def test_cancel_asks_first_and_kills_the_whole_tree_then(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.backends.local.supervisor.run.FLUSH", 0.2)
    (run,) = bench.queue(job("stubborn", limits=Limits(grace=0.2)))
    script = """
    [ -e begun ] && exit 78
    trap 'echo asked >> log' TERM
    setsid sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 0.05; done' &
    echo $$ >> pids; touch begun
    while :; do sleep 0.05; done
    """
    supervisor = bench.supervisor(script)
    bench.drive(supervisor, lambda: len(bench.lines("pids")) == 2)
    bench.store.create(layout.RunKeys(run).cancel, b'{"by":"me","time":0,"nonce":"x"}')
    create(bench.state.cancel(run), b"")
    bench.drain(supervisor)
    assert bench.lines("log") == ["asked"]
    assert not any(
        procs.alive(pid, procs.start_time(pid) or 0, procs.boot_id()) for pid in map(int, bench.lines("pids"))
    )
    assert not bench.state.cancelled()
    assert bench.result(run).outcome == "cancelled"  # type: ignore[union-attr]


def test_cancel_of_what_only_waits_starts_nothing(bench: Bench) -> None:
    runs = bench.queue(
        job("first", role={"resources": Resources(cpus=1)}), job("second", role={"resources": Resources(cpus=1)})
    )
    supervisor = bench.supervisor("echo $me >> starts; while [ ! -e go ]; do sleep 0.02; done", cpus=1.0)
    bench.drive(supervisor, lambda: len(bench.lines("starts")) == 1)
    bench.store.create(layout.RunKeys(runs[1]).cancel, b'{"by":"me","time":0,"nonce":"x"}')
    create(bench.state.cancel(runs[1]), b"")
    bench.drive(supervisor, lambda: bench.state.queued() == [runs[0]])
    assert bench.result(runs[1]).outcome == "cancelled"  # type: ignore[union-attr]
    (bench.path / "go").touch()
    bench.drain(supervisor)
    assert bench.lines("starts") == [runs[0]]


def test_a_pipeline_starts_in_order(bench: Bench) -> None:
    first = changed(job("first"), store=bench.url)
    second = job("second", inputs={"x": reads(first)})
    third = job("third", inputs={"x": reads(changed(second, store=bench.url))})
    runs = bench.queue(third, second, first)
    supervisor = bench.supervisor("echo $me >> starts; touch end-$me; while [ ! -e end-$me.done ]; do sleep 0.01; done")
    for one in (first, second, third):
        run = run_id(changed(one, store=bench.url))
        bench.drive(supervisor, lambda run=run: (bench.path / f"end-{run}").exists())  # type: ignore[misc]
        bench.succeed(one)
        (bench.path / f"end-{run}.done").touch()
    bench.drain(supervisor)
    assert bench.lines("starts") == runs[::-1]


class SmallEngine(Guarded):
    """Of containers whose memory has run out."""

    def spawn(self, launch: Launch, record: StartRecord) -> LiveRuntime:
        live = super().spawn(launch, record)
        live.__class__ = type("Small", (type(live),), {"out_of_memory": True})
        return live


@pytest.mark.parametrize("named", [False, True])
def test_a_runtime_that_the_kernel_killed_for_want_of_memory_is_not_started_again(bench: Bench, named: bool) -> None:
    limits = Limits(retry_on=("out_of_memory",) if named else ())
    (run,) = bench.queue(job("one", limits=limits))
    script = "echo $me >> starts; [ $(wc -l < starts) = 3 ] && exit 0\nkill -9 $$"
    bench.drain(bench.supervisor(script, spawner=SmallEngine()))
    assert len(bench.lines("starts")) == (3 if named else 1)
    result = bench.result(run)
    if not named:
        assert result is not None
        assert (result.outcome, result.reason) == ("failed", Reason.OUT_OF_MEMORY)
        assert "/dev/shm" in result.message


def test_a_failed_stage_ends_what_reads_it(bench: Bench) -> None:
    first = changed(job("first"), store=bench.url)
    second = changed(job("second", inputs={"x": reads(first)}), store=bench.url)
    third = job("third", inputs={"x": reads(second)})
    runs = bench.queue(first, second, third)
    failed = Result("failed", 1, Reason.USER_ERROR, "no", 0.0, "n")
    bench.store.create(layout.RunKeys(runs[0]).result, msgspec.json.encode(failed))
    bench.drain(bench.supervisor("echo $me >> starts; exit 78"))
    assert bench.lines("starts") == [runs[0]]
    for run, of in zip(runs[1:], runs, strict=False):
        result = bench.result(run)
        assert result is not None
        assert (result.outcome, result.reason) == ("failed", Reason.UPSTREAM_FAILED)
        assert of in result.message


def test_waiting_for_slots_ends_at_its_deadline(bench: Bench) -> None:
    one = Resources(cpus=1)
    runs = bench.queue(
        job("first", role={"resources": one}),
        job("second", role={"resources": one}, limits=Limits(start_deadline=0.1)),
        job("gpu", role={"resources": Resources(gpus=1)}, limits=Limits(start_deadline=0.1)),
    )
    supervisor = bench.supervisor("while [ ! -e go ]; do sleep 0.02; done", cpus=1.0)
    bench.drive(supervisor, lambda: bench.state.queued() == [runs[0]])
    for run in runs[1:]:
        result = bench.result(run)
        assert result is not None
        assert result.reason is Reason.CAPACITY
    assert "1 GPUs" in bench.result(runs[2]).message  # type: ignore[union-attr]
    (bench.path / "go").touch()
    bench.drain(supervisor)


def test_a_store_that_is_away_delays_but_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = bench.queue(job("one"))
    asked: list[str] = []

    def opener(url: str) -> Store:
        asked.append(url)
        if len(asked) < 3:
            raise Unreachable("away")
        return open_store(url)

    bench.drain(bench.supervisor("exit 0", opener=opener))
    assert len(asked) == 3
    assert run not in bench.state.queued()


def test_runs_whose_store_was_deleted_are_forgotten(bench: Bench) -> None:
    first = changed(job("first"), store=bench.url)
    runs = bench.queue(job("other", inputs={"x": reads(job("never", "1"))}), first)
    for run in runs:
        bench.store.delete([layout.RunKeys(run).job])
    bench.drain(bench.supervisor("echo $me >> starts; exit 78"))
    assert bench.lines("starts") == [runs[1]]


def test_a_deleted_queue_leaves_nothing_running(bench: Bench) -> None:
    bench.queue(job("one"))
    supervisor = bench.supervisor("setsid sleep 600 & echo $! $$ > pids; sleep 600")
    bench.drive(supervisor, lambda: bool(bench.lines("pids")))
    left = [(int(pid), procs.start_time(int(pid)) or 0) for pid in bench.lines("pids")[0].split()]
    shutil.rmtree(bench.state.path)
    supervisor.run()
    # a killed process needs the processor once more to go
    until(lambda: not any(procs.alive(*each, procs.boot_id()) for each in left))
    bench.state.make()


def test_a_damaged_entry_is_put_aside(bench: Bench) -> None:
    good, bad = bench.queue(job("good"), job("bad"))
    bench.state.entry(bad).write_text("entry: [")
    bench.drain(bench.supervisor("echo $me >> starts"))
    assert bench.lines("starts") == [good]
    assert bench.state.entry(bad).with_suffix(".damaged").exists()


def test_what_status_may_say(bench: Bench) -> None:
    first = job("a", role={"resources": Resources(cpus=1)})
    runs = bench.queue(
        first,
        job("b", role={"resources": Resources(cpus=1)}),
        job("c", inputs={"x": reads(changed(first, store=bench.url))}),
        job("d", role={"resources": Resources(gpus=3)}),
    )
    supervisor = bench.supervisor("touch begun; while [ ! -e go ]; do sleep 0.02; done", cpus=1.0)
    bench.drive(supervisor, lambda: (bench.path / "begun").exists())
    supervisor.turn()
    notes = [read(bench.state.note(run), QueueNote) for run in runs]
    assert [note.phase for note in notes if note] == ["running", "queued", "waiting", "queued"]
    assert [note.reason for note in notes if note] == ["", "", "", "unschedulable"]
    for run in runs[1:]:
        create(bench.state.cancel(run), b"")
    (bench.path / "go").touch()
    bench.drive(supervisor, lambda: runs[0] not in bench.state.queued())
