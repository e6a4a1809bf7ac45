"""`launcher forward`: makes a port of a run's member reachable on this machine, where the backend allows it."""

from __future__ import annotations

import argparse

from launcher.cli import member
from launcher.errors import BadInput, NotFound

SUMMARY = (
    "Forward ports of a run's member to this machine until Ctrl-C: a model server, a dashboard, a desktop to look at.\n"
    "On `local`, `docker`, `kubernetes` and `lambda`."
)
EXAMPLE = (
    "launcher forward RUN 8000                          http://127.0.0.1:8000\n"
    "  launcher forward RUN http:9000 --role server\n"
    "  launcher forward RUN vnc:6080 --role desktop --rank 1"
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="one run")
    parser.add_argument(
        "ports", nargs="+", metavar="PORT[:LOCAL]", help="a port's number, or its name in the role's `ports`"
    )
    member.add(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.backends.base import Forwards

    chosen = member.choose(args)
    named = dict(chosen.job.roles[chosen.role].ports)
    if any(named.get(text.partition(":")[0]) == 0 for text in args.ports):
        named |= picked(chosen)
    ports = [port(text, named) for text in args.ports]
    if not isinstance(chosen.backend, Forwards):
        raise BadInput(f"{chosen.run} runs on {chosen.job.backend}: which can't")
    return member.call(chosen.backend.forward(chosen.run, chosen.member, ports), "forward")


def picked(chosen: member.Chosen) -> dict[str, int]:
    """The ports that the runtime picked for the member in the run's last attempt, by name; empty before it is ready."""
    from launcher.decoding import decode
    from launcher.protocol.read import read_run
    from launcher.protocol.records import Endpoint
    from launcher.store.layout import RunKeys

    attempts = read_run(chosen.store, chosen.run, full=False).attempts
    if not attempts:
        return {}
    record = chosen.store.read(RunKeys(chosen.run).attempt(attempts[-1].number).endpoint(chosen.member))
    if record is None:
        return {}
    return {name: int(where.rpartition(":")[2]) for name, where in decode(record[0], Endpoint).ports.items()}


def port(text: str, named: dict[str, int]) -> tuple[int, int]:
    """`PORT[:LOCAL]` -> (here, there). Raises BadInput."""
    there, _, here = text.partition(":")
    if not there.isdecimal() and there not in named:
        known = ", ".join(f"{name} ({number or 'picked at the start'})" for name, number in sorted(named.items()))
        raise BadInput(f"{text}: no such port; allowed: a number{f', {known}' if known else ''}")
    target = int(there) if there.isdecimal() else named[there]
    if target == 0:
        raise NotFound(f"{text}: the runtime picks this port, and the member is not ready yet")
    local = int(here) if here.isdecimal() else target if not here else -1
    if not 1 <= target <= 65535 or not 0 <= local <= 65535:
        raise BadInput(f"{text}: not PORT or PORT:LOCAL; ports are 1 to 65535")
    return local, target
