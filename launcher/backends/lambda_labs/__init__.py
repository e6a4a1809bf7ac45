"""Runs on machines of Lambda Cloud (docs/explanation/lambda.md): one machine for each member of a run.

names      tags and names of machines, options of the block that a run needs
script     the shell script that a machine runs at its first boot
render     job -> launch requests; reads a rendered file back
wire, api  the answers of Lambda's API, and the client
access     short-lived credentials for the store
lease      one launcher of an account launches at a time
records    what the store knows of machines
launching  exactly one machine for each member; ending: terminates until seen gone
entering   a command or ports of a machine, by ssh
overdue    which machines must end; unlisted: machines that only the audit events name
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.backends.base import Backend


def make(options: Mapping[str, object]) -> Backend:
    """`options`: the block, and for tests `interval`, `spacing`, `settle`, `lease` (seconds) and `folders`."""
    from launcher.backends.lambda_labs.backend import LambdaBackend

    return LambdaBackend(options)
