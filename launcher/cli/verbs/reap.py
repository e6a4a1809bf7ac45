"""`launcher reap`: end lost runs and delete leftovers on a backend."""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.cli.arguments import add_output, add_profile
from launcher.cli.printing.output import emit

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.verbs.leftovers import Reaped

SUMMARY = (
    "Write the final record of runs whose own processes died before they could, end runs that waited longer than "
    "their start_deadline, and delete objects on a backend whose run has ended or was cancelled. With `--backend "
    "azureml` it also deletes compute instances, disks and public addresses of the workspace's resource group, their "
    "data included, if they carry the tag `slipway-store` with this store's URL and two reaps an hour or more apart "
    "found that nobody uses them. What is without the tag is never deleted, so take it off to keep one. --dry-run "
    "shows what would go. It is safe at any time, and two may run at once."
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
    from launcher.errors import Unreachable
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.userdata.cache import Cache
    from launcher.verbs.ask_backend import backends
    from launcher.verbs.leftovers import Reaped
    from launcher.verbs.reap import reap

    profile = load_profile(Path.cwd(), args.profile, os.environ, args.store)
    store = open_known(profile.store)
    named = {name: backend(name, profile.backend_options(name)) for name in args.backend}
    with Cache() as cache:
        # a reaper waits for nobody's machines: it may be the only one, and others must be ended
        rows = reap(store, backends(profile, waiting=0.0), named, cache=cache, plan=args.dry_run)
        if not args.dry_run:
            _expose(rows, store.url)
        if profile.notify:
            from launcher.verbs.notify import Notifier, secret_reader

            notifier = Notifier(store, profile.notify, secret_reader(profile, os.environ))
            try:
                for row in notifier.once(cache, plan=args.dry_run):
                    rows.append(Reaped(row.run, _told(row.did), f"{row.event} by {row.channel}: {row.detail}"))
            except Unreachable as error:  # what was reaped is told all the same
                rows.append(Reaped("notify", "unreachable", str(error)))
            if not args.dry_run:  # once more: slow receivers may take longer than this process has
                _expose(rows, store.url)
    if rows or args.output != "table":
        emit([{"run": row.run, "did": _did(row.did, args.dry_run), "detail": row.detail} for row in rows], args.output)
    else:
        print("nothing to do")
    return 4 if any(row.did == "unreachable" for row in rows) else 0


def _expose(rows: Sequence[Reaped], store: str) -> None:
    """Writes the reaper's numbers where node_exporter's textfile collector reads them, if the environment says so."""
    from launcher import exposition
    from launcher.exposition import MetricFamily

    folder = exposition.folder(os.environ)
    if folder is None:
        return
    now = time.time()
    name = f"slipway-reaper-{hashlib.sha256(store.encode()).hexdigest()[:8]}"
    good = not any(row.did == "unreachable" for row in rows)
    last = now if good else exposition.value(folder, name, "slipway_reaper_success_timestamp_seconds")
    labels = {"store": store}
    counted = Counter(row.did for row in rows)
    exposition.write(
        folder,
        name,
        [
            MetricFamily("slipway_reaper_success_timestamp_seconds", [(labels, last)]),
            MetricFamily("slipway_reaper_seen_timestamp_seconds", [(labels, now)]),
            MetricFamily("slipway_reaper_actions", [({**labels, "did": did}, n) for did, n in sorted(counted.items())]),
        ],
    )


def _told(did: str) -> str:
    return {"sent": "told", "would be sent": "would be told"}.get(did, "untold")


def _did(what: str, plan: bool) -> str:
    return f"would be {what}" if plan and what in ("noted", "ended", "moved", "stopped", "renewed") else what
