"""`launcher exec`: runs a command beside a run's command, where the backend allows it."""

from __future__ import annotations

import argparse
import sys

from launcher.cli import member
from launcher.errors import BadInput

SUMMARY = (
    "Run a command where a run's command runs, and exit with its exit code. On docker, kubernetes and lambda it runs\n"
    "in the same container; on local in the run's folder with its environment and secrets, without the store's\n"
    "credentials."
)
EXAMPLE = "launcher exec sft-login-1a2b3c4d5e6f -- nvidia-smi\n  launcher exec RUN --role server -- bash"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="one run")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="the command and its arguments, after --")
    member.add(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.backends.base import Entered

    chosen = member.choose(args)
    if not isinstance(chosen.backend, Entered):
        raise BadInput(f"{chosen.run} runs on {chosen.job.backend}, which has no container to run a command in")
    tty = sys.stdin.isatty() and sys.stdout.isatty()
    return member.call(chosen.backend.execute(chosen.run, chosen.member, args.command, tty=tty), "exec")
