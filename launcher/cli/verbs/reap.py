"""`launcher reap`: end lost runs and delete leftovers on a backend."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from launcher.cli.arguments import add_output, add_profile
from launcher.cli.printing.output import emit

SUMMARY = (
    "Write the final record of runs whose own processes died before they could, end runs that waited longer than their "
    "start_deadline, and delete objects on a backend whose run has ended or was cancelled. It is safe at any time, and "
    "two may run at once."
)
EXAMPLE = "launcher reap --dry-run"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print what would be done; change nothing")
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="also look for leftovers on this backend (repeatable)",
    )
    add_profile(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.backends.base import backend
    from launcher.spec.profile import load_profile
    from launcher.store.known import open_known
    from launcher.userdata.cache import Cache
    from launcher.verbs.reap import reap
    from launcher.verbs.status import backends

    profile = load_profile(Path.cwd(), args.profile, os.environ, args.store)
    store = open_known(profile.store)
    named = {name: backend(name, profile.backend_options(name)) for name in args.backend}
    with Cache() as cache:
        rows = reap(store, backends(profile), named, cache=cache, plan=args.dry_run)
    if rows or args.output != "table":
        emit([{"run": row.run, "did": _did(row.did, args.dry_run), "detail": row.detail} for row in rows], args.output)
    else:
        print("nothing to do")
    return 4 if any(row.did == "unreachable" for row in rows) else 0


def _did(what: str, plan: bool) -> str:
    return f"would be {what}" if plan and what in ("noted", "ended", "moved", "stopped") else what
