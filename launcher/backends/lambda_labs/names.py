"""Names, tags and times of our machines. A tag's key has at most 55 characters, its value 128, a machine's name 64."""

from __future__ import annotations

from math import ceil
from typing import Final

from launcher.spec.model import ResolvedJob

NAME: Final = "lambda"  # the backend's name
RUN: Final = "slipway:run"
MEMBER: Final = "slipway:member"
FINGERPRINT: Final = "slipway:fingerprint"
STORE: Final = "slipway:store"
ACCOUNT: Final = "slipway:account"
# the next three are written at the launch, so no rendered file has them. Seconds since the epoch, of the store's clock
LAUNCHED: Final = "slipway:launched"
EXPIRES: Final = "slipway:expires"
# of one launch request: the machine has it, too, and claims with it, so a claim tells which of two machines works
LAUNCH: Final = "slipway:launch"
LONGEST_NAME: Final = 64
LONGEST_TAG: Final = 128
DEFAULT_ACCOUNT: Final = "default"
# seconds that the deadline does not count: booting, installing docker, pulling the image, loading inputs
MARGIN: Final = 3600
KIND: Final = "machine"  # of a placement
# who writes the event of a machine on which no runtime can start, with the number of its launch
MACHINE: Final = "machine"


def account_of(job: ResolvedJob) -> str:
    return str(job.options.get("account", DEFAULT_ACCOUNT))


def lifetime(job: ResolvedJob) -> int:
    """Seconds from the first boot of a machine until it powers off, whatever its runtime does."""
    assert job.limits.deadline is not None  # resolve requires a deadline where the backend costs money
    return ceil(job.limits.deadline + job.timing.stale + 2 * job.limits.grace) + MARGIN


def where(account: str, run: str) -> str:
    """The `where` of a placement: the same for all machines of a run, so that ranks join. `container` tells the
    machines apart."""
    return f"{account}/{run}"
