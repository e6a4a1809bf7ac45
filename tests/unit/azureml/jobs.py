"""Jobs for Azure ML, one for each thing that is rendered differently."""

from __future__ import annotations

from typing import Any

from launcher.spec.model import Image, Limits, ResolvedJob, Resources, Role
from tests.support.jobs import job

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
PLACE = {"subscription": SUBSCRIPTION, "resource_group": "ml", "workspace": "lab"}
BLOCK = {**PLACE, "compute": "gpu", "identity": {"kind": "managed"}}
SERVERLESS = {**PLACE, "instance_type": "Standard_NC40ads_H100_v5", "identity": {"kind": "managed"}}
WORKER = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/ml/providers/Microsoft.ManagedIdentity/userAssignedIdentities/waa"
)
POOL = {
    **PLACE,
    "pool": {"size": "Standard_D8_v3", "instances": 3, "idle": 1800.0, "subnet": "lab/workers", "identity": WORKER},
    "identity": {"kind": "managed", "client_id": "aaaaaaaa-0000-0000-0000-000000000001"},
}
IMAGE = Image(reference="registry.test/slipway/unsloth-sft:1", digest=f"sha256:{'a' * 64}")
KEPT = "https://lab-kv.vault.azure.net/secrets"
STORE = "az://runs/slipway?account=labstore"


def given(name: str, options: dict[str, Any] | None = None, **changes: Any) -> ResolvedJob:
    role = Role(("python", "-m", "training.sft"), image=IMAGE, leader=True, resources=Resources(gpus=1, shm=16 << 30))
    fields = {
        "store": STORE,
        "backend": "azureml",
        "options": BLOCK if options is None else options,
        "roles": {"main": role},
        "limits": Limits(deadline=3600.0),
        "config": {"model": "a'b $(c) `d`"},
    }
    return job(name, **{**fields, **changes})


JOBS = {
    "one-gpu": given("one-gpu", labels={"team": "agents"}),
    "two-nodes-spot": given(
        "two-nodes",
        {
            **SERVERLESS,
            "tier": "spot",
            "priority": "high",
            "locations": ["westeurope", "northeurope"],
            "identity": {"kind": "managed", "client_id": "aaaaaaaa-0000-0000-0000-000000000001"},
            "docker_args": ["--ipc=host", "--ulimit=memlock=-1"],
            "experiment": "sft",
        },
        roles={"main": Role(("torchrun", "train.py"), image=IMAGE, leader=True, replicas=2)},
        limits=Limits(deadline=2 * 86400 + 61.5, grace=60.0),
    ),
    "services": given(
        "services",
        {
            **BLOCK,
            "identity": {"kind": "user"},
            "ssh_public_key": "ssh-ed25519 AAAA me@laptop",
            "tensorboard": "slipway/outputs/tb",
        },
    ),
    "pool": given(
        "waa",
        {**POOL, "docker_args": ["--cap-add=NET_ADMIN"]},
        roles={
            "agent": Role(("python", "-m", "eval.run"), image=IMAGE, leader=True, replicas=2),
            "judge": Role(("python", "judge.py"), image=IMAGE, resources=Resources(shm=16 << 30)),
        },
    ),
    "pool-of-one": given(
        "waa-one", {**PLACE, "pool": {"size": "Standard_E8ds_v5", "instances": 1}, "identity": {"kind": "user"}}
    ),
    "reference-in-the-config": given("reference", config={"text": "${{inputs.x}}"}),
    "secrets": given(
        "secrets",
        {
            **BLOCK,
            "store_secrets": {
                "AWS_ACCESS_KEY_ID": f"{KEPT}/s3-id",
                "AWS_SECRET_ACCESS_KEY": f"{KEPT}/s3-key/{'0' * 32}",
            },
        },
        store="s3://runs/slipway?region=eu-west-1",
        secrets={"HF_TOKEN": f"{KEPT}/hf-token"},
    ),
    "roles": given(
        "roles",
        {**SERVERLESS, "tier": "standard"},
        roles={
            "agent": Role(("python", "agent.py"), image=IMAGE, leader=True),
            "desktop": Role(("python", "desk.py"), image=IMAGE, replicas=3, resources=Resources(shm=1536 << 10)),
        },
    ),
}
