"""`launcher forward`: makes a port of a run's member reachable on this machine, where the backend allows it."""

from __future__ import annotations

import argparse

from launcher.cli import member
from launcher.errors import BadInput

SUMMARY = (
    "Forward ports of a run's member to this machine until Ctrl-C: a model server, a dashboard. On `kubernetes` and\n"
    "`lambda`."
)
EXAMPLE = (
    "launcher forward RUN 8000                  http://127.0.0.1:8000\n  launcher forward RUN http:9000 --role server"
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="one run")
    parser.add_argument(
        "ports", nargs="+", metavar="PORT[:LOCAL]", help="a port's number, or its name in the role's `ports`"
    )
    member.add(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.backends.base import Forwards
    from launcher.spec.backends import traits

    chosen = member.choose(args)
    ports = [port(text, chosen.job.roles[chosen.role].ports) for text in args.ports]
    if not isinstance(chosen.backend, Forwards):
        remedy = "its ports are this machine's" if traits(chosen.job.backend).on_this_machine else "which can't"
        raise BadInput(f"{chosen.run} runs on {chosen.job.backend}: {remedy}")
    return member.call(chosen.backend.forward(chosen.run, chosen.member, ports), "forward")


def port(text: str, named: dict[str, int]) -> tuple[int, int]:
    """`PORT[:LOCAL]` -> (here, there). Raises BadInput."""
    there, _, here = text.partition(":")
    if not there.isdecimal() and there not in named:
        known = ", ".join(f"{name} ({number})" for name, number in sorted(named.items()) if number)
        raise BadInput(f"{text}: no such port; allowed: a number{f', {known}' if known else ''}")
    target = int(there) if there.isdecimal() else named[there]
    if target == 0:
        raise BadInput(f"{text}: the runtime picks this port when the run starts; give its number")
    local = int(here) if here.isdecimal() else target if not here else -1
    if not 1 <= target <= 65535 or not 0 <= local <= 65535:
        raise BadInput(f"{text}: not PORT or PORT:LOCAL; ports are 1 to 65535")
    return local, target
