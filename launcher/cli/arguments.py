"""Parses the arguments of a verb, defines the arguments that several verbs share, and calls the verb."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from launcher import safe_text, wait_hint
from launcher.cli import process
from launcher.errors import BadInput

if TYPE_CHECKING:  # --help of a verb needs none of it
    from launcher.spec.profile import Profile
    from launcher.spec.resolve.group import Group

_JOBS = ("init", "run")  # verbs that print what a user goes on to write


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Finds the terminal's width itself: argparse would import shutil and with it every compression library."""

    def __init__(self, prog: str) -> None:
        try:
            width = int(os.environ.get("COLUMNS", "")) or 80
        except ValueError:
            width = os.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else 80
        super().__init__(prog, width=width - 2)


def parser(verb: str, module_name: str) -> argparse.ArgumentParser:
    """The parser of one verb's arguments."""
    module = import_module(module_name)
    verb_parser = argparse.ArgumentParser(
        prog=f"launcher {verb}",
        description=module.SUMMARY,
        epilog=f"example:\n  {module.EXAMPLE}",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    module.add(verb_parser)
    return verb_parser


def seconds(text: str) -> float:
    """A duration, as the `type` of an argument."""
    from launcher.cli.printing.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a duration; write 90s, 15m, 6h or 2d") from None


def call(verb: str, module_name: str, arguments: Sequence[str]) -> int:
    """Parses one verb's arguments and runs it. Its errors are printed by `launcher.cli.process`."""
    _refuse_odd(arguments)
    module = import_module(module_name)
    args = parser(verb, module_name).parse_args(list(arguments))
    if hasattr(args, "store"):
        check_store(verb, args.store)
    if verb not in _JOBS and process.to_a_file():
        # before anything is printed: a table that was written into a project's folder is no part of its code
        from launcher.spec.code.own_files import remember_outputs

        remember_outputs()
    wait_hint.say = _say
    sys.stdout, sys.stderr = safe_text.guarded(sys.stdout), safe_text.guarded(sys.stderr)
    try:
        return process.verb(lambda: int(module.run(args)))
    finally:
        wait_hint.say = wait_hint.before = None


def _say(text: str) -> None:
    print(f"launcher: {text}", file=sys.stderr, flush=True)


def _refuse_odd(arguments: Sequence[str]) -> None:
    """Refuses empty arguments: no verb uses one, so a variable of a script was not set. Arguments after `--` belong to
    another program."""
    for index, argument in enumerate(arguments):
        try:
            argument.encode()
        except UnicodeEncodeError:
            shown = argument.encode(errors="surrogateescape").decode(errors="backslashreplace")
            raise BadInput(f"argument {index + 1}, `{shown[:100]}`, is not UTF-8 text") from None
        if "\0" in argument:
            raise BadInput(f"argument {index + 1} holds a NUL")
        if "--" in arguments[:index]:
            continue
        option, equals, value = argument.partition("=")
        if option.startswith("--") and equals and not value and "=" not in option:
            raise BadInput(f"{option} is empty; allowed: a value")
        if option.startswith("--") and value == "--":  # the parser would turn it into an empty list
            raise BadInput(f"{option}: `--` is not a value")
        if not argument:
            before = arguments[index - 1] if index else ""
            name = before if before.startswith("-") else f"argument {index + 1}"
            raise BadInput(f"{name} is empty; allowed: a value")


def add_names(parser: argparse.ArgumentParser, *, nargs: str = "+", more: str = "") -> None:
    """Adds the argument for names that `launcher.selection.select.select` understands."""
    text = "a run, a group, a job's name (its newest run; of a matrix all), GROUP/JOB, or a unique beginning of an id"
    parser.add_argument("names", nargs=nargs, metavar="NAME", help=text + more)


def add_output(parser: argparse.ArgumentParser, formats: Sequence[str] = ("table", "json", "yaml")) -> None:
    parser.add_argument("-o", "--output", choices=formats, default=formats[0], help="format (default: %(default)s)")


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every verb that reads the store."""
    parser.add_argument("--store", metavar="URL", help="the store; default: the profile's")
    parser.add_argument("--profile", metavar="NAME", help="a named profile of slipway.yaml")


def add_labels(parser: argparse.ArgumentParser, text: str = "only runs with this label (repeatable)") -> None:
    """Adds the option that `parse_labels` reads."""
    parser.add_argument("-l", "--label", action="append", default=[], metavar="KEY[=VALUE]", help=text)


def parse_labels(texts: Sequence[str]) -> dict[str, str | None]:
    """Parses `key=value`, or `key` (None: any value)."""
    labels: dict[str, str | None] = {}
    for text in texts:
        for part in text.split(","):
            key, separator, value = part.partition("=")
            if not key:
                raise BadInput(f"-l {text}: a label is KEY or KEY=VALUE")
            labels[key] = value if separator else None
    return labels


# Refuses a store that --store or SLIPWAY_STORE names and that does not exist, for every verb that creates no store.

# verbs that create a store, `render`, which reads none, and `doctor`, which has its own message
_NOT_ASKED = frozenset(("submit", "push", "run", "dev", "render", "doctor"))


def check_store(verb: str, given: str | None) -> None:
    """Raises NotFound when a named folder is no store; object stores are checked by the verb itself. `given`: the value
    of --store."""
    if verb in _NOT_ASKED:
        return
    origin, text = ("--store", given) if given else ("SLIPWAY_STORE", os.environ.get("SLIPWAY_STORE", ""))
    if not text or ("://" in text and not text.startswith("file://")):
        return
    from launcher.errors import NotFound
    from launcher.spec.profile import absolute_store
    from launcher.store.opening import absence

    url = absolute_store(text, Path.cwd(), Path(os.environ.get("HOME") or Path.home()))
    if why := absence(url):
        raise NotFound(f"{origin}: no store at {url.removeprefix('file://')}: {why}; the first submit creates it")


# What `render`, `submit` and `push` share: the arguments that name jobs, and the loading of jobs.


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
