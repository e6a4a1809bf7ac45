"""The real `Member` over a real folder: the process dies at every store operation in turn, is started again, and
exactly one result comes out."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from launcher.protocol.fold import State, fold
from launcher.protocol.read import read_run
from launcher.protocol.records import Cancel, Exit, Placement
from launcher.reasons import EXIT_AGAIN, EXIT_DONE, EXIT_NEVER, EXIT_USER, Reason
from launcher.runtime.member.member import Leave, Member
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import Limits
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys, work_run
from tests.contract.protocol.drive import LOST, Live, backend, job, once, placement
from tests.support.crashing import CrashingStore
from tests.support.waiting import HANGS

When = Literal["before", "after"]
OPERATIONS = 16  # of one rank from start to end; the rest of the range is past the end and dies nowhere


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store", sync=False)


def succeed(member: Member, attempt: int) -> Reason:
    return Reason.SUCCEEDED


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(OPERATIONS))
def test_one_rank_dies_at_every_operation(folder: Store, at: int, when: When) -> None:
    made, live = job(folder), Live()
    stores: list[CrashingStore] = []

    def make(member: str, start: int) -> Store:
        stores.append(CrashingStore(folder, at if start == 0 else None, when))
        return stores[-1]

    codes = backend(make, made, "main-0", live, succeed)
    view = read_run(folder, run_id(made))
    assert codes[-1] == EXIT_DONE
    assert len(codes) <= 2
    assert view.result is not None
    assert view.result.outcome == "succeeded"
    complete = view.attempt(view.result.attempt)
    assert complete is not None
    assert complete.exits["main-0"].reason is Reason.SUCCEEDED
    assert folder.head(work_run(work_hash(made), run_id(made))) is not None
    assert live.overlaps == []
    # complete work is not computed again
    exits = [op for op in stores[0].operations if op[0] == "create" and "/exit/" in op[1]]
    if len(codes) == 2 and exits and 1 in [a.number for a in view.attempts if "main-0" in a.exits]:
        assert live.ever == [("main-0", 1)]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("who", ["main-0", "main-1"])
@pytest.mark.parametrize("at", range(0, 30, 3))
def test_two_ranks_one_dies(folder: Store, who: str, at: int, when: When) -> None:
    made, live = job(folder, ranks=2, stale=1.0), Live()
    codes: dict[str, list[int]] = {}

    def make(member: str, start: int) -> Store:
        return CrashingStore(folder, at if start == 0 and member == who else None, when)

    def run(member: str) -> None:
        codes[member] = backend(make, made, member, live, succeed)

    threads = [threading.Thread(target=run, args=(member,)) for member in made.members()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    view = read_run(folder, run_id(made))
    assert {member: found[-1] for member, found in codes.items()} == {"main-0": 0, "main-1": 0}
    assert view.result is not None
    assert view.result.outcome == "succeeded"
    complete = view.attempt(view.result.attempt)
    assert complete is not None
    assert {each.reason for each in complete.exits.values()} == {Reason.SUCCEEDED}
    assert live.overlaps == []


def test_user_errors_are_tried_again_as_often_as_asked(folder: Store) -> None:
    made, live = job(folder, retries=1), Live()
    codes = backend(lambda *_: folder, made, "main-0", live, lambda *_: Reason.USER_ERROR)
    view = read_run(folder, run_id(made))
    assert codes == [EXIT_USER, EXIT_NEVER]
    assert view.result is not None
    assert (view.result.outcome, view.result.reason, view.result.attempt) == ("failed", Reason.USER_ERROR, 2)
    assert view.result.message == "from the test"


def test_memory_is_not_tried_again(folder: Store) -> None:
    made = job(folder, retries=5)
    assert backend(lambda *_: folder, made, "main-0", Live(), lambda *_: Reason.OUT_OF_MEMORY) == [EXIT_NEVER]
    assert fold(read_run(folder, run_id(made))).state is State.FAILED


def test_a_commands_own_78_is_not_tried_again_but_where_the_job_names_it(folder: Store) -> None:
    made = msgspec.structs.replace(job(folder), limits=Limits(retries=2))
    assert backend(lambda *_: folder, made, "main-0", Live(), lambda *_: Reason.CONFIG_ERROR) == [EXIT_NEVER]
    named = msgspec.structs.replace(made, limits=Limits(retries=2, retry_on=("config_error",)))
    codes = backend(lambda *_: folder, named, "main-0", Live(), lambda *_: Reason.CONFIG_ERROR)
    assert codes == [EXIT_USER, EXIT_USER, EXIT_NEVER]  # it counts, as any failure of the command


def test_memory_is_tried_again_where_the_job_asks_for_it(folder: Store) -> None:
    made = job(folder)
    made = msgspec.structs.replace(made, limits=msgspec.structs.replace(made.limits, retry_on=("out_of_memory",)))
    reasons = [Reason.OUT_OF_MEMORY, Reason.OUT_OF_MEMORY, Reason.SUCCEEDED]
    codes = backend(lambda *_: folder, made, "main-0", Live(), lambda _, attempt: reasons[attempt - 1])
    assert codes == [EXIT_AGAIN, EXIT_AGAIN, EXIT_DONE]


def test_success_without_outputs_is_output_missing(folder: Store) -> None:
    made = job(folder)
    member = Member(folder, made, "main-0", placement())
    member.start()
    assert member.before_command() is None
    assert member.end(Exit("main-0", Reason.SUCCEEDED), outputs_done=False) == EXIT_NEVER
    assert fold(read_run(folder, run_id(made))).reason is Reason.OUTPUT_MISSING


def test_cancel_stops_a_command_within_a_beat_and_is_final(folder: Store) -> None:
    made, live = job(folder), Live()

    def command(member: Member, attempt: int) -> Reason:
        folder.create(member.keys.cancel, b'{"by":"me","time":0,"nonce":"n"}')
        assert member.stopped.wait(HANGS)
        return Reason.USER_ERROR

    assert once(folder, made, "main-0", live, command) == EXIT_NEVER
    assert fold(read_run(folder, run_id(made))).state is State.CANCELLED
    assert once(folder, made, "main-0", live, command) == EXIT_NEVER
    assert live.ever == [("main-0", 1)]


def test_a_start_that_finds_cancel_puts_the_result(folder: Store) -> None:
    made = job(folder)
    folder.create(RunKeys(run_id(made)).cancel, msgspec.json.encode(Cancel("me", 0.0, "n")))
    assert once(folder, made, "main-0", Live(), succeed) == EXIT_NEVER
    assert fold(read_run(folder, run_id(made))).state is State.CANCELLED


def test_the_lower_of_two_live_attempts_stops_within_a_beat(folder: Store) -> None:
    """The second process's placement proves the first one dead although it lives: a pod deleted by force. Its command
    waits a beat and the grace: long enough for the first one's thread to get a processor on a busy machine."""
    made, live = job(folder, grace=1.0), Live()
    codes: dict[str, int] = {}
    begun, pod = threading.Event(), Placement("job", "uid-1")

    def slow(member: Member, attempt: int) -> Reason:
        begun.set()
        assert member.stopped.wait(HANGS)
        return Reason.LOST

    first = threading.Thread(target=lambda: codes.update(first=once(folder, made, "main-0", live, slow, pod)))
    first.start()
    assert begun.wait(HANGS)
    codes["second"] = once(folder, made, "main-0", live, succeed, pod)
    first.join(10)
    assert live.overlaps == []
    assert codes["second"] == EXIT_DONE
    assert codes["first"] in (EXIT_AGAIN, EXIT_DONE)


def test_a_second_place_leaves_as_duplicate(folder: Store) -> None:
    made, live = job(folder), Live()
    done, begun = threading.Event(), threading.Event()

    def slow(member: Member, attempt: int) -> Reason:
        begun.set()
        assert done.wait(HANGS)
        return Reason.SUCCEEDED

    codes: list[int] = []
    first = threading.Thread(target=lambda: codes.append(once(folder, made, "main-0", live, slow)))
    first.start()
    assert begun.wait(HANGS)
    other = Member(folder, made, "main-0", Placement("machine", "elsewhere"))
    left = other.start()
    done.set()
    first.join(10)
    assert isinstance(left, Leave)
    assert (left.code, left.reason) == (EXIT_NEVER, Reason.DUPLICATE)
    assert codes == [EXIT_DONE]


def test_a_second_place_takes_over_when_the_first_died(folder: Store) -> None:
    made, live = job(folder, stale=0.5), Live()
    dead = CrashingStore(folder)

    def die(member: Member, attempt: int) -> Reason:
        dead.dead = True
        return Reason.SUCCEEDED

    assert once(dead, made, "main-0", live, die) == LOST
    assert once(folder, made, "main-0", live, succeed, placement("elsewhere")) == EXIT_DONE
    assert live.ever == [("main-0", 1), ("main-0", 2)]
