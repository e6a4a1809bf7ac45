"""`launcher diff`: shows the fields in which the jobs of two runs, or of a run and a file, differ."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from launcher import safe_text
from launcher.cli import arguments
from launcher.cli.printing import output
from launcher.errors import BadInput, NotFound

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.spec.model import ResolvedJob
    from launcher.store.base import Store

SUMMARY = (
    "Show the fields in which two jobs differ: of two runs, or of a run and a file as it would be submitted now. "
    "Exit code 0: none, 1: some."
)
EXAMPLE = "launcher diff sft-login-1a2b3c4d5e6f job.yaml\n  launcher diff RUN RUN -o json"
COLUMNS = ("field", "a", "b")
LONGEST = 200  # characters of a value in the table


def add(parser: argparse.ArgumentParser) -> None:
    for side in ("a", "b"):
        parser.add_argument(
            side,
            metavar=side.upper(),
            help="a run, by any of its names; or a job file or a folder (a path with `/`, or one that ends in .yaml)",
        )
    parser.add_argument("--backend", metavar="NAME", help="for a file: the backend that it would run on")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="[JOB:]PATH=VALUE", help="of a file"
    )
    arguments.add_output(parser)
    arguments.add_profile(parser)


class _Side(NamedTuple):
    text: str
    run: str
    job: ResolvedJob


def run(args: argparse.Namespace) -> int:
    from launcher.spec.hashing import work_hash
    from launcher.spec.profile import load_profile
    from launcher.spec.resolve.explain import MISSING, differences
    from launcher.store.opening import open_known

    store = open_known(load_profile(Path.cwd(), args.profile, os.environ, store=args.store).store)
    texts = [args.a, args.b]
    # runs are read first: a run decides which job of a file is meant
    sides: dict[int, _Side] = {k: _of_run(store, text) for k, text in enumerate(texts) if not _is_path(text)}
    for k, text in enumerate(texts):
        if k not in sides:
            sides[k] = _of_file(args, text, sides.get(1 - k))
    a, b = sides[0], sides[1]
    differing = differences(a.job, b.job)
    same_work = work_hash(a.job) == work_hash(b.job)
    if args.output != "table":
        document = {
            "a": a.run,
            "b": b.run,
            "same_work": same_work,
            "differences": [
                {
                    "field": each.field,
                    "a": None if each.a is MISSING else each.a,
                    "b": None if each.b is MISSING else each.b,
                    "missing": [side for side, value in (("a", each.a), ("b", each.b)) if value is MISSING],
                }
                for each in differing
            ],
        }
        output.emit_one(document, args.output)
    elif not differing:
        print(f"{a.run} and {b.run}: the same job")
    else:
        print(f"a  {a.run}\nb  {b.run}\nthe work is {'the same' if same_work else 'another'}\n")
        output.show(
            [{"field": each.field, "a": _value(each.a), "b": _value(each.b)} for each in differing],
            COLUMNS,
        )
    return 1 if differing else 0


def _is_path(text: str) -> bool:
    if text == "-" or text.endswith((".yaml", ".yml")):
        return True
    return "/" in text and Path(text).exists()  # otherwise GROUP/JOB


def _of_run(store: Store, name: str) -> _Side:
    from launcher.selection.select import select
    from launcher.spec.hashing import decode_job
    from launcher.store.layout import RunKeys

    run = select(store, [name]).only(name)
    stored = store.read(RunKeys(run).job)
    if stored is None:
        raise NotFound(f"{run}: no job.json in {store.url}: the run has not started")
    return _Side(name, run, decode_job(stored[0]))


def _of_file(args: argparse.Namespace, path: str, other: _Side | None) -> _Side:
    """The only job of a file, or the one with the name and matrix values of the other side."""
    from launcher.cli.arguments import resolved
    from launcher.spec.hashing import run_id

    options = argparse.Namespace(
        paths=[path], backend=args.backend, overrides=args.overrides, fresh=0, store=args.store, profile=args.profile
    )
    runs = list(resolved(options)[0].runs)
    if len(runs) > 1 and other is not None:
        called = [job for job in runs if job.name == other.job.name]
        runs = [job for job in called if job.variant == other.job.variant] or called or runs
    if len(runs) != 1:
        raise BadInput(
            f"{path} has {len(runs)} runs, and only one can be compared: {', '.join(run_id(job) for job in runs)}"
        )
    return _Side(path, run_id(runs[0]), runs[0])


def _value(value: Any) -> str:
    """A value in the table, on one line."""
    import json

    from launcher.spec.resolve.explain import MISSING

    if value is MISSING:
        return "(not there)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = safe_text.line(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
