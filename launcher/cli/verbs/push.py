"""`launcher push`: uploads what rendered jobs need in the store before Argo CD, Flux or kubectl applies them.

These are the code overlays, by digest. It writes no records of runs: a runtime writes job.json if it is missing
(docs/explanation/protocol.md, The records).
"""

from __future__ import annotations

import argparse
import os
import sys

from launcher.cli.arguments import add_job, add_output, print_notes, resolved
from launcher.cli.printing.output import emit

SUMMARY = "Upload the code overlays of rendered jobs to the store, before somebody else applies the jobs."
EXAMPLE = "launcher push jobs/ && launcher render jobs/ --backend kubernetes --to gitops/jobs"


def add(parser: argparse.ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be uploaded; write nothing")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    group, profile = resolved(args)
    print_notes("push", group)
    wanted = {digest for job in group.runs for digest in job.blobs()}
    if not wanted:
        if args.output == "table":
            print("nothing to push: no job has a code overlay", file=sys.stderr)
        else:
            emit([], args.output)
        return 0
    from launcher.store import layout, open_store
    from launcher.store.opening import check_store, make_store, marked, memory
    from launcher.verbs.overlays import push_overlays

    store = open_store(profile.store)
    if args.dry_run:
        states = {digest: store.head(layout.blob(digest)) is None for digest in sorted(wanted)}
    else:
        make_store(store, marked(memory(os.environ), store.url))
        check_store(store, memory(os.environ))
        states = push_overlays(store, group.runs, group.packed)
    new = "would be put" if args.dry_run else "put"
    emit([{"overlay": digest, "state": new if fresh else "there"} for digest, fresh in states.items()], args.output)
    return 0
