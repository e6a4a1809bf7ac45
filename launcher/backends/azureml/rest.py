"""A rendered command job -> the body of the request that creates it, as the SDK sends it. Pure, and without the SDK;
tests compare it with the SDK's own.

Used to tell whether a job that is there already runs what we would send."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

ANONYMOUS: Final = "CliV2AnonymousEnvironment"  # the environment of a job that names an image
_TIERS: Final = {"spot": "Spot", "basic": "Basic", "standard": "Standard", "premium": "Premium"}
_PRIORITIES: Final = {"low": 1, "medium": 2, "high": 3}
_SERVICES: Final = {"ssh": "SSH", "tensor_board": "TensorBoard"}


def workspace_id(subscription: str, resource_group: str, workspace: str) -> str:
    return (
        f"/subscriptions/{subscription}/resourceGroups/{resource_group}"
        f"/providers/Microsoft.MachineLearningServices/workspaces/{workspace}"
    )


def environment_version(image: str) -> str:
    """The version under which the SDK registers the environment of an image: the same for the same image."""
    return hashlib.sha256(hashlib.sha256(image.encode()).hexdigest().encode()).hexdigest()


def body(document: Mapping[str, Any], workspace: str) -> dict[str, Any]:
    """`workspace`: the workspace's id, in which environment and compute are."""
    version = environment_version(document["environment"]["image"])
    properties: dict[str, Any] = {
        "jobType": "Command",
        "displayName": document["display_name"],
        "experimentName": document["experiment_name"],
        "isArchived": False,
        "tags": document["tags"],
        "properties": document["properties"],
        "command": document["command"],
        "environmentId": f"{workspace}/environments/{ANONYMOUS}/versions/{version}",
        "environmentVariables": document["environment_variables"],
        "inputs": {},
        "outputs": {},
        "resources": _resources(document["resources"]),
        "limits": {"jobLimitsType": "Command", "timeout": duration(document["limits"]["timeout"])},
    }
    if "compute" in document:
        properties["computeId"] = f"{workspace}/computes/{document['compute'].removeprefix('azureml:')}"
    if "distribution" in document:
        count = document["distribution"]["process_count_per_instance"]
        properties["distribution"] = {"distributionType": "PyTorch", "processCountPerInstance": count}
    if (queue := document.get("queue_settings")) is not None:
        tier, priority = queue.get("job_tier"), queue.get("priority")
        properties["queueSettings"] = {
            **({"jobTier": _TIERS[tier]} if tier is not None else {}),
            **({"priority": _PRIORITIES[priority]} if priority is not None else {}),
        }
    if (identity := document.get("identity")) is not None:
        properties["identity"] = _identity(identity)
    if (services := document.get("services")) is not None:
        properties["services"] = {name: _service(service) for name, service in services.items()}
    return {"name": document["name"], "properties": properties}


def instance_body(document: Mapping[str, Any], location: str, group: str) -> dict[str, Any]:
    """A rendered compute instance -> the body of the request that makes it. `location`: the workspace's; `group`: the
    id of its resource group, in which the virtual network is."""
    properties: dict[str, Any] = {
        "vmSize": document["size"],
        "idleTimeBeforeShutdown": f"PT{document['idle_time_before_shutdown_minutes']}M",
        "enableNodePublicIp": True,
        "enableSSO": True,
        "enableRootAccess": True,
        "releaseQuotaOnStop": False,
        "enableOSPatching": False,
        "applicationSharingPolicy": "Shared",
        "computeInstanceAuthorizationType": "personal",
    }
    if (network := document.get("network_settings")) is not None:
        where = f"{group}/providers/Microsoft.Network/virtualNetworks/{network['vnet_name']}"
        properties["subnet"] = {"id": f"{where}/subnets/{network['subnet']}"}
    made: dict[str, Any] = {
        "location": location,
        "tags": document["tags"],
        "properties": {"computeType": "ComputeInstance", "disableLocalAuth": True, "properties": properties},
    }
    if (identity := document.get("identity")) is not None:
        ids: dict[str, Any] = {each["resource_id"]: {} for each in identity["user_assigned_identities"]}
        made["identity"] = {"type": "UserAssigned", "userAssignedIdentities": ids}
    return made


def _resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "instance_count": "instanceCount",
        "instance_type": "instanceType",
        "locations": "locations",
        "shm_size": "shmSize",
        "docker_args": "dockerArgs",
    }
    return {"properties": {}, **{names[name]: value for name, value in resources.items()}}


def _identity(identity: Mapping[str, str]) -> dict[str, str]:
    if identity["type"] == "user_identity":
        return {"identityType": "UserIdentity"}
    return {"identityType": "Managed", **({"clientId": identity["client_id"]} if "client_id" in identity else {})}


def _service(service: Mapping[str, Any]) -> dict[str, Any]:
    if service["type"] == "ssh":
        properties = {"sshPublicKeys": service["ssh_public_keys"]}
        return {"jobServiceType": "SSH", "nodes": {"nodesValueType": "All"}, "properties": properties}
    return {"jobServiceType": _SERVICES[service["type"]], "properties": {"logDir": service["log_dir"]}}


def duration(seconds: int) -> str:
    """Whole seconds in the form of ISO 8601: `P1DT2H3S`."""
    days, rest = divmod(seconds, 86400)
    parts = ((rest // 3600, "H"), (rest % 3600 // 60, "M"), (rest % 60, "S"))
    time = "".join(f"{value}{unit}" for value, unit in parts if value)
    return f"P{f'{days}D' if days else ''}{f'T{time}' if time else ''}"
