"""`launcher dev`: a shell where a job would run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from launcher import safe_text
from launcher.cli import member
from launcher.cli.arguments import add_profile, print_notes, seconds
from launcher.errors import BadInput, NotFound, RunFailed

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.spec.profile import Profile
    from launcher.store.base import Store
    from launcher.verbs.dev.session import Session

SUMMARY = (
    "Open a shell with a job's image, inputs, code, environment and resources; the job's command is not run. Each user "
    "has one session of a job: the same command again enters it. It ends by itself when nobody was in it for --idle, "
    "and at --deadline; it is no result of the job."
)
EXAMPLE = "launcher dev examples/hello\n  launcher dev examples/hello --stop"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a job file or a folder of them")
    parser.add_argument("--job", metavar="NAME", help="which job, where there are several; a variant is NAME[lr=1e-5]")
    parser.add_argument("--role", help="whose image and resources; default: the leading role")
    parser.add_argument("--command", metavar="TEXT", help="a line for sh; the verb ends with it and has its exit code")
    parser.add_argument("--idle", type=seconds, default="30m", metavar="TIME", help="default: %(default)s")
    parser.add_argument("--deadline", type=seconds, default="8h", metavar="TIME", help="default: %(default)s")
    parser.add_argument("--detach", action="store_true", help="start the session and do not enter it")
    parser.add_argument("--stop", action="store_true", help="end your session of this job")
    parser.add_argument("--backend", metavar="NAME", help="the backend; default: the job's, then the profile's")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="[JOB:]PATH=VALUE", help="change a field"
    )
    add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher import api
    from launcher.store import open_store
    from launcher.verbs.dev.session import Session, as_group, choose, derived, next_of, session_backend, sessions, user
    from launcher.verbs.submit import failure

    if args.stop and (args.command or args.detach):
        raise BadInput("--stop takes neither --command nor --detach")
    if args.idle <= 0 or args.deadline <= 0:
        raise BadInput("--idle, --deadline: more than 0")
    jobs = api.load(args.path, overrides=args.overrides, backend=args.backend, store=args.store, profile=args.profile)
    was = choose(jobs.group, args.job)
    job = derived(was, user(), role=args.role, deadline=args.deadline, idle=args.idle)
    store = open_store(jobs.profile.store)
    opened = sessions(store, job.name, user())
    if args.stop:
        return _stop(store, opened, jobs.profile, job.name)
    if opened:
        session = opened[0]
        if msgspec.structs.replace(job, fresh=session.job.fresh) != session.job:
            _say(f"{session.run} was started before the job or these options changed; to take them: --stop, then again")
    else:
        session_backend(jobs.profile, job)
        print_notes("dev", jobs.group)
        new = next_of(store, job)
        done = api.submit(api.Jobs(as_group(new, jobs.group, was), jobs.profile))
        if failed := failure(done):
            raise RunFailed(str(failed))
        session = Session(done[0].run, new)
    return _enter(args, store, jobs.profile, session)


def _stop(store: Store, opened: Sequence[Session], profile: Profile, name: str) -> int:
    from launcher.verbs.cancel import cancel_jobs

    if not opened:
        raise NotFound(f"you have no open session `{name}` in {store.url}")
    jobs = {session.run: session.job for session in opened}
    for ended in cancel_jobs(store, jobs, profile, reason="its user stopped the session"):
        print(f"{ended.run} {ended.state}")
    return 0


def _enter(args: argparse.Namespace, store: Store, profile: Profile, session: Session) -> int:
    from launcher.cli.printing.units import duration
    from launcher.verbs.ask_backend import backends
    from launcher.verbs.dev.session import wait_for_argv
    from launcher.verbs.status import read_line

    if args.detach:
        print(session.run)
        return 0
    told = ""
    known = backends(profile)

    def look() -> None:
        nonlocal told
        _, line = read_line(store, session.run, backend_of=known)
        text = f"{session.run} {line.state}" + (f": {line.detail}" if line.detail else "")
        if text != told:
            _say(text)
            told = text

    tty = sys.stdin.isatty() and sys.stdout.isatty() and not args.command
    words = ("sh", "-c", args.command) if args.command else ()
    argv = wait_for_argv(profile, store, session, words, tty=tty, look=look)
    if tty:
        role = next(iter(session.job.roles.values()))
        _say(f"the job's command: {role.env['SLIPWAY_DEV_COMMAND']}")
    code = member.call(argv, "dev")
    if tty:
        _say(f"{session.run} stays open for {duration(args.idle)} without anybody in it; `--stop` ends it now")
    return code


def _say(text: str) -> None:
    print(safe_text.line(f"launcher dev: {text}"), file=sys.stderr)
