"""`launcher secrets`: manages names and values that only this machine stores."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from pathlib import Path

from launcher.cli.arguments import add_output
from launcher.cli.printing.output import emit
from launcher.errors import BadInput

SUMMARY = "Keeps secrets for local runs, in the keyring or in a file that only you can read. Values are never printed."
EXAMPLE = "launcher secrets set HF_TOKEN < token.txt"


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    setter = verbs.add_parser("set", help="keep a value, read from standard input or asked for without echo")
    setter.add_argument("name", metavar="NAME")
    lister = verbs.add_parser("list", help="list the names, never the values")
    add_output(lister)
    remover = verbs.add_parser("remove", aliases=["rm"], help="remove a value")
    remover.add_argument("name", metavar="NAME")
    for each in (setter, lister, remover):
        each.add_argument("--profile", metavar="NAME", help="a named profile of slipway.yaml")


def run(args: argparse.Namespace) -> int:
    from launcher.backends.local.state import StateDir
    from launcher.spec.profile import load_profile
    from launcher.userdata import secrets

    file = StateDir(load_profile(Path.cwd(), args.profile, os.environ).local_state).secrets
    if args.action == "list":
        rows = [{"name": name, "where": where} for name, where in secrets.names(file).items()]
        emit(rows, args.output, ("name", "where"))
    elif args.action in ("remove", "rm"):
        secrets.remove(file, args.name)
    else:
        where = secrets.put(file, args.name, _value(args.name))
        print(f"{args.name} is kept in the {where if where == 'keyring' else file}", file=sys.stderr)
    return 0


def _value(name: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(f"{name}: ")
    try:
        # the final newline of a file or of `echo` is not part of a token
        return sys.stdin.read().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise BadInput(f"{name}: the value is not UTF-8 text") from None
