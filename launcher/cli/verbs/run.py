"""`launcher run`: submits a command as a job, without a file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from launcher import safe_text
from launcher.cli import arguments
from launcher.cli.printing import output
from launcher.errors import RunFailed
from launcher.trees import document

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.spec.profile import Profile

SUMMARY = (
    "Runs a command as a job made from flags, and shows what it prints until it ends. After\n"
    "Ctrl-C the run continues. The same command again is the same run, which is not computed twice; --fresh 1 runs it\n"
    "once more."
)
EXAMPLE = (
    "launcher run -- nvidia-smi\n"
    "  launcher run --cpus 2 --output results -- bash -c 'date > $SLIPWAY_OUTPUTS/results/now'\n"
    "  launcher run --gpus 1 --env STEPS=10 -o yaml -- python train.py > job.yaml     the job as a file"
)
FLAGS = (
    ("--name", "NAME", "the job's name; default: the program's name"),
    ("--image", "IMAGE", "the image to run in; none on `local`"),
    ("--gpus", "N", "GPUs"),
    ("--gpu", "KIND", "which GPU: H100, A100-80GB, L4"),
    ("--cpus", "N", "CPU cores"),
    ("--memory", "SIZE", "memory: 512Mi, 16Gi"),
    ("--backend", "NAME", "the backend to run on; default: the profile's"),
    ("--deadline", "TIME", "maximum running time: 90s, 15m, 6h"),
    ("--retries", "N", "how often a failed command is tried again"),
    ("--fresh", "N", "another number runs the same job once more"),
    ("--code", "DIR", "put this folder over the image's code; the command starts in it"),
)
LISTS = (
    ("--env", "NAME=VALUE", "an environment variable"),
    ("--secret", "NAME", "a secret, by its name: `launcher secrets set NAME`"),
    ("--input", "NAME=URL", "fetched to $SLIPWAY_INPUTS/NAME: a path, s3://, hf://, https://"),
    ("--output", "NAME", "kept: what the command writes to $SLIPWAY_OUTPUTS/NAME"),
    ("--label", "KEY=VALUE", "a label to select the run by"),
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="the program and its arguments, after --")
    for flag, metavar, text in FLAGS:
        parser.add_argument(flag, metavar=metavar, help=text)
    for flag, metavar, text in LISTS:
        parser.add_argument(flag, metavar=metavar, action="append", help=f"{text} (repeatable)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="PATH=VALUE",
        help=f"any other field of a job ({document('docs/reference/job.md')}); the value is YAML; +PATH adds a field",
    )
    arguments.add_price(parser)
    arguments.add_waiting(parser)
    arguments.add_profile(parser)
    parser.add_argument("-d", "--detach", action="store_true", help="do not wait until it ends")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done; write nothing")
    parser.add_argument(
        "-o",
        "--output-format",
        choices=("table", "json", "yaml"),
        default="table",
        help="json: one document, and no waiting; yaml: print the job as a file, and run nothing",
    )


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from launcher import api
    from launcher.cli.verbs.submit import keep_names, planned_state, selection_options
    from launcher.spec.read.adhoc import adhoc
    from launcher.spec.read.load import load_value
    from launcher.verbs.submit import failure

    value, sources = adhoc(vars(args), args.command)
    loaded = load_value(value, sources, cwd=Path.cwd(), overrides=args.overrides)
    if args.output_format == "yaml":
        from launcher.spec.values.yaml_text import dump

        print(dump(loaded.jobs[0].at.document.value), end="")
        return 0
    resolved = api.resolve_loaded(loaded, store=args.store, profile=args.profile, cwd=Path.cwd())
    arguments.print_notes("run", resolved.group)
    done = api.submit(
        resolved, dry_run=args.dry_run, budget=args.budget, ceiling=args.ceiling, without_price=args.without_price
    )
    if not done[0].final:
        arguments.print_cost("run", resolved.group, resolved.profile)
    if not args.dry_run:
        keep_names(resolved.profile.store, resolved.group.id, [submitted.run for submitted in done])
    if args.dry_run or args.detach or args.output_format == "json":
        state = planned_state if args.dry_run else str
        rows = [
            {"run": submitted.run, "name": submitted.name, "state": state(submitted.state), "reason": submitted.why}
            for submitted in done
        ]
        output.emit(rows, args.output_format)
    if failed := failure(done):
        raise RunFailed(str(failed))
    if args.dry_run or args.detach or args.output_format == "json":
        return 0
    return _show(resolved.profile, done[0].run, selection_options(args))


def _show(profile: Profile, run: str, options: str) -> int:
    """Prints the run's log as it arrives, and its outcome; returns 0 when it succeeded, else 1."""
    from launcher.cli.printing.lines import Printer
    from launcher.cli.printing.tailing import Feed, MemberFilter, follow
    from launcher.cli.printing.units import duration
    from launcher.cli.verbs.logs import source
    from launcher.store.opening import open_known
    from launcher.verbs.ask_backend import backends
    from launcher.verbs.status import read_line

    store, backend_of = open_known(profile.store), backends(profile)
    print(f"{run}  (Ctrl-C detaches: launcher logs {run}{options} --follow)", file=sys.stderr)
    printer = Printer(sys.stdout.buffer, sys.stdout.isatty())
    try:
        code = follow([Feed(store, source(store, run), "", MemberFilter(), printer)], backend_of)
    except KeyboardInterrupt:
        print(f"\ndetached; {run} keeps running: launcher logs {run}{options} --follow", file=sys.stderr)
        raise
    line = read_line(store, run, backend_of)[1]
    why = f" ({line.reason})" if line.reason not in ("", line.state) else ""
    detail = f": {line.detail}" if line.detail and line.state != "succeeded" else ""
    print(safe_text.line(f"{run} {line.state}{why} after {duration(line.running, fine=True)}{detail}"), file=sys.stderr)
    return code
