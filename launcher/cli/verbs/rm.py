"""`launcher rm`: delete runs that have ended."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from launcher.cli import arguments, deleting

SUMMARY = (
    "Delete the outputs, checkpoints and logs of ended runs. Job and final record stay, so the same job computes\n"
    "nothing again. What an unfinished run needs is never deleted."
)
EXAMPLE = (
    "launcher rm sft-login-1a2b3c4d5e6f           what would be deleted\n"
    "  launcher rm sft-login-1a2b3c4d5e6f --yes     delete it"
)


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_names(parser)
    deleting.add_yes(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.deleting.plan import check_named, plan_rm
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known

    store = open_known(load_profile(Path.cwd(), args.profile, os.environ, store=args.store).store)
    runs = select(store, args.names).runs
    plan = plan_rm(store, runs, may_act=deleting.may_act(args))
    with plan.proof.cleared_if_refused():
        check_named(args.names, plan, runs)
    return deleting.go(store, plan, args, "rm")
