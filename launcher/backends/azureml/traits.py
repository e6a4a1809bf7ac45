"""What the launcher knows of this backend before it is loaded, and the options of the `azureml:` block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.backends.azureml import names
from launcher.spec.backends import MachineChoice, Traits
from launcher.spec.model import ResolvedJob
from launcher.spec.values.structures import VARIABLE, Field, ListOf, MapOf, Reviewed, Struct, ValueFault
from launcher.spec.values.types import DURATION, Choice, Integer, Text

_GUID: Final = Text(
    "an id",
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "as 00000000-0000-0000-0000-000000000000",
)
_SIZE: Final = Text("a machine size", r"[A-Z][A-Za-z]+_[A-Za-z0-9_]+", "as Standard_NC40ads_H100_v5")
# where a secret of Key Vault is, with or without its version; the run's token is sent to no other address
VAULT: Final = r"https://[a-z][a-z0-9-]{1,22}[a-z0-9]\.vault\.azure\.net/secrets/[A-Za-z0-9-]{1,127}(?:/[0-9a-f]{32})?"
_KEPT: Final = Text("an address", VAULT, "https://VAULT.vault.azure.net/secrets/NAME, or with /VERSION")
_IDENTITY: Final = Reviewed(
    Struct(
        "an identity",
        Field(
            "kind",
            Choice(("managed", "user")),
            "managed: that of the compute, or `client_id`; user: the submitter's own",
            required=True,
        ),
        Field("client_id", _GUID, "of a user-assigned managed identity", "the compute's"),
    ),
    "launcher.backends.azureml.traits:review_identity",
)
# Sizes that can run virtual machines themselves. Azure's page on compute units marks Intel's series D and E of
# versions 3 and 4, and F of version 2 (MicrosoftDocs/azure-docs, articles/virtual-machines/acu.md, commit 009757b); the
# pages of the series say it of version 5 (ev5-esv5-series.md, commit 02d00dc). AMD's (a) and Arm's (p) are not among
# them: their pages say "Not Supported", or nothing.
NESTED: Final = r"Standard_(?:[DE]\d+s?_v3|[DE]\d+d?s?_v[45]|F\d+s_v2)"
LEAST_IDLE, MOST_IDLE = 15 * 60, 3 * 86400  # seconds; Azure's limits of an instance's idle shutdown
MOST_INSTANCES: Final = 200
_POOL: Final = Reviewed(
    Struct(
        "a pool",
        Field(
            "size", _SIZE, "of each instance: with nested virtualisation, of the Intel series D, E and F", required=True
        ),
        Field(
            "instances", Integer(1, MOST_INSTANCES), "the most that a run may have; each rank has one", required=True
        ),
        Field("idle", DURATION, "without a job for so long, an instance is stopped by Azure: 15m to 3d", "30m"),
        Field(
            "subnet",
            Text("a subnet", r"[A-Za-z0-9][\w.-]{0,79}/[A-Za-z0-9][\w.-]{0,79}", "VNET/SUBNET of the resource group"),
            "in which the ranks reach each other",
            "Azure's own, where they do not",
        ),
        Field(
            "identity",
            Text(
                "an identity's id",
                r"/subscriptions/[\w-]+/resourceGroups/[^/\s]+/providers/Microsoft\.ManagedIdentity"
                r"/userAssignedIdentities/[\w-]+",
                "/subscriptions/.../userAssignedIdentities/NAME",
            ),
            "the user-assigned identity that each instance gets, of `identity.client_id`",
            "none",
        ),
    ),
    "launcher.backends.azureml.traits:review_pool",
)


def machines(options: Mapping[str, Any]) -> MachineChoice:
    """A cluster is priced by its size where the job says it, else by its own name. A pool is where its workspace is."""
    if pool := options.get("pool"):
        return MachineChoice((pool["size"],) if "size" in pool else ())
    size = options.get("instance_type") or options.get("vm_size") or options.get("compute")
    return MachineChoice((size,) if size else (), tuple(options.get("locations", ())), options.get("tier") == "spot")


def outlives(job: ResolvedJob) -> float:
    """Until then nobody but the provider ends what hangs."""
    whole = names.pool_seconds(job) if "pool" in job.options else names.lifetime(job)
    return whole - (job.limits.deadline or 0.0)


TRAITS: Final = Traits(
    module="launcher.backends.azureml",
    diagnosis="launcher.backends.azureml.diagnosis:diagnose",
    extra="azure",
    machines=machines,
    outlives=outlives,
    block=Struct(
        "an Azure ML block",
        Field("subscription", _GUID, "of the workspace", "none; a run names it"),
        Field(
            "resource_group",
            Text("a resource group", r"[\w.()-]*[\w()-]", "letters, digits, _, -, ., ( and )", 90),
            "of the workspace",
            "none; a run names it",
        ),
        Field(
            "workspace",
            Text("a workspace", r"[A-Za-z0-9][A-Za-z0-9_-]{2,32}", "3 to 33 letters, digits, _ and -"),
            "where the run's job is",
            "none; a run names it",
        ),
        Field(
            "compute",
            Text("a compute", r"[A-Za-z][A-Za-z0-9-]{1,30}[A-Za-z0-9]", "3 to 32 letters, digits and -"),
            "a cluster of the workspace",
            "this or `instance_type`",
        ),
        Field("vm_size", _SIZE, "of the cluster's nodes, for their price", "unknown, and so is the price"),
        Field(
            "instance_type",
            _SIZE,
            "of serverless compute",
            "this or `compute`",
        ),
        Field(
            "pool",
            _POOL,
            "compute instances of the run's own, one for each rank, with /dev/kvm for virtual machines",
            "none; in place of `compute` and `instance_type`",
        ),
        Field(
            "locations",
            ListOf(Text("a region", r"[a-z][a-z0-9]*", "as westeurope"), least=1),
            "where serverless compute may be",
            "the workspace's",
        ),
        Field(
            "tier",
            Choice(("spot", "basic", "standard", "premium")),
            "of serverless compute; spot: cheaper, taken back at any time, and the run goes on from its checkpoint",
            "Azure ML's own",
        ),
        Field("priority", Choice(("low", "medium", "high")), "in the queue of serverless compute", "Azure ML's own"),
        Field("identity", _IDENTITY, "who the run is, also for its store", "none; a store in az:// needs one"),
        Field(
            "secrets",
            MapOf(VARIABLE, _KEPT),
            "where secrets live: NAME: the address of a secret of Key Vault, read with the run's identity",
        ),
        Field(
            "store_secrets",
            MapOf(VARIABLE, _KEPT),
            "where the keys of a store in s3:// or gs:// live: AWS_ACCESS_KEY_ID: the address of a secret of Key Vault",
            "none; az:// is opened with the identity",
        ),
        Field(
            "experiment",
            Text("a name", r"[A-Za-z0-9_][A-Za-z0-9_-]*", "letters, digits, _ and -", 255),
            "under which the studio shows the run",
            "slipway",
        ),
        Field("docker_args", ListOf(Text("an argument", r"-\S+", "as --ipc=host")), "of `docker run`", "none"),
        Field(
            "ssh_public_key",
            Text(
                "a public key", r"(?:ssh-(?:ed25519|rsa)|ecdsa-\S+) [A-Za-z0-9+/=]+(?: [^\n]*)?", "as ssh-ed25519 AAAA"
            ),
            "whose owner can log in to every node while the run lasts",
            "nobody can",
        ),
        Field(
            "tensorboard",
            Text("a folder", r"[^\n]+", "a path"),
            "what a TensorBoard beside the run shows; relative to the run's folder on the node",
            "none",
        ),
    ),
    defaults={"experiment": "slipway"},
    choices={"compute": ("vm_size",), "instance_type": ("locations", "tier", "priority"), "pool": ()},
)


def review_identity(value: Mapping[str, Any]) -> Iterator[ValueFault]:
    """A client id names a managed identity; the submitter has none."""
    if "client_id" in value and value["kind"] != "managed":
        yield ValueFault(("client_id",), "the submitter's own identity has no client id", "kind: managed")


def review_pool(value: Mapping[str, Any]) -> Iterator[ValueFault]:
    # a field that is missing is told elsewhere
    if "size" in value and not re.fullmatch(NESTED, value["size"]):
        text = f"Azure does not say that `{value['size']}` has nested virtualisation"
        yield ValueFault(("size",), text, "Intel's D and E of v3 to v5, F of v2: Standard_D8_v3, Standard_E8ds_v5")
    idle = value.get("idle", LEAST_IDLE)
    if not LEAST_IDLE <= idle <= MOST_IDLE or idle % 60:
        yield ValueFault(("idle",), f"Azure cannot stop an instance after {idle:g} s", "15m to 3d, in whole minutes")
