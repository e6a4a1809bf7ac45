"""What `rm` and `gc` share: printing the plan, asking for confirmation, printing the result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from launcher.cli import arguments
from launcher.cli.printing import output

if TYPE_CHECKING:  # --help of these verbs needs none of it
    from launcher.deleting.delete import Done
    from launcher.deleting.plan import DeletionPlan
    from launcher.store.base import Store

COLUMNS = ("what", "name", "objects", "size", "state", "why")
WOULD, DELETED, KEPT = "would be deleted", "deleted", "kept"


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="delete; without it, only print what would be deleted")
    arguments.add_output(parser)
    arguments.add_profile(parser)


def may_act(args: argparse.Namespace) -> bool:
    """Whether the call may delete something: with --yes, or where the user can be asked."""
    return args.yes or (args.output == "table" and _at_terminal())


def go(store: Store, plan: DeletionPlan, args: argparse.Namespace, verb: str) -> int:
    """Prints what would be deleted, and deletes it with --yes or when the user types `yes` at a terminal."""
    try:
        return _go(store, plan, args, verb)
    finally:
        plan.proof.clear()


def _go(store: Store, plan: DeletionPlan, args: argparse.Namespace, verb: str) -> int:
    from launcher.deleting.delete import carry_out

    table = args.output == "table"
    act = args.yes
    if table and not act:
        _print(plan, None)
        act = not plan.empty and _asked(plan)
    done = None
    if act and not plan.empty:
        done = carry_out(store, plan, verb=verb)
    if not table:
        output.emit(rows(plan, done), args.output)
    elif args.yes or done is not None:
        _print(plan, done)
    return 0


def rows(plan: DeletionPlan, done: Done | None) -> list[dict[str, Any]]:
    """One row for each item; `done` is None when the plan was not carried out."""
    kept = {**plan.kept, **(done.kept if done is not None else {})}
    state = WOULD if done is None else DELETED
    listed: list[dict[str, Any]] = []

    def add(what: str, name: str, objects: int, size: int, owner: str = "", why: str = "") -> None:
        if (owner or name) not in kept:
            listed.append({"what": what, "name": name, "objects": objects, "bytes": size, "state": state, "why": why})

    for run in plan.runs:
        add("run", run.run, run.objects, run.size, why=run.outcome)
    for checkpoint in plan.checkpoints:
        step = f"{checkpoint.run} step {checkpoint.step}"
        add(
            "checkpoint",
            step,
            len(checkpoint.metas),
            sum(meta.size for meta in checkpoint.metas),
            checkpoint.run,
            "an older one",
        )
    for overlay in plan.overlays:
        sizes = [meta.size for meta in overlay.metas]
        add("overlay", overlay.digest, len(sizes), sum(sizes), why="no run refers to it")
    for name, metas in plan.leftovers.items():
        add("leftover", name, len(metas), sum(meta.size for meta in metas), why="nobody refers to it")
    for name, why in kept.items():
        listed.append({"what": "run", "name": name, "objects": None, "bytes": None, "state": KEPT, "why": why})
    return listed


def _print(plan: DeletionPlan, done: Done | None) -> None:
    listed = rows(plan, done)
    shown = [{**row, "size": size(row["bytes"]), "name": _short(row["name"])} for row in listed]
    if shown:
        output.show(shown, COLUMNS, right=("objects", "size"))
    going = [row for row in listed if row["state"] != KEPT]
    if not going:
        print("nothing to delete", file=sys.stderr)
        return
    count = _counted(row["what"] for row in going)
    objects = sum(row["objects"] for row in going)
    total = f"{count}: {objects} objects, {size(sum(row['bytes'] for row in going))}"
    print(f"{total} {'deleted' if done is not None else 'would be deleted'}", file=sys.stderr)


def _asked(plan: DeletionPlan) -> bool:
    """Whether the user types `yes` at a terminal."""
    if not _at_terminal():
        print("nothing was deleted; the same command with --yes deletes it", file=sys.stderr)
        return False
    print("type yes to delete: ", end="", file=sys.stderr, flush=True)
    confirmed = sys.stdin.readline().strip() == "yes"
    if not confirmed:
        print("nothing was deleted", file=sys.stderr)
    return confirmed


def _at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _counted(kinds: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items())


def _short(name: str) -> str:
    return f"{name[:12]}..." if len(name) == 64 else name  # an overlay's digest


def size(count: float | None) -> str:
    """Bytes as people write them."""
    from launcher.cli.printing.units import size as text

    return "" if count is None else text(count)
