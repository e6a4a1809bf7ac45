"""Names, properties and times of our jobs in a workspace of Azure ML.

The name of a job is its run's id, so it is the key by which creating it again creates nothing; a workspace never gives
a name twice. A run with several roles has a job for each: the leading role's has the run's id, the others `run_role`.
A run on a pool has a job, and a compute instance, for each member: the leader's job has the run's id, the others
`run_role-rank`.
"""

from __future__ import annotations

import hashlib
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
RANKS: Final = "slipway.ranks"  # of a run on a pool only: how many ranks each role has, `agent=3,desk=1`
# tags of a pool's compute instance, beside TAG and OWNER
MEMBER: Final = "slipway-member"
POOL_RANKS, POOL_LEADING, POOL_JOB = "slipway-ranks", "slipway-leading", "slipway-fingerprint"
MOST: Final = "slipway-seconds"  # for which it may run after it was made or started
# the SDK adds the Git state of the launcher's working folder unless a job has a word on it; the same job would then be
# sent with another body from another folder. The commit of the code lies in the store, beside the code.
GIT: Final = ("azureml.git.dirty", "unknown")
# seconds that the deadline does not count: pulling the image, loading inputs
MARGIN: Final = 3600
IDLE: Final = 1800  # seconds; of a pool's instances
KIND: Final = "machine"  # of a placement
PLACE: Final = ("subscription", "resource_group", "workspace")


def job_name(run: str, role: str, leading: str) -> str:
    return run if role == leading else f"{run}_{role}"


def job_names(job: ResolvedJob, run: str) -> dict[str, str]:
    """The names of a run's jobs, each with its role or, on a pool, its member; the leading one last."""
    if "pool" in job.options:
        leader, *others = job.members()
        return {job_name(run, member, leader): member for member in (*others, leader)}
    order = sorted(job.roles, key=lambda role: (role == job.leading, role))
    return {job_name(run, role, job.leading): role for role in order}


def ranks(job: ResolvedJob) -> str:
    return ",".join(f"{name}={job.roles[name].replicas}" for name in sorted(job.roles))


def pool_members(ranks: str, leading: str) -> list[str]:
    """The members of a run by what RANKS says, its leader first."""
    counts = {role: int(count) for role, _, count in (each.partition("=") for each in ranks.split(",")) if role}
    order = sorted(counts, key=lambda role: (role != leading, role))
    return [f"{role}-{rank}" for role in order for rank in range(counts[role])]


def instance_name(workspace: str, run: str, member: str) -> str:
    """The name of a member's compute instance. Azure allows 24 characters, and wants it unique in a region."""
    return f"slipway-{hashlib.sha256(f'{workspace}/{run}/{member}'.encode()).hexdigest()[:16]}"


def lifetime(job: ResolvedJob) -> int:
    """Seconds after which Azure ML ends a job that runs, whatever its runtime says; waiting in a queue is no part."""
    assert job.limits.deadline is not None  # resolve requires a deadline where the backend costs money
    return ceil(job.limits.deadline + job.timing.stale + 2 * job.limits.grace) + MARGIN


def idle(pool: Mapping[str, Any]) -> int:
    """Seconds without a job after which Azure stops an instance of this pool."""
    return int(pool.get("idle", IDLE))


def pool_seconds(job: ResolvedJob) -> int:
    """Seconds for which a pool's instance is billed at most after it was made or started: it waits for its job, which
    Azure ML ends at its limit, and is idle after it."""
    return lifetime(job) + 2 * idle(job.options["pool"])


def workspace_of(options: Mapping[str, Any]) -> str:
    """`subscription/resource group/workspace`: the place of a run. Azure's names have no case."""
    return "/".join(str(options.get(name, "")) for name in PLACE).lower()


def where(options: Mapping[str, Any], run: str) -> str:
    """The `where` of a placement: the same for all nodes of a run, so that ranks join. `container` tells the nodes
    apart."""
    return f"{workspace_of(options)}/{run}"
