"""A development session: a run of a job's image, inputs, code and resources with a command that only waits, so that its
user can work in it by hand.

It is a run like any other for queues, deadlines, `status`, `cancel` and `reap`, so nothing can be left behind. It is
none for results: it has no outputs, a name and a label of its own, and a `fresh` number, so that its work is never
adopted.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from launcher.backends.base import Backend, Entered, backend_of
from launcher.errors import BadInput, NotFound, RunFailed
from launcher.spec.hashing import decode_job, run_id
from launcher.spec.model import ResolvedJob
from launcher.spec.profile import Profile
from launcher.spec.resolve.group import Group
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.proof import runs_of
from launcher.verbs.retry import group_of

LABEL: Final = "slipway-dev"  # its value: the user
PREFIX: Final = "dev-"
NAME_LENGTH: Final = 27  # of a job's name
PAUSE: Final = 1.0  # seconds between two looks while the session starts
SHELL: Final = ("sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh")


class Session(NamedTuple):
    run: str
    job: ResolvedJob


def user() -> str:
    """This machine's user, as a label's value."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:63].strip("-._") or "somebody"


def choose(group: Group, job: str | None) -> ResolvedJob:
    """The one job of a group. `job`: its name, or that of a variant. Raises BadInput."""
    named = {group.names.get(run_id(each), each.name): each for each in group.runs}
    if job is None and len(named) == 1:
        return next(iter(named.values()))
    if job is not None and job in named:
        return named[job]
    said = "which job? --job" if job is None else f"--job {job}: there is no such job"
    raise BadInput(f"{said}; allowed: {', '.join(named)}")


def derived(job: ResolvedJob, owner: str, *, role: str | None, deadline: float, idle: float) -> ResolvedJob:
    """The session of a job, its first: one process of a role (default: the leading one). Raises BadInput."""
    chosen = role or job.leading
    if chosen not in job.roles:
        raise BadInput(f"--role {chosen}: the job has no such role; allowed: {', '.join(job.roles)}")
    was = job.roles[chosen]
    watch = Path(__file__).with_name("watch.py").read_text()
    waits = msgspec.structs.replace(
        was,
        command=("python", "-c", watch, f"{idle:g}"),
        env={**was.env, "SLIPWAY_DEV_COMMAND": shlex.join(was.command)},
        leader=False,
        replicas=1,
        ready=None,
        needs=(),
        restarts=0,
    )
    limits = msgspec.structs.replace(job.limits, deadline=deadline, retries=0, retry_on=())
    return msgspec.structs.replace(
        job,
        name=(PREFIX + job.name)[:NAME_LENGTH].rstrip("-"),
        roles={chosen: waits},
        outputs={},
        limits=limits,
        labels={**job.labels, LABEL: owner},
        variant={},
        fresh=1,
        resume=None,
    )


def sessions(store: Store, name: str, owner: str) -> list[Session]:
    """A user's sessions of a job that have not ended. `name`: of the session's runs."""
    opened = []
    for run in runs_of(store):
        if run.rpartition("-")[0] != name:
            continue
        stored = store.read(RunKeys(run).job)
        if stored is None or store.head(RunKeys(run).result) is not None:
            continue
        job = decode_job(stored[0])
        if job.labels.get(LABEL) == owner:
            opened.append(Session(run, job))
    return opened


def next_of(store: Store, job: ResolvedJob) -> ResolvedJob:
    """The session with the first number that is not used: a run is final once it has ended."""
    while store.head(RunKeys(run_id(job)).job) is not None:
        job = msgspec.structs.replace(job, fresh=job.fresh + 1)
    return job


def as_group(job: ResolvedJob, source: Group, was: ResolvedJob) -> Group:
    """The session as what `submit` takes, with the code and this machine's options of the job that it was made from."""
    machine = source.machine.get(run_id(was))
    new = group_of({run_id(job): job})
    return msgspec.structs.replace(
        new, code=source.code, environments=source.environments, machine={run_id(job): machine} if machine else {}
    )


def session_backend(profile: Profile, job: ResolvedJob) -> Entered:
    """The backend of a session. Raises BadInput for one in whose processes nobody can work: asked before anything is
    submitted, which may cost money."""
    place: Backend = backend_of(job, profile.backend_options(job.backend))
    if not isinstance(place, Entered):
        raise BadInput(f"backend `{job.backend}` has no processes that one can work in; allowed: another --backend")
    return place


def argv(profile: Profile, session: Session, command: Sequence[str], *, tty: bool) -> list[str]:
    """The program that brings a user into a session. Raises NotFound while its process does not run."""
    place = session_backend(profile, session.job)
    enter = Path(__file__).with_name("enter.py").read_text()
    words = ["python", "-c", enter, session.run, *(command or SHELL)]
    return place.execute(session.run, session.job.members()[0], words, tty=tty)


def wait_for_argv(
    profile: Profile, store: Store, session: Session, command: Sequence[str], *, tty: bool, look: Callable[[], None]
) -> list[str]:
    """As `argv`, once the session runs. `look` is called between two tries. Raises RunFailed when the session ended."""
    while True:
        try:
            return argv(profile, session, command, tty=tty)
        except NotFound:
            if store.head(RunKeys(session.run).result) is not None:
                raise RunFailed(f"{session.run} has ended: `launcher status {session.run}` says why") from None
        look()
        time.sleep(PAUSE)
