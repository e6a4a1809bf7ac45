"""`launcher submit`: submits jobs, pipelines and matrices, exactly once."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launcher import safe_text, wait_hint
from launcher.cli.arguments import add_job, add_output, add_price, add_waiting, print_cost, print_notes, resolved
from launcher.cli.printing.output import emit
from launcher.errors import BadInput, RunFailed

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.spec.profile import Profile
    from launcher.spec.resolve.group import Group

SUMMARY = "Submits a job, a pipeline or a matrix, exactly once: the same command again finds the same runs."
EXAMPLE = "launcher submit examples/login --backend local --follow"
NAMED = 4  # runs that a hint names, at most


def add(parser: argparse.ArgumentParser) -> None:
    add_job(parser, optional=True)
    parser.add_argument("--run", metavar="RUN", help="continue an interrupted submit, from its job.json in the store")
    parser.add_argument("--follow", action="store_true", help="show progress until all have ended; Ctrl-C detaches")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done; write nothing")
    add_price(parser)
    add_waiting(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.run is not None:
        return again(args)
    if not args.paths:
        raise BadInput("submit what? Allowed: job files, folders of them, - (stdin), or --run RUN")
    group, profile = resolved(args)
    print_notes("submit", group)
    return send(args, group, profile)


def again(args: argparse.Namespace) -> int:
    """Completes an interrupted submit: gives the runs that have a job.json to their backend."""
    from launcher.spec.profile import load_profile
    from launcher.store import open_store
    from launcher.userdata.submits import jobs_of
    from launcher.verbs.retry import group_of

    if args.paths or args.overrides or args.backend or args.fresh:
        raise BadInput("--run RUN submits exactly that job: it takes no PATH, --set, --backend or --fresh")
    profile = load_profile(Path.cwd(), args.profile, os.environ, args.store)
    group = group_of(jobs_of(open_store(profile.store), args.run))
    return send(args, group, profile)


def selection_options(args: argparse.Namespace) -> str:
    """The options with which another verb finds the same runs."""
    return "".join(f" --{name} {shlex.quote(value)}" for name in ("store", "profile") if (value := getattr(args, name)))


def keep_names(store: str, group: str, runs: Sequence[str]) -> None:
    """Keeps the names of the submitted runs for the shell's completion."""
    from launcher.userdata.cache import Cache

    with Cache() as cache:
        cache.see(store, "run", runs)
        cache.see(store, "group", [group])


def send(args: argparse.Namespace, group: Group, profile: Profile) -> int:
    """Submits a resolved group, prints the outcome, and follows it; returns the exit code. `args`: with --follow,
    --dry-run, -o, and the options of `add_price`, `add_waiting` and `add_profile`."""
    from launcher import api
    from launcher.verbs.submit import failure
    from launcher.verbs.submit_steps import ADOPTED, DELETED

    output, follow, plan, options = args.output, args.follow, args.dry_run, selection_options(args)
    jobs = api.Jobs(group, profile)
    wait_hint.before = lambda: print_cost("submit", group, profile)  # who waits for machines knows what they cost
    done = api.submit(
        jobs,
        dry_run=plan,
        budget=args.budget,
        ceiling=args.ceiling,
        without_price=args.without_price,
        wait_for_capacity=args.wait_for_capacity,
        tell=lambda line: print(safe_text.line(f"launcher submit: {line}"), file=sys.stderr),
    )
    if wait_hint.before is not None and not all(submitted.final for submitted in done):
        wait_hint.before()
    wait_hint.before = None
    if not plan:
        keep_names(profile.store, group.id, [submitted.run for submitted in done])
    rows: Sequence[Mapping[str, object]] = [
        {
            "run": submitted.run,
            "name": submitted.name,
            "state": planned_state(submitted.state) if plan else submitted.state,
            "reason": submitted.why,
        }
        for submitted in done
    ]
    if plan:
        emit(rows, output)
        return 0
    label = group.id if len(group.runs) > 1 else done[0].run
    lines = follow and output == "json"
    if lines:
        import json

        for row in rows:
            print(json.dumps({"event": "submitted", **row}), flush=True)
    elif output != "table" or not follow:
        emit(rows, output)
    if failed := failure(done):
        raise RunFailed(str(failed))
    if follow:
        from launcher.cli.printing.follow import follow as watch
        from launcher.store.opening import open_known
        from launcher.verbs.ask_backend import backends

        store, known = open_known(profile.store), backends(profile)
        return watch(store, label, known, options=options, prices=profile.prices, lines=lines)
    for submitted in (submitted for submitted in done if submitted.reason == DELETED):
        print(
            f"\n{submitted.run} succeeded before and computes nothing again, but {submitted.message}.\n"
            f"To compute it once more: launcher retry {submitted.run}{options}, or submit with another --fresh N",
            file=sys.stderr,
        )
    for submitted in (submitted for submitted in done if submitted.reason == ADOPTED):
        print(f"\n{submitted.run} is {submitted.message}", file=sys.stderr)
    if all(submitted.state == "succeeded" for submitted in done):
        print(f"\nnothing to run: all succeeded before.  launcher results {label}{options}", file=sys.stderr)
    elif output == "table":
        left = [submitted for submitted in done if not submitted.final] or list(done)
        if before := sum(submitted.state == "succeeded" for submitted in done):
            names = ", ".join(submitted.name for submitted in left[:NAMED]) + (", ..." if len(left) > NAMED else "")
            print(f"\n{before} of {len(done)} succeeded before and are not run again; to run: {names}", file=sys.stderr)
        print(
            f"\nlauncher status {label}{options} --watch     launcher logs {left[0].run}{options} --follow",
            file=sys.stderr,
        )
    return 0


def planned_state(state: str) -> str:
    return {"submitted": "would be submitted", "attached": "already submitted"}.get(state, state)
