"""The network between nodes that is faster than TCP: what a pod asks for, and the variables by which NCCL takes it.

efa   AWS Elastic Fabric Adapter: the device plugin's vpc.amazonaws.com/efa and 5120 MiB of huge pages, as in the pods
      of the EKS user guide ("Run machine learning training on Amazon EKS with Elastic Fabric Adapter"). NCCL reaches it
      through libfabric, so the image needs aws-ofi-nccl. `FI_PROVIDER=efa` makes libfabric fail instead of falling back
      to TCP, and `FI_EFA_USE_DEVICE_RDMA=1` lets the adapter read and write the GPUs' memory (libfabric, fi_efa(7))

InfiniBand and GPUDirect of other clouds need a resource whose name an administrator chooses, the capability IPC_LOCK or
a driver's folder of the host, which Pod Security `restricted` forbids: `devices` and `patch` say those.
"""

from __future__ import annotations

from typing import Final

from launcher.spec.model import ResolvedJob

EFA: Final = "vpc.amazonaws.com/efa"
_HUGE_PAGES: Final = {"hugepages-2Mi": "5120Mi"}
_EFA_VARIABLES: Final = {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}


def fabric_resources(job: ResolvedJob, role: str) -> dict[str, str]:
    """What each rank of a role asks for, as a request and as a limit; nothing for a role without GPUs."""
    fabric = job.options.get("fabric")
    if fabric is None or not job.roles[role].resources.gpus:
        return {}
    return {EFA: str(fabric["interfaces"]), **_HUGE_PAGES}


def fabric_variables(job: ResolvedJob, role: str) -> dict[str, str]:
    """Environment variables of the ranks that have the fabric."""
    return dict(_EFA_VARIABLES) if fabric_resources(job, role) else {}
