"""`launcher cost`: what jobs would cost, what runs cost so far, and what they have cost."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import safe_text
from launcher.cli import arguments
from launcher.cli.printing import output
from launcher.errors import BadInput, NotFound, Unreachable
from launcher.trees import document

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.spec.profile import Profile
    from launcher.store.base import Store
    from launcher.verbs.cost import CostGroup, RunCost, StoredRun
    from launcher.verbs.estimate import JobEstimate
    from launcher.verbs.paid import DiskCost

SUMMARY = (
    "Show what runs cost, all attempts together: so far, or in the end. With --job: what jobs would cost, and at most. "
    f"{document('docs/howto/cost.md')} says what counts and where prices come from."
)
EXAMPLE = "launcher cost --by team\n  launcher cost -l team=agents --by day\n  launcher cost --job examples/login"
COLUMNS = ("run", "state", "hours", "cost", "per_hour", "at_most", "labels")
NOT_LABELS = ("day", "backend", "job")
RIGHT = ("hours", "cost", "per_hour", "at_most", "runs", "unknown", "expected", "deadline", "earlier")


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_names(parser, nargs="*", more="; default: all runs")
    arguments.add_labels(parser)
    parser.add_argument(
        "--by",
        metavar="WHAT",
        help="sums by `team` (the label), `day` (UTC), `backend`, `job`, or the name of any other label",
    )
    parser.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="PATH",
        help="a job file or folder that is not submitted: what it would cost (repeatable)",
    )
    parser.add_argument(
        "--storage", action="store_true", help="what the runs keep in the store, and what that costs a month"
    )
    parser.add_argument("--backend", metavar="NAME", help="with --job: the backend instead of the job's own")
    arguments.add_output(parser)
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known

    if args.job and (args.names or args.label or args.by):
        raise BadInput("--job is about jobs that were not submitted; it takes no NAME, --label or --by")
    if args.backend and not args.job:
        raise BadInput("--backend goes with --job; of runs, name a run or use --by backend")
    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    if args.job:
        return _before(args, profile)
    if args.storage:
        if args.names or args.label or args.by:
            raise BadInput("--storage lists the whole store; it takes no NAME, --label or --by")
        return _storage(args, profile, open_known(profile.store))
    return _after(args, profile, open_known(profile.store))


def _before(args: argparse.Namespace, profile: Profile) -> int:
    from launcher import api
    from launcher.verbs.estimate import estimates

    jobs = api.load(args.job, backend=args.backend, store=args.store, profile=args.profile)
    earlier = _earlier(profile.store, {job.name for job in jobs.group.runs})
    found = estimates(jobs.group.runs, jobs.names, profile.prices, earlier)
    if args.output != "table":
        output.emit([estimate_record(one) for one in found], args.output)
        return 0
    from launcher.cli.printing.units import duration

    rows = [
        {
            "run": one.run,
            "name": one.name,
            "per_hour": _per_hour(one.rate.low, one.rate.high, one.rate.currency) if one.rate.known else "not known",
            "deadline": duration(one.deadline) if one.deadline is not None else None,
            "budget": f"{one.budget:.2f} {one.rate.currency}" if one.budget is not None else None,
            "expected": _money(one.expected, one.rate.currency),
            "earlier": one.earlier or None,
            "at_most": _most(one),
        }
        for one in found
    ]
    output.show(rows, right=RIGHT)
    _tell([(one.name, one.rate.missing) for one in found])
    if any(one.rate.origin for one in found):
        origins = dict.fromkeys(one.rate.origin.removeprefix("prices: ") for one in found if one.rate.origin)
        print(f"\nprices: {', '.join(origins)}")
    return 0


def _most(one: JobEstimate) -> str:
    """In words where it is no sum. A run without a price costs nothing, also without a deadline."""
    if not one.rate.known:
        return "not known"
    if one.rate.free:
        return "free"
    return _money(one.worst, one.rate.currency) or "no limit"


def _earlier(url: str, names: set[str]) -> dict[str, list[float]]:
    """Name -> for how many seconds each of the job's runs that succeeded held its machines. Nothing where the store
    cannot be read: prices need none."""
    from launcher.store.opening import open_known
    from launcher.userdata.cache import Cache
    from launcher.verbs.status import list_runs, read_lines

    times: dict[str, list[float]] = {}
    try:
        store = open_known(url)
        runs = [run for run in list_runs(store) if run.rpartition("-")[0] in names]
    except (NotFound, Unreachable) as error:
        print(f"note: how long earlier runs took is not known: {error}", file=sys.stderr)
        return times
    with Cache() as cache:
        for line in read_lines(store, runs, cache=cache)[0] if runs else []:
            if line.state == "succeeded" and line.held:
                times.setdefault(line.name, []).append(sum(held.seconds for held in line.held))
    return times


def _after(args: argparse.Namespace, profile: Profile, store: Store) -> int:
    from launcher.selection.select import select
    from launcher.store.proof import no_runs
    from launcher.userdata.cache import Cache
    from launcher.userdata.record_cache import Memory
    from launcher.verbs.cost import by, costs, totals
    from launcher.verbs.status import list_runs, matches, read_lines

    labels = arguments.parse_labels(args.label)
    chosen = select(store, args.names) if args.names else None
    runs = chosen.runs if chosen is not None else sorted(list_runs(store))
    names = chosen.names if chosen is not None else {}
    with Cache() as cache:
        lines, problems = read_lines(store, runs, cache=cache)
        lines = [line for line in lines if matches(line, labels, ())]
        memory = Memory(store, cache).load("runs/")
        found = costs(store, lines, profile.prices, memory)
        memory.keep()
    for problem in problems:
        print(safe_text.line(f"launcher cost: {problem}"), file=sys.stderr)
    if args.by:
        groups = by(found, args.by)
        if args.output != "table":
            output.emit([group_record(group, args.by) for group in groups], args.output)
        elif groups:
            output.show([_group_row(group, args.by) for group in groups], right=RIGHT)
    elif args.output != "table":
        output.emit([cost_record(one, names.get(one.line.run, one.line.name)) for one in found], args.output)
    elif found:
        if chosen is None:  # the newest last, next to the prompt
            found.sort(key=lambda one: (one.line.created or 0.0, one.line.run))
        output.show([_row(one) for one in found], COLUMNS, RIGHT)
    if args.output == "table":
        if not found:
            print("no runs with these names and labels" if args.names or labels else no_runs(store), file=sys.stderr)
            return 0
        sums = " and ".join(f"{amount:.2f} {currency}" for currency, amount in sorted(totals(found).items()))
        print(f"\n{len(found)} run{'s' if len(found) != 1 else ''}: {sums or 'nothing has a price'}")
        _tell([(one.line.run, one.bill.missing) for one in found])
        if args.by and args.by not in NOT_LABELS and not any(args.by in one.line.labels for one in found):
            _no_label(args.by, {label for one in found for label in one.line.labels})
    return 0


def _no_label(label: str, there: set[str]) -> None:
    """Says that no run has the label of --by: all of them are in one line then, which looks like a sum by it."""
    have = f"they have: {', '.join(sorted(there))}" if there else "they have none (`labels` of the job)"
    text = f"launcher cost: --by: no run here has a label `{label}`; {have}; allowed besides: {', '.join(NOT_LABELS)}"
    print(safe_text.line(text), file=sys.stderr)


def _storage(args: argparse.Namespace, profile: Profile, store: Store) -> int:
    from launcher.cli.printing.units import size
    from launcher.verbs.cost import stored
    from launcher.verbs.paid import disk_costs

    found = stored(store, profile.prices)
    disks, silent = disk_costs(profile)
    for name, why in silent.items():
        print(safe_text.line(f"launcher cost: {name} does not tell which disks it has: {why}"), file=sys.stderr)
    code = 4 if silent else 0
    if args.output != "table":
        output.emit([*map(stored_record, found), *map(disk_record, disks)], args.output)
        return code
    rows = [
        {
            "run": one.run or "(shared by runs)",
            "size": size(one.bytes),
            "objects": one.objects,
            "a_month": _money(one.monthly, one.currency),
        }
        for one in found
    ]
    if rows:
        output.show(rows, right=("size", "objects", "a_month"))
    total = sum(one.bytes for one in found)
    monthly = _money(sum(one.monthly for one in found if one.monthly is not None), found[0].currency) if found else None
    print(f"\n{size(total)}{f', {monthly} a month' if monthly else ''}; `launcher gc` deletes what is old")
    if found and monthly is None:
        print("launcher cost: no price of storage; write it under `prices` in slipway.yaml", file=sys.stderr)
    if disks:
        print("\ndisks of providers, of no run:")
        shown = [
            {
                "disk": _disk_name(one),
                "size": size(one.disk.size) if one.disk.size is not None else "not known",
                "a_month": _money(one.monthly, one.currency),
                "used": "yes" if one.disk.in_use else "no",
            }
            for one in disks
        ]
        output.show(shown, right=("size", "a_month"))
    return code


def _disk_name(one: DiskCost) -> str:
    return ", ".join(filter(None, (one.backend, one.disk.name or one.disk.id, one.disk.region)))


def disk_record(one: DiskCost) -> dict[str, Any]:
    return {
        "run": None,
        "bytes": one.disk.size or 0,
        "objects": 0,
        "monthly": _number(one.monthly),
        "currency": one.currency or None,
        "disk": _disk_name(one),
        "used": one.disk.in_use,
    }


def stored_record(one: StoredRun) -> dict[str, Any]:
    return {
        "run": one.run or None,
        "bytes": one.bytes,
        "objects": one.objects,
        "monthly": _number(one.monthly),
        "currency": one.currency or None,
        "disk": None,
        "used": None,
    }


def _tell(missing: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Says on standard error whose price is not known, and which one it is."""
    units = list(dict.fromkeys(unit for _, wanted in missing for unit in wanted))
    if units:
        from launcher.spec.prices.missing import example

        count = sum(bool(wanted) for _, wanted in missing)
        keys = [unit for unit in units if ": " not in unit]  # the others are sentences
        how = f"; allowed: {example(keys[:3])}" if keys else ""
        print(
            safe_text.line(f"launcher cost: {count} without a known price and not counted: {', '.join(units)}{how}"),
            file=sys.stderr,
        )


def _row(one: RunCost) -> dict[str, Any]:
    line, rate = one.line, one.rate
    return {
        "run": line.run,
        "state": line.state,
        "hours": f"{one.seconds / 3600:.2f}",
        "cost": "not known"
        if one.bill.missing
        else ("at most " if one.bill.bound else "") + (_money(one.bill.cost, one.bill.currency) or "0"),
        "per_hour": _per_hour(rate.low, rate.high, rate.currency) if rate.known and not rate.free else None,
        "at_most": _money(one.worst, rate.currency) if not line.final and not rate.free else None,
        "labels": ",".join(f"{key}={value}" for key, value in sorted(line.labels.items())),
    }


def _group_row(group: CostGroup, what: str) -> dict[str, Any]:
    return {
        what: group.key,
        "runs": group.runs,
        "hours": f"{group.seconds / 3600:.2f}",
        "cost": _money(group.cost, group.currency) or "0",
        "unknown": group.unknown or None,
    }


def _money(amount: Any, currency: str) -> str | None:
    """Two digits, or as many as a small amount needs; None for nothing and for a free run."""
    if amount is None or not currency:
        return None
    small = 0 < amount < 1
    return f"{amount:.4f} {currency}" if small else f"{amount:.2f} {currency}"


def _per_hour(low: Any, high: Any, currency: str) -> str | None:
    if not high:
        return "free"
    return _money(high, currency) if low == high else f"{low:.2f} to {_money(high, currency)}"


def _number(amount: Any) -> float | None:
    """A decimal as JSON has it, to a millionth."""
    return None if amount is None else round(float(amount), 6)


def cost_record(one: RunCost, name: str) -> dict[str, Any]:
    """The fields for programs; `cost` is null where a price is not known."""
    line, rate = one.line, one.rate
    return {
        "run": line.run,
        "name": name,
        "state": line.state,
        "backend": line.backend,
        "labels": line.labels,
        "attempts": line.attempts,
        "billed_s": one.seconds,
        "cost": _number(one.bill.cost),
        "bound": one.bill.bound,
        "currency": one.bill.currency or None,
        "origin": one.bill.origin or None,
        "missing": list(one.bill.missing),
        "hourly_low": _number(rate.low) if rate.known else None,
        "hourly_high": _number(rate.high) if rate.known else None,
        "worst": _number(one.worst),
        "final": line.final,
    }


def group_record(group: CostGroup, what: str) -> dict[str, Any]:
    return {
        "by": what,
        "key": group.key,
        "runs": group.runs,
        "billed_s": group.seconds,
        "cost": _number(group.cost),
        "currency": group.currency or None,
        "unknown": group.unknown,
    }


def estimate_record(one: JobEstimate) -> dict[str, Any]:
    known = one.rate.known
    return {
        "run": one.run,
        "name": one.name,
        "hourly_low": _number(one.rate.low) if known else None,
        "hourly_high": _number(one.rate.high) if known else None,
        "currency": one.rate.currency or None,
        "origin": one.rate.origin or None,
        "missing": list(one.rate.missing),
        "deadline_s": one.deadline,
        "budget": _number(one.budget),
        "worst": _number(one.worst),
        "expected": _number(one.expected),
        "earlier": one.earlier,
    }
