"""The states that the exhaustive check explores: processes, the store, the backend's objects, submitters.

Time is abstract: a member's beat `gets quiet` once its writer is dead, or cut off and has had the time to fence itself;
`time passes` for the successor of an attempt once nobody of that attempt, who could read that claim, still computes.
"""

from __future__ import annotations

from typing import NamedTuple

from launcher.protocol import decide, steps
from launcher.protocol.facts import RetryPolicy, Verdict
from launcher.reasons import Reason

NO_BEAT, BEATS, QUIET, QUIET_CLAIM = range(4)  # QUIET_CLAIM: an old claim that no beat followed
IDLE, RUNS, EXITED_0, ENDED = range(4)  # ENDED: by its leash, or by a successor, while its runtime was frozen


class Proc(NamedTuple):
    """A process of the runtime."""

    place: int
    rank: int
    inc: int  # how often this slot (or set) was started
    pc: str  # start | act | form | settle | before | run | end
    n: int = 0  # its attempt
    child: int = IDLE
    cut: bool = False  # partitioned from the store
    frozen: bool = False  # it does nothing, and its command runs on
    orphan: bool = False  # its backend believes that it is gone
    excused: bool = False  # it was cut off while it ran
    mem: steps.PutClaim | steps.Finish | steps.Break | steps.PutWorks | steps.Adopt | Reason | None = None
    step: int = -1  # the step that its command has reached
    born: int = 99  # how many attempts there were when it began (99: no matter, nobody lives on beside it)
    served: bool | None = None  # what it found in works/: whether another run has done the work
    late: bool = False  # the work was done before it began


class Att(NamedTuple):
    """One attempt in the store; tuples by member."""

    claims: tuple[tuple[int, int] | None, ...]  # (place, inc)
    beats: tuple[int, ...]
    exits: tuple[Reason | None, ...]
    formed: bool = False
    broken: bool = False
    outputs: bool = False
    checkpoint: int = -1
    settled: bool = False  # one beat and the kill time have passed since the next claim
    held: int = 0  # units of time for which it is billed; counted only where there is a budget
    move: bool = False  # its claim moves the run to its next backend


class Obj(NamedTuple):
    """The backend's object at one place."""

    state: str  # none | active | complete | failed | deleted | away (what applied it may make it again)
    slots: tuple[tuple[int, str], ...]  # by rank: inc, and P(ending) R(unning) D(one)


class Sub(NamedTuple):
    """A submitter: what it knows, and whether it is alive."""

    pc: str  # read | go | done | dead
    known: decide.Submission | None = None


class State(NamedTuple):
    procs: tuple[Proc, ...]
    atts: tuple[Att, ...]
    objs: tuple[Obj, ...]
    subs: tuple[Sub, ...]
    faults: tuple[int, ...]
    job: bool
    cancel: bool = False
    told: bool = False  # `launcher cancel` has told the backend
    result: Verdict | None = None
    works: bool = False
    reaper: Verdict | None = None  # what a slow reaper is about to put
    mover: steps.Move | None = None  # what somebody is about to put who moves the run
    served: bool = False  # another run has done this work, and its outputs are there
    once_served: bool = False
    file: bool = True  # of an applied run: Git has its file
    quiet: bool = False  # the bound has passed without a sign of life
    waited: bool = False  # longer than start_deadline for the first process of the backend whose turn it is
    noted: bool = False  # a reaper has noted that it deletes the object


class Config(NamedTuple):
    """What is explored. `mode`: job (one Job, ranks restart one by one), set (all ranks restart together, with a
    number), host (a new machine each time, which proves nothing), process (one machine, pids prove)."""

    places: int = 1
    ordered: bool = False  # the places are backends of one job, in its order: only the first gets the run at first
    ranks: int = 1
    leading: int = 1
    mode: str = "job"
    policy: RetryPolicy = RetryPolicy(retries=1, infrastructure=3)
    submitted: bool = True  # the objects are there from the beginning
    job: bool = True
    submitters: int = 0
    steps: int = 0  # checkpoints that the command writes
    stranger: bool = False  # somebody asks a backend that is not the run's own place
    starts: bool = True  # the backend does start processes
    inplace: bool = False  # helpers' commands are started again inside their runtime
    late: bool = False  # the second place begins when an attempt has exited at the first
    slow_reaper: bool = False
    applied: bool = False  # by GitOps: an object that somebody deletes is made again while Git has its file
    faults: tuple[tuple[str, int], ...] = ()
    begin: tuple[str, ...] = ()  # what has happened before: labels, or how they begin


def config(**given: object) -> Config:
    """Faults by name (crash, cut, freeze, force, term, user, memory, never, cancel, lost, gone, submitter;
    asked: a person moves the run; waited: it waits too long for its first process;
    removed: somebody deletes the object, pruned: its file goes from Git; served: another run
    does the work, deleted: its outputs go); the rest are fields."""
    fields = {key: value for key, value in given.items() if key in Config._fields}
    faults = tuple((key, value) for key, value in given.items() if key not in Config._fields)
    return Config(**{**fields, "faults": faults})  # type: ignore[arg-type]
