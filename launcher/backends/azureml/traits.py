"""What the launcher knows of this backend before it is loaded, and the options of the `azureml:` block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.spec.backends import MachineChoice, Traits
from launcher.spec.structures import Field, ListOf, MapOf, Reviewed, Struct, ValueFault
from launcher.spec.texts import VARIABLE
from launcher.spec.types import Choice, Text

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


def machines(options: Mapping[str, Any]) -> MachineChoice:
    """A cluster is priced by its size where the job says it, else by its own name."""
    size = options.get("instance_type") or options.get("vm_size") or options.get("compute")
    return MachineChoice((size,) if size else (), tuple(options.get("locations", ())), options.get("tier") == "spot")


TRAITS: Final = Traits(
    module="launcher.backends.azureml",
    diagnosis="launcher.backends.azureml.diagnosis:diagnose",
    extra="azure",
    machines=machines,
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
)


def review_identity(value: Mapping[str, Any]) -> Iterator[ValueFault]:
    """A client id names a managed identity; the submitter has none."""
    if "client_id" in value and value["kind"] != "managed":
        yield ValueFault(("client_id",), "the submitter's own identity has no client id", "kind: managed")
