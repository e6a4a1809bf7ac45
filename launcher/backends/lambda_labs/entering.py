"""Reaching a member's machine by ssh, with the user's own key: a command in the runtime's container (or
Python environment), ports."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from launcher.backends.lambda_labs import names
from launcher.backends.lambda_labs.wire import CloudInstance
from launcher.errors import NotFound
from launcher.protocol.view import RunView

USER: Final = "ubuntu"  # of Lambda's images
ENTER: Final = "/var/lib/slipway/enter"  # where a machine has no container, but a Python environment


def machine_of(living: Sequence[CloudInstance], view: RunView, run: str, member: str) -> CloudInstance:
    """The machine on which a member works; before its first claim, the one with the smallest id. Raises NotFound."""
    machines = [each for each in living if each.tag(names.MEMBER) == member]
    if not machines:
        raise NotFound(f"{run}: {member} has no machine")
    claims = view.attempts[-1].claims if view.attempts else {}
    works = claims[member].placement.container if member in claims else ""
    chosen = next((each for each in machines if works and each.tag(names.LAUNCH) == works), machines[0])
    if not chosen.ip:
        raise NotFound(f"{run}: machine {chosen.id} of {member} has no address yet: it is {chosen.status}")
    return chosen


def ssh(machine: CloudInstance) -> list[str]:
    """The beginning of an argv. The host's key is kept under the machine's id, because Lambda gives addresses again."""
    return [
        "ssh",
        "-o", "ConnectTimeout=20",
        "-o", "StrictHostKeyChecking=accept-new",
        "-o", f"HostKeyAlias=lambda-{machine.id}",
    ]  # fmt: skip


def execute(machine: CloudInstance, command: Sequence[str], *, tty: bool) -> list[str]:
    container = f"docker exec {'-it' if tty else '-i'} slipway"
    choose = f'if [ -x {ENTER} ]; then exec {ENTER} "$@"; else exec {container} "$@"; fi'
    inside = f"sudo sh -c {shlex.quote(choose)} sh {shlex.join(command)}"
    return [*ssh(machine), *(["-t"] if tty else []), f"{USER}@{machine.ip}", inside]


def forward(machine: CloudInstance, ports: Sequence[tuple[int, int]]) -> list[str]:
    tunnels = [word for here, there in ports for word in ("-L", f"127.0.0.1:{here}:127.0.0.1:{there}")]
    return [*ssh(machine), "-N", "-o", "ExitOnForwardFailure=yes", *tunnels, f"{USER}@{machine.ip}"]
