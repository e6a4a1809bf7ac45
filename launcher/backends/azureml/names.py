"""Names, properties and times of our jobs in a workspace of Azure ML.

The name of a job is its run's id, so it is the key by which creating it again creates nothing; a workspace never gives
a name twice. A run with several roles has a job for each: the leading role's has the run's id, the others `run_role`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from launcher.spec.model import ResolvedJob

NAME: Final = "azureml"  # the backend's name
# a tag, because a listing can be asked for it; people can change tags
TAG: Final = "slipway-run"
# a tag of a compute instance, disk or address: the store whose reaper may delete it once nobody uses it
OWNER: Final = "slipway-store"
# properties, which nobody can change once a job has them
RUN: Final = "slipway.run"
ROLE: Final = "slipway.role"
ROLES: Final = "slipway.roles"
LEADING: Final = "slipway.leading"
FINGERPRINT: Final = "slipway.fingerprint"
STORE: Final = "slipway.store"
# the SDK adds the Git state of the launcher's working folder unless a job has a word on it; the same job would then be
# sent with another body from another folder. The commit of the code lies in the store, beside the code.
GIT: Final = ("azureml.git.dirty", "unknown")
# seconds that the deadline does not count: pulling the image, loading inputs
MARGIN: Final = 3600
KIND: Final = "machine"  # of a placement
PLACE: Final = ("subscription", "resource_group", "workspace")


def job_name(run: str, role: str, leading: str) -> str:
    return run if role == leading else f"{run}_{role}"


def lifetime(job: ResolvedJob) -> int:
    """Seconds after which Azure ML ends a job that runs, whatever its runtime says; waiting in a queue is no part."""
    assert job.limits.deadline is not None  # resolve requires a deadline where the backend costs money
    return ceil(job.limits.deadline + job.timing.stale + 2 * job.limits.grace) + MARGIN


def workspace_of(options: Mapping[str, Any]) -> str:
    """`subscription/resource group/workspace`: the place of a run. Azure's names have no case."""
    return "/".join(str(options.get(name, "")) for name in PLACE).lower()


def where(options: Mapping[str, Any], run: str) -> str:
    """The `where` of a placement: the same for all nodes of a run, so that ranks join. `container` tells the nodes
    apart."""
    return f"{workspace_of(options)}/{run}"
