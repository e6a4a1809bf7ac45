"""What `render`, `submit` and `push` share: the arguments that name jobs, and the loading of jobs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from launcher import safe_text
from launcher.cli.arguments import add_profile, seconds

if TYPE_CHECKING:  # --help of a verb needs none of it
    from launcher.spec.profile import Profile
    from launcher.spec.resolve.group import Group


def add_job(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Adds the arguments of verbs that read job files. `optional`: the verb has another way to name jobs."""
    parser.add_argument(
        "paths", nargs="*" if optional else "+", metavar="PATH", help="job files, folders of them, or - (stdin)"
    )
    parser.add_argument(
        "--backend", metavar="NAME", help="the backend to run on; default: the job's, then the profile's"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="[JOB:]PATH=VALUE",
        help="change a field; the value is YAML; +PATH adds a field that the file lacks",
    )
    parser.add_argument("--fresh", type=int, default=0, metavar="N", help="another number runs the same job once more")
    add_profile(parser)


def add_price(parser: argparse.ArgumentParser) -> None:
    """Adds the options of verbs that submit, about money."""
    parser.add_argument(
        "--budget", metavar="AMOUNT", help="refuse unless all these runs together cost at most this: '200 USD'"
    )
    parser.add_argument(
        "--ceiling",
        metavar="AMOUNT",
        help="stop all these runs, checkpoint first, before they have cost more together: '200 USD'",
    )
    parser.add_argument(
        "--without-price", action="store_true", help="submit although what a machine costs is not known"
    )


def add_waiting(parser: argparse.ArgumentParser) -> None:
    """Adds the option of verbs that submit, about machines that are not free."""
    parser.add_argument(
        "--wait-for-capacity",
        metavar="TIME",
        type=seconds,
        help="wait so long for a free machine (lambda), whatever the job says: 6h",
    )


def print_cost(verb: str, group: Group, profile: Profile) -> None:
    """Prints a line on standard error about what the runs may cost, unless they are free."""
    from launcher.verbs.estimate import estimates, worst_line

    if line := worst_line(estimates(group.runs, group.names, profile.prices)):
        print(safe_text.line(f"launcher {verb}: {line}"), file=sys.stderr)


def resolved(args: argparse.Namespace) -> tuple[Group, Profile]:
    """The runs that the arguments of `add_job` name, and the profile used to resolve them."""
    from launcher import api

    jobs = api.load(
        args.paths,
        overrides=args.overrides,
        backend=args.backend,
        fresh=args.fresh,
        store=args.store,
        profile=args.profile,
    )
    return jobs.group, jobs.profile


def print_notes(verb: str, group: Group) -> None:
    """Prints on standard error what a person should know of how the jobs were read, a line each."""
    for note in group.notes:
        print(safe_text.line(f"launcher {verb}: {note}"), file=sys.stderr)
