"""`launcher queues`: the queues that runs wait in."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import safe_text
from launcher.cli.arguments import add_output
from launcher.cli.printing.output import emit, show
from launcher.errors import BadInput

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.backends.base import QueueCheck, QueueQuota, QueueState
    from launcher.spec.profile import Profile

SUMMARY = (
    "Show the queues that runs wait in: this machine's, and Kueue's in the namespace of the settings. For each: its "
    "length, the places of our runs in it, the quota that is used and free, and the admission checks. A queue of Kueue "
    "can be stopped and resumed."
)
EXAMPLE = "launcher queues\n  launcher queues team-a --stop"
COLUMNS = ("queue", "backend", "namespace", "cluster_queue", "state", "waiting", "running", "detail")
RIGHT = ("waiting", "running", "position", "quota", "used", "free", "borrowed")
QUOTAS = ("queue", "flavor", "resource", "quota", "used", "free", "borrowed")
CHECKS = ("queue", "check", "run", "state", "message")
IN_BYTES = ("memory", "ephemeral-storage")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="only this queue; default: all")
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="ask this backend; default: those of the settings",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--stop", action="store_true", help="QUEUE lets nothing in from now on; what runs goes on")
    action.add_argument("--resume", action="store_true", help="QUEUE lets jobs in again")
    parser.add_argument(
        "--drain",
        action="store_true",
        help="with --stop: also take out what runs; it waits and goes on at its checkpoint",
    )
    parser.add_argument(
        "--cluster-queue", action="store_true", help="QUEUE is a ClusterQueue: every queue that uses it is meant"
    )
    parser.add_argument("--yes", action="store_true", help="stop or resume without asking")
    parser.add_argument("--profile", metavar="NAME", help="a named profile of slipway.yaml")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.spec.profile import load_profile
    from launcher.verbs.queues import choose, read_queues

    _refuse_wrong(args)
    profile = load_profile(Path.cwd(), args.profile, os.environ)
    if args.stop or args.resume:
        return _change(args, profile)
    found = read_queues(profile, args.backend)
    queues = choose(found.queues, args.queue, cluster_queue=args.cluster_queue) if args.queue else found.queues
    _print(queues, found.problems, args.output)
    return found.code


def _refuse_wrong(args: argparse.Namespace) -> None:
    if (args.stop or args.resume) and not args.queue:
        raise BadInput(f"--{'stop' if args.stop else 'resume'}: name the queue; `launcher queues` lists them")
    if args.drain and not args.stop:
        raise BadInput("--drain belongs to --stop")
    if args.yes and not (args.stop or args.resume):
        raise BadInput("--yes belongs to --stop and --resume")


def _change(args: argparse.Namespace, profile: Profile) -> int:
    """Stops or resumes a queue, after the user's word, and shows what it is then."""
    from launcher.verbs.queues import choose, read_queues, stopper

    name, _, place = stopper(profile, args.backend)
    before = choose(read_queues(profile, [name]).queues, args.queue, cluster_queue=args.cluster_queue)
    if not args.yes and not _asked(args, before):
        return 2
    if args.stop:
        place.stop_queue(args.queue, cluster_queue=args.cluster_queue, drain=args.drain)
    else:
        place.resume_queue(args.queue, cluster_queue=args.cluster_queue)
    found = read_queues(profile, [name])
    _print(choose(found.queues, args.queue, cluster_queue=args.cluster_queue), found.problems, args.output)
    return found.code


def _asked(args: argparse.Namespace, queues: Sequence[QueueState]) -> bool:
    """Says what the change does, and whether the user types `yes` at a terminal."""
    waiting, running = sum(each.waiting for each in queues), sum(each.running for each in queues)
    kind = "ClusterQueue" if args.cluster_queue else "queue"
    where = f"{kind} {args.queue} ({', '.join(sorted({each.place for each in queues}))})"
    if args.resume:
        does = f"lets jobs in again: {waiting} wait"
    elif args.drain:
        does = f"lets nothing in, and takes out what runs: {running} run, {waiting} wait"
    else:
        does = f"lets nothing in: {waiting} wait; the {running} that run go on"
    others = "; queues of other namespaces that use it are not counted" if args.cluster_queue else ""
    print(safe_text.line(f"{where} {does}{others}"), file=sys.stderr)
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        print("nothing was changed; the same command with --yes changes it", file=sys.stderr)
        return False
    print("type yes to do it: ", end="", file=sys.stderr, flush=True)
    confirmed = sys.stdin.readline().strip() == "yes"
    if not confirmed:
        print("nothing was changed", file=sys.stderr)
    return confirmed


def _print(queues: Sequence[QueueState], problems: Sequence[str], output: str) -> None:
    if output != "table":
        emit([record(each) for each in queues], output)
    else:
        _print_tables(queues)
    for problem in problems:
        print(safe_text.line(f"launcher queues: {problem}"), file=sys.stderr)


def _print_tables(queues: Sequence[QueueState]) -> None:
    """The queues; then their quotas; then the runs in them; then what is asked of runs besides quota."""
    if not queues:
        print("no queues", file=sys.stderr)
        return
    show([record(each) for each in queues], COLUMNS, RIGHT)
    quotas = [
        {"queue": each.name, "flavor": quota.flavor, "resource": quota.resource, **_amounts(quota)}
        for each in queues
        for quota in each.quotas
    ]
    if quotas:
        print()
        show(quotas, QUOTAS, RIGHT)
    runs = [{"position": run.position, "run": run.run, "queue": each.name} for each in queues for run in each.ours]
    if runs:
        print()
        show(runs, ("run", "queue", "position"), RIGHT)
    if checks := [row for each in queues for row in _check_rows(each)]:
        print()
        show(checks, CHECKS, RIGHT)


def _check_rows(queue: QueueState) -> Iterator[dict[str, str | None]]:
    """The checks of a queue, then those that its runs wait for."""
    yield from ({"queue": queue.name, "run": "", **_check(check)} for check in queue.checks)
    yield from ({"queue": queue.name, "run": each.run, **_check(check)} for each in queue.ours for check in each.checks)


def _amounts(quota: QueueQuota) -> dict[str, str]:
    from launcher.cli.printing.units import size

    def amount(value: float) -> str:
        return size(value) if quota.resource in IN_BYTES else f"{value:g}"

    return {
        "quota": amount(quota.quota),
        "used": amount(quota.used),
        "free": amount(quota.free),
        "borrowed": amount(quota.borrowed) if quota.borrowed else "",
    }


def record(queue: QueueState) -> dict[str, Any]:
    """The fields for programs: cores, bytes, numbers; null where there is no such thing."""
    return {
        "queue": queue.name,
        "backend": queue.backend,
        "place": queue.place,
        "namespace": queue.namespace or None,
        "cluster_queue": queue.cluster_queue or None,
        "cohort": queue.cohort or None,
        "state": queue.state,
        "detail": queue.detail,
        "waiting": queue.waiting,
        "running": queue.running,
        "runs": [
            {"run": each.run, "position": each.position, "checks": [_check(check) for check in each.checks]}
            for each in queue.ours
        ],
        "quotas": [
            {
                "flavor": each.flavor,
                "resource": each.resource,
                "quota": each.quota,
                "used": each.used,
                "borrowed": each.borrowed,
                "free": each.free,
            }
            for each in queue.quotas
        ],
        "checks": [_check(check) for check in queue.checks],
    }


def _check(check: QueueCheck) -> dict[str, str | None]:
    return {"check": check.name, "state": check.state or None, "message": check.message}
