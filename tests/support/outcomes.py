"""A pytest plugin: writes how each test ended into a file at once, and leaves out the tests that another file names.

    pytest -p tests.support.outcomes --outcomes FILE [--leave-out FILE]

A line of `--outcomes` is an Outcome as JSON, appended when the test has ended; under xdist by the main process only. A
line with `collected` tells what a process of pytest spent until its first test.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pytest

How = Literal["passed", "failed", "skipped"]
RECORDER: Final = "slipway-outcomes"
COLLECTING: Final = '{"collected"'  # how a line of Collecting begins
QUIET_LOOP: Final = 0.032  # core-seconds of `loop` on the machine of tests/budgets.yaml, while nothing else ran on it
LOOP_EVERY: Final = 25  # tests of a process


@dataclass
class Outcome:
    test: str  # pytest's id of it
    how: How = "passed"
    why: str = ""  # first line of the error, or the reason of a skip
    seconds: float = 0.0  # setup, call and teardown
    cpu: float = 0.0  # core-seconds of the three, with the processes that the test started (see Account)
    loop: float = 0.0  # core-seconds of `loop` after this test; 0 where it was not measured


@dataclass
class Collecting:
    collected: int  # tests that this process chose
    cpu: float  # core-seconds from its start to the end of collecting
    megabytes: int  # the most memory it had until then


def read(file: Path) -> dict[str, Outcome]:
    """The last outcome of each test; a line that was cut off counts for nothing."""
    outcomes = {}
    for line in _lines(file):
        if line.startswith(COLLECTING):
            continue
        try:
            outcome = Outcome(**json.loads(line))
        except ValueError:
            continue
        outcomes[outcome.test] = outcome
    return outcomes


def loop() -> float:
    """Core-seconds of a fixed piece of work: computing, and the start of a program. They tell how fast this machine is
    now: two processors of a virtual machine may share a core, and then each is about half as fast while both are busy;
    and what the system does for a process costs more on some machines than computing tells."""
    before = time.process_time()
    sum(number * number for number in range(200_000))
    computed = time.process_time() - before
    program = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", "import json"], {})
    used = os.wait4(program, 0)[2]
    return computed + used.ru_utime + used.ru_stime


def slowness(outcomes: Iterable[Outcome]) -> float:
    """How many core-seconds stood for one of QUIET_LOOP's machine while these tests ran; 1 where none was measured."""
    return statistics.median([one.loop for one in outcomes if one.loop] or [QUIET_LOOP]) / QUIET_LOOP


def collecting(file: Path) -> list[Collecting]:
    """What each process of pytest spent before its first test."""
    return [Collecting(**json.loads(line)) for line in _lines(file) if line.startswith(COLLECTING)]


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


class Account:
    """Core-seconds, user and system, of this process and of those that it starts from now on. For root on cgroup v1 a
    group of the controller cpuacct counts all of them; elsewhere daemons, which nobody waits for, are missing."""

    def __init__(self, controller: Path = Path("/sys/fs/cgroup/cpuacct")) -> None:
        self._controller = controller
        self._group: Path | None = controller / f"slipway-tests-{os.getpid()}"
        self._before = _waited_for()
        for left in controller.glob("slipway-tests-*"):
            with contextlib.suppress(OSError):  # another process's, in use
                left.rmdir()
        try:
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text("0")
        except OSError:
            self._group = None

    def spent(self) -> float:
        if self._group is None:
            return _waited_for()
        return self._before + int((self._group / "cpuacct.usage").read_text()) / 1e9

    def close(self) -> None:
        if self._group is not None:
            (self._controller / "cgroup.procs").write_text("0")
            with contextlib.suppress(OSError):  # a daemon of a test is still in it
                self._group.rmdir()


def _waited_for() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("outcomes")
    group.addoption("--outcomes", type=Path, help="file that gets a line for each test that ended")
    group.addoption("--leave-out", type=Path, help="file with the ids of tests that are not run, one per line")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--outcomes")
    if file is None:
        return
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(file), RECORDER)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (file := config.getoption("--leave-out")) is None:
        return
    names = set(file.read_text(encoding="utf-8").splitlines())
    left_out = [item for item in items if item.nodeid in names]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.nodeid not in names]


class Meter:
    """In each process that runs tests: adds to each report what was spent since the report before. Fixtures of modules
    and sessions count for the first test that asks for them."""

    def __init__(self) -> None:
        self._account = Account()
        self._before = 0.0
        self._ended = 0

    def pytest_unconfigure(self) -> None:
        self._account.close()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._before = self._account.spent()
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        found = asdict(Collecting(len(session.items), round(self._before, 2), megabytes))
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["collecting"] = found
        else:
            recorder: Any = session.config.pluginmanager.get_plugin(RECORDER)
            recorder.write(found)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        now = self._account.spent()
        report.cpu, self._before = now - self._before, now
        if report.when == "teardown":
            self._ended += 1
            if self._ended % LOOP_EVERY == 1:
                report.loop, self._before = loop(), self._account.spent()
        return report


class Recorder:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._running: dict[str, Outcome] = {}

    def write(self, record: dict[str, object]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if (found := getattr(node, "workeroutput", {}).get("collecting")) is not None:
            self.write(found)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.write(asdict(Outcome(report.nodeid, "skipped", _why(report))))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = self._running.setdefault(report.nodeid, Outcome(report.nodeid))
        outcome.seconds = round(outcome.seconds + report.duration, 3)
        outcome.cpu = round(outcome.cpu + getattr(report, "cpu", 0.0), 3)
        outcome.loop = round(getattr(report, "loop", 0.0), 5)
        if report.outcome != "passed" and outcome.how != "failed":
            outcome.how, outcome.why = report.outcome, _why(report)
        if report.when not in ("setup", "call"):  # teardown, or the worker died
            self.write(asdict(self._running.pop(report.nodeid)))


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr).strip()
    return text.split("\n")[0][:160]
