"""Which nodes have which GPU, and the fast network between them: a small table of node labels by platform. The job's or
the profile's block can extend it.

Users write a GPU's name under `resources.gpu`; clusters name it differently:

gke    one label of Google's own on every GPU node
eks    no label for the GPU unless a provisioner creates the nodes, so: the instance types that have it, or the label of
       Karpenter or Auto Mode. The terms of a node affinity are alternatives
aks    the virtual machine sizes that have it
plain  the labels of NVIDIA's GPU feature discovery (part of the GPU operator); each form of a board has its own name

Names and sizes are the providers' own as far as we know; none was tried on such a cluster or compared with the
providers' current pages. `accelerators` in the block overrides any of them without a new version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.names import DEFAULT_PLATFORM
from launcher.errors import BadInput
from launcher.spec.model import ResolvedJob
from launcher.spec.values.structures import ValueFault

GPU: Final = "nvidia.com/gpu"
PLATFORMS: Final = ("gke", "eks", "aks", "plain")
INSTANCE: Final = "node.kubernetes.io/instance-type"
_GKE: Final = "cloud.google.com/gke-accelerator"
_KARPENTER: Final = "karpenter.k8s.aws/instance-gpu-name"
_AUTO_MODE: Final = "eks.amazonaws.com/instance-gpu-name"
_PRODUCT: Final = "nvidia.com/gpu.product"

# platform -> GPU -> label values, any of which fits (eks: instance types, then the provisioners' name)
_TABLE: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "gke": {
        "B200": ("nvidia-b200",),
        "H200": ("nvidia-h200-141gb",),
        "H100": ("nvidia-h100-80gb", "nvidia-h100-mega-80gb"),
        "A100-80GB": ("nvidia-a100-80gb",),
        "A100": ("nvidia-tesla-a100",),
        "L4": ("nvidia-l4",),
        "V100": ("nvidia-tesla-v100",),
        "T4": ("nvidia-tesla-t4",),
        "RTX-PRO-6000": ("nvidia-rtx-pro-6000",),
    },
    "eks": {
        "B300": ("p6-b300.48xlarge",),
        "B200": ("p6-b200.48xlarge",),
        "H200": ("p5e.48xlarge", "p5en.48xlarge"),
        "H100": ("p5.4xlarge", "p5.48xlarge"),
        "A100-80GB": ("p4de.24xlarge",),
        "A100": ("p4d.24xlarge",),
        "L40S": tuple(f"g6e.{size}xlarge" for size in ("", "2", "4", "8", "12", "16", "24", "48")),
        "L4": tuple(f"g6.{size}xlarge" for size in ("", "2", "4", "8", "12", "16", "24", "48")),
        "A10G": tuple(f"g5.{size}xlarge" for size in ("", "2", "4", "8", "12", "16", "24", "48")),
        "V100": ("p3.2xlarge", "p3.8xlarge", "p3.16xlarge"),
        "T4": (*(f"g4dn.{size}xlarge" for size in ("", "2", "4", "8", "12", "16")), "g4dn.metal"),
    },
    "aks": {
        "H200": ("Standard_ND96isr_H200_v5",),
        "H100": ("Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5", "Standard_ND96isr_H100_v5"),
        "A100-80GB": (
            "Standard_NC24ads_A100_v4",
            "Standard_NC48ads_A100_v4",
            "Standard_NC96ads_A100_v4",
            "Standard_ND96amsr_A100_v4",
        ),
        "A100": ("Standard_ND96asr_v4",),
        "A10": ("Standard_NV36ads_A10_v5", "Standard_NV72ads_A10_v5"),
        "T4": ("Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3", "Standard_NC16as_T4_v3", "Standard_NC64as_T4_v3"),
    },
    "plain": {
        "B300": ("NVIDIA-B300-SXM6-AC",),
        "B200": ("NVIDIA-B200",),
        "H200": ("NVIDIA-H200", "NVIDIA-H200-NVL"),
        "H100": ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-NVL", "NVIDIA-H100-PCIe"),
        "A100-80GB": ("NVIDIA-A100-80GB-PCIe", "NVIDIA-A100-SXM4-80GB"),
        "A100": ("NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-SXM4-40GB"),
        "L40S": ("NVIDIA-L40S",),
        "L4": ("NVIDIA-L4",),
        "A10G": ("NVIDIA-A10G",),
        "A10": ("NVIDIA-A10",),
        "V100": ("Tesla-V100-SXM2-16GB", "Tesla-V100-SXM2-32GB", "Tesla-V100-PCIE-16GB", "Tesla-V100-PCIE-32GB"),
        "T4": ("Tesla-T4",),
        "RTX4090": ("NVIDIA-GeForce-RTX-4090",),
        "RTX6000-ADA": ("NVIDIA-RTX-6000-Ada-Generation",),
        "RTX-PRO-6000": (
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
            "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
        ),
    },
}
_LABEL: Final = {"gke": _GKE, "eks": INSTANCE, "aks": INSTANCE, "plain": _PRODUCT}
_PROVISIONED: Final = frozenset({"B300", "B200", "H200", "H100", "A100", "L40S", "L4", "A10G", "V100", "T4"})

TOLERATION: Final = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
_AKS_TOLERATION: Final = {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}


def known(platform: str) -> tuple[str, ...]:
    return tuple(_TABLE[platform])


def selection(gpu: str, options: Mapping[str, Any]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The nodes that have a GPU: labels for a nodeSelector, and terms (alternatives) for a required node affinity; one
    of the two is empty. Raises BadInput for an unknown GPU."""
    own: Mapping[str, Mapping[str, str]] = options.get("accelerators", {})
    if gpu in own:
        return dict(own[gpu]), []
    platform: str = options.get("platform", DEFAULT_PLATFORM)
    values = _TABLE[platform].get(gpu)
    if values is None:
        listed = ", ".join(dict.fromkeys([*own, *known(platform)]))
        raise BadInput(
            f"resources.gpu: no node label is known for `{gpu}` on platform {platform}; known: {listed}; or say it: "
            f"`kubernetes: {{accelerators: {{{gpu}: {{LABEL: VALUE}}}}}}`"
        )
    label = _LABEL[platform]
    if platform == "eks" and gpu in _PROVISIONED:
        names = [(label, list(values)), *((other, [gpu.lower()]) for other in (_KARPENTER, _AUTO_MODE))]
        return {}, [_term(key, shown) for key, shown in names]
    if len(values) == 1:
        return {label: values[0]}, []
    return {}, [_term(label, list(values))]


def _term(label: str, values: list[str]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": label, "operator": "In", "values": values}]}


def tolerations(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tolerations of the taints that GPU nodes usually have."""
    return [TOLERATION, _AKS_TOLERATION] if options.get("platform") == "aks" else [TOLERATION]


# The network between nodes that is faster than TCP: what a pod asks for, and the variables by which NCCL takes it.
#
# efa   AWS Elastic Fabric Adapter: the device plugin's vpc.amazonaws.com/efa and 5120 MiB of huge pages, as in the pods
#       of the EKS user guide ("Run machine learning training on Amazon EKS with Elastic Fabric Adapter"). NCCL reaches
#       it through libfabric, so the image needs aws-ofi-nccl. `FI_PROVIDER=efa` makes libfabric fail instead of falling
#       back to TCP, and `FI_EFA_USE_DEVICE_RDMA=1` lets the adapter read and write the GPUs' memory (libfabric,
#       fi_efa(7))
# infiniband
#       The adapters that a device plugin offers under a name that the administrator chose. In Microsoft's tests of AKS
#       (github.com/Azure/aks-rdma-infiniband, tests/scenarios/k8s/values.yaml) it is rdma/ib, 8 for a node, where each
#       pod has adapters of its own, and rdma/shared_ib, 1, where pods share them; its NCCL_IB_DISABLE=0 and
#       NCCL_NET_GDR_LEVEL=SYS are set here. `NCCL_NET=IB` makes NCCL fail instead of falling back to TCP (NCCL's user
#       guide, "Environment Variables"). NCCL locks memory: the nodes' container runtime must not limit that
#       (LimitMEMLOCK=infinity), because the capability IPC_LOCK is not in Pod Security `restricted`
#
# GPUDirect-TCPX and TCPXO of GKE need a second container with the capability NET_ADMIN, and GKE's GPUDirect RDMA
# folders of the host: Pod Security `restricted` forbids both, so there is no preset for them.

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
