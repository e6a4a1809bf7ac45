"""The network between nodes that is faster than TCP: what a pod asks for, and the variables by which NCCL takes it.

efa   AWS Elastic Fabric Adapter: the device plugin's vpc.amazonaws.com/efa and 5120 MiB of huge pages, as in the pods
      of the EKS user guide ("Run machine learning training on Amazon EKS with Elastic Fabric Adapter"). NCCL reaches it
      through libfabric, so the image needs aws-ofi-nccl. `FI_PROVIDER=efa` makes libfabric fail instead of falling back
      to TCP, and `FI_EFA_USE_DEVICE_RDMA=1` lets the adapter read and write the GPUs' memory (libfabric, fi_efa(7))
infiniband
      The adapters that a device plugin offers under a name that the administrator chose. In Microsoft's tests of AKS
      (github.com/Azure/aks-rdma-infiniband, tests/scenarios/k8s/values.yaml) it is rdma/ib, 8 for a node, where each
      pod has adapters of its own, and rdma/shared_ib, 1, where pods share them; its NCCL_IB_DISABLE=0 and
      NCCL_NET_GDR_LEVEL=SYS are set here. `NCCL_NET=IB` makes NCCL fail instead of falling back to TCP (NCCL's user
      guide, "Environment Variables"). NCCL locks memory: the nodes' container runtime must not limit that
      (LimitMEMLOCK=infinity), because the capability IPC_LOCK is not in Pod Security `restricted`

GPUDirect-TCPX and TCPXO of GKE need a second container with the capability NET_ADMIN, and GKE's GPUDirect RDMA folders
of the host: Pod Security `restricted` forbids both, so there is no preset for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.spec.model import ResolvedJob
from launcher.spec.values.structures import ValueFault

EFA: Final = "vpc.amazonaws.com/efa"
_HUGE_PAGES: Final = {"hugepages-2Mi": "5120Mi"}
_VARIABLES: Final = {
    "efa": {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"},
    "infiniband": {"NCCL_NET": "IB", "NCCL_IB_DISABLE": "0", "NCCL_NET_GDR_LEVEL": "SYS"},
}


def review(fabric: Mapping[str, Any]) -> Iterator[ValueFault]:
    """What is wrong with a fabric beyond its fields."""
    if fabric.get("kind") == "infiniband" and "resource" not in fabric:
        message = "is missing: the name under which the device plugin offers the adapters"
        yield ValueFault(("resource",), message, "domain/name: rdma/ib, rdma/shared_ib")
    if fabric.get("kind") == "efa" and "resource" in fabric:
        yield ValueFault(("resource",), f"is for infiniband; efa is always {EFA}", "without it")


def fabric_resources(job: ResolvedJob, role: str) -> dict[str, str]:
    """What each rank of a role asks for, as a request and as a limit; nothing for a role without GPUs."""
    fabric = job.options.get("fabric")
    if fabric is None or not job.roles[role].resources.gpus:
        return {}
    if fabric["kind"] == "infiniband":
        return {fabric["resource"]: str(fabric["interfaces"])}
    return {EFA: str(fabric["interfaces"]), **_HUGE_PAGES}


def fabric_variables(job: ResolvedJob, role: str) -> dict[str, str]:
    """Environment variables of the ranks that have the fabric."""
    return dict(_VARIABLES[job.options["fabric"]["kind"]]) if fabric_resources(job, role) else {}
