"""What only the docker backend owes, on a real engine, with the suite's shim in the runtime's place."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from launcher.backends.abilities import images_of
from launcher.backends.docker.backend import DockerBackend
from launcher.backends.docker.container import MARK, QUEUE, RUN
from launcher.backends.docker.spawner import DockerSpawner
from launcher.backends.local import daemon
from launcher.backends.local.state import StartRecord
from launcher.backends.local.supervisor.spawner import Launch, LiveRuntime
from launcher.errors import NotFound, Unreachable
from launcher.files import replace
from launcher.images.engine import Engine as Client
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.runtime.process import procs
from launcher.spec.hashing import run_id
from launcher.spec.model import Resources, Role
from launcher.store.layout import RunKeys
from tests.integration.backend.harness import DockerHarness, wait_for
from tests.integration.backend.test_backend import gone, put
from tests.support.engine import Engine, another


@pytest.fixture
def here(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerHarness]:
    folder = tmp_path / "a folder"
    (folder / "state").mkdir(parents=True)
    made = DockerHarness(engine, folder, monkeypatch)
    try:
        yield made
    finally:
        made.close()


def started(here: DockerHarness, run: str, queue: str, start: int) -> LiveRuntime:
    """A container as the supervisor of some queue starts it."""
    one = here.job(run)
    (work := here.path / queue / "work").mkdir(parents=True)
    mark = f"{queue}:{run}:main-0"
    launch = Launch(one, run, "main-0", (), {}, {}, mark, work, here.path / queue / "no such folder" / "1.log")
    return DockerSpawner(os.environ).spawn(launch, StartRecord(starts=start))


def states(here: DockerHarness, mark: str) -> list[str]:
    return here.engine.docker("ps", "-a", "--filter", f"label={MARK}={mark}", "--format", "{{.State}}").stdout.split()


def test_a_queue_clears_away_its_own_and_leaves_another_queues_run_of_that_name(here: DockerHarness) -> None:
    """Two state folders, or two people, on one engine: the same job has the same run id."""
    run = "one-0123456789ab"
    mine, others = started(here, run, "mine", 1), started(here, run, "others", 2)
    try:
        spawner = DockerSpawner(os.environ)
        assert spawner.sweep(f"mine:{run}:main-0")
        # its output could not be written here (no such folder, or a full disk): that it ended is seen all the same
        wait_for(lambda: mine.ended() is not None)
        spawner.forget("mine", frozenset({run}))
        spawner.forget("others", frozenset())  # what runs belongs to somebody, whatever the queue says
        wait_for(lambda: not spawner._tidying)
        assert states(here, f"mine:{run}:main-0") == ["exited"]
        spawner.forget("mine", frozenset())
        wait_for(lambda: states(here, f"mine:{run}:main-0") == [])
        assert states(here, f"others:{run}:main-0") == ["running"]
        assert others.ended() is None
    finally:
        DockerSpawner(os.environ).sweep(f"others:{run}:main-0")
        wait_for(lambda: others.ended() is not None)
        mine.close()
        others.close()


def test_a_container_that_was_made_and_never_started_can_not_start_later(here: DockerHarness) -> None:
    mark = "queue:one-0123456789ab:main-0"
    made = here.engine.docker("create", f"--label={MARK}={mark}", "--network=none", here.image).stdout.strip()
    assert DockerSpawner(os.environ).sweep(mark)
    assert here.engine.docker("start", made, check=False).returncode != 0
    assert states(here, mark) == []


def test_what_an_engine_was_away_for_goes_when_it_is_back(here: DockerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    spawner = DockerSpawner(os.environ)
    runs = ("one-0123456789ab", "two-0123456789ab")
    marks = [f"queue:{run}:main-0" for run in runs]
    for run, mark in zip(runs, marks, strict=True):
        labels = [f"--label={key}={value}" for key, value in ((MARK, mark), (RUN, run), (QUEUE, "queue"))]
        here.engine.docker("create", *labels, "--network=none", here.image)
    asked: list[str] = []

    def away() -> Client:
        asked.append("")
        raise Unreachable("away")

    with monkeypatch.context() as gone:
        gone.setattr(spawner, "engine", away)
        spawner.forget("queue", frozenset(runs[1:]))
        wait_for(lambda: asked)
        assert [states(here, mark) for mark in marks] == [["created"], ["created"]]
    wait_for(lambda: [states(here, mark) for mark in marks] == [[], ["created"]])
    spawner.forget("queue", frozenset())
    wait_for(lambda: [states(here, mark) for mark in marks] == [[], []])


def test_a_job_that_wants_more_cpus_than_there_are_runs_on_those(here: DockerHarness) -> None:
    one = here.job("wide", roles={"main": Role(("x",), resources=Resources(cpus=60.0))})
    (handle,) = put(here, one)
    wait_for(lambda: here.starts(handle.run) == 1)
    here.let_go()
    wait_for(lambda: gone(here, handle.run))


def test_what_the_engine_refuses_ends_the_run_with_its_words(here: DockerHarness) -> None:
    one = here.job("tiny", roles={"main": Role(("x",), resources=Resources(memory=1 << 20))})
    (handle,) = put(here, one)
    wait_for(lambda: gone(here, handle.run))
    found = here.store.read(RunKeys(handle.run).result)
    assert found is not None
    result = msgspec.json.decode(found[0], type=Result)
    assert (result.outcome, result.reason) == ("failed", Reason.CONFIG_ERROR)
    assert "the Docker engine refused: Minimum memory limit" in result.message
    assert here.starts(handle.run) == 0


def moved(here: DockerHarness) -> tuple[str, str]:
    """The ids of the image before and after its tag has moved."""
    first = here.engine.docker("inspect", "--format={{.Id}}", here.image).stdout.strip()
    text = f"FROM {first}\nLABEL moved=yes\n"
    (here.path / "Moved").write_text(text)
    here.engine.docker("build", "-q", "-t", here.image, "-f", str(here.path / "Moved"), str(here.path))
    second = here.engine.docker("inspect", "--format={{.Id}}", here.image).stdout.strip()
    assert first != second
    return first, second


def said(here: DockerHarness, run: str) -> tuple[Reason, str]:
    found = here.store.read(RunKeys(run).result)
    assert found is not None
    result = msgspec.json.decode(found[0], type=Result)
    return result.reason, result.message


def test_a_tag_that_moved_after_the_submit_is_a_config_error_with_both_ids(here: DockerHarness) -> None:
    """One run waits in the queue meanwhile, and one has to start a second time; what runs is left alone."""
    wide = {"main": Role(("x",), resources=Resources(cpus=30.0))}
    again, keeps = (put(here, here.job(name, roles=wide))[0] for name in ("again", "keeps"))
    wait_for(lambda: here.starts(again.run) == here.starts(keeps.run) == 1)
    (waits,) = put(here, here.job("waits", roles=wide))
    running = here.engine.docker("ps", "-q", f"--filter=label={RUN}={keeps.run}").stdout.split()
    shown = here.engine.docker("inspect", "--format={{json .Config.Env}}", *running).stdout
    before, now = moved(here)
    assert f"SLIPWAY_IMAGE={before}" in json.loads(shown)  # what the claim records, for a retry
    assert images_of(here.job("later"), here.options) == {"main": now}
    here.engine.docker("kill", *here.engine.docker("ps", "-q", f"--filter=label={RUN}={again.run}").stdout.split())
    wait_for(lambda: gone(here, again.run) and gone(here, waits.run))
    for run in (again.run, waits.run):
        reason, message = said(here, run)
        assert reason is Reason.CONFIG_ERROR
        assert f"image {here.image} is {now} now, and this run was submitted with {before}" in message
        assert f"`launcher retry {run}`" in message
    (later,) = put(here, here.job("later"))
    wait_for(lambda: here.starts(later.run) == 1)
    here.let_go()
    wait_for(lambda: gone(here, keeps.run) and gone(here, later.run))
    assert said(here, keeps.run)[0] is said(here, later.run)[0] is Reason.SUCCEEDED
    assert (here.starts(again.run), here.starts(waits.run)) == (1, 0)


def test_an_entry_of_a_launcher_that_noted_no_image_starts_as_before(here: DockerHarness) -> None:
    backend = here.backend
    assert isinstance(backend, DockerBackend)
    (first,) = put(here, here.job("first", roles={"main": Role(("x",), resources=Resources(cpus=60.0))}))
    wait_for(lambda: here.starts(first.run) == 1)
    (handle,) = put(here, here.job("one", roles={"main": Role(("x",), resources=Resources(cpus=10.0))}))
    assert daemon.stop(backend.state)
    site = msgspec.json.decode(backend.state.site(handle.run).read_bytes())
    del site["images"]
    replace(backend.state.site(handle.run), msgspec.json.encode(site))
    moved(here)
    here.again().look_up(handle.run)
    here.let_go()
    wait_for(lambda: gone(here, first.run) and gone(here, handle.run))
    assert said(here, handle.run)[0] is Reason.SUCCEEDED


def test_nothing_is_made_on_this_machine_for_an_input_that_is_not_there(here: DockerHarness) -> None:
    from launcher.spec.model import Input

    missing = here.path / "no such input"
    (handle,) = put(here, here.job("one", inputs={"x": Input(url=f"file://{missing}")}))
    wait_for(lambda: here.starts(handle.run) == 1)
    assert not missing.exists()
    assert not (here.path.parent / "a%20folder").exists()
    here.let_go()
    wait_for(lambda: gone(here, handle.run))


def test_stop_with_runs_asks_containers_too_and_the_next_supervisor_goes_on(here: DockerHarness) -> None:
    backend = here.backend
    assert isinstance(backend, DockerBackend)
    one = here.job("one")
    (handle,) = put(here, one)
    wait_for(lambda: here.starts(handle.run) == 1)
    assert daemon.stop(backend.state, runs=True)
    assert (here.path / f"asked-{handle.run}").exists()
    assert "running" not in states(here, f"{backend.state.id}:{run_id(one)}:main-0")
    here.again().look_up(handle.run)
    wait_for(lambda: here.starts(handle.run) == 2)
    here.let_go()
    wait_for(lambda: gone(here, handle.run))


def test_exec_enters_this_queues_container_and_asks_the_engine_that_the_run_is_on(here: DockerHarness) -> None:
    backend = here.backend
    assert isinstance(backend, DockerBackend)
    run = "one-0123456789ab"
    others = started(here, run, "others", 2)
    with pytest.raises(NotFound):
        backend.execute(run, "main-0", ["true"], tty=False)
    ours = started(here, run, backend.state.id, 1)
    argv = backend.execute(run, "main-0", ["true"], tty=False)
    assert argv == ["docker", "--host", here.engine.host, "exec", "-i", ours.record.container, "true"]
    for live, queue in ((others, "others"), (ours, backend.state.id)):
        DockerSpawner(os.environ).sweep(f"{queue}:{run}:main-0")
        wait_for(lambda live=live: live.ended() is not None)  # type: ignore[misc]
        live.close()


def test_a_damaged_record_costs_a_start_and_leaves_no_container(here: DockerHarness) -> None:
    """The record is not there, or half: what it named is found by its mark."""
    backend = here.backend
    assert isinstance(backend, DockerBackend)
    (handle,) = put(here, here.job("one"))
    wait_for(lambda: here.starts(handle.run) == 1)
    assert daemon.stop(backend.state)
    replace(backend.state.record(handle.run, "main-0"), msgspec.json.encode(StartRecord(starts=1)))
    here.again().look_up(handle.run)
    wait_for(lambda: here.starts(handle.run) == 2)
    mark = f"{backend.state.id}:{handle.run}:main-0"
    wait_for(lambda: "running" in states(here, mark))  # the engine says so a moment after the process has begun
    assert states(here, mark).count("running") == 1
    here.let_go()
    wait_for(lambda: gone(here, handle.run))
    wait_for(lambda: states(here, mark) == [])


@pytest.fixture
def own(engine: Engine, tmp_path: Path) -> Iterator[Engine]:
    (state := tmp_path / "engine").mkdir()
    with another(engine, state) as made:
        yield made


@pytest.mark.nightly  # an engine of its own
@pytest.mark.alone
@pytest.mark.parametrize("supervisor", ["lives", "dies", "is asked to cancel"])
def test_an_engine_that_goes_away_costs_a_start(
    own: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supervisor: str
) -> None:
    """It is stopped and started again, with whoever watches it: what ran is found again, or proved dead."""
    (folder := tmp_path / "queue").mkdir()
    (folder / "state").mkdir()
    here = DockerHarness(own, folder, monkeypatch)
    backend = here.backend
    assert isinstance(backend, DockerBackend)
    try:
        (handle,) = put(here, here.job("one"))
        wait_for(lambda: here.starts(handle.run) == 1)
        own.stop()
        if supervisor == "dies":
            found = daemon.living_supervisor(backend.state)
            assert found is not None
            procs.send(procs.Process(found.pid, found.start), signal.SIGKILL)
            wait_for(lambda: not backend.state.held())
            here.again().look_up(handle.run)
            wait_for(lambda: "there is no Docker engine" in backend.state.log.read_text())
        elif supervisor != "lives":
            here.store.create(RunKeys(handle.run).cancel, b'{"by":"me","time":0,"nonce":"x"}')
            backend.cancel([handle])
        own.start()
        mark = f"{backend.state.id}:{handle.run}:main-0"
        if supervisor == "is asked to cancel":
            wait_for(lambda: gone(here, handle.run))
            assert here.starts(handle.run) == 1
        else:
            wait_for(lambda: here.starts(handle.run) == 2)
            assert len(own.docker("ps", "-q", "--filter", f"label={MARK}={mark}").stdout.split()) == 1
            here.let_go()
            wait_for(lambda: gone(here, handle.run))
        wait_for(lambda: not own.docker("ps", "-aq", "--filter", f"label={MARK}={mark}").stdout)
    finally:
        here.close()
