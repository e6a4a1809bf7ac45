"""What the launcher knows of this backend before it is loaded, and the options of the `kubernetes:` block."""

from __future__ import annotations

from typing import Final

from launcher.spec.backends import Traits
from launcher.spec.values.structures import (
    GPU,
    LABEL,
    LABEL_VALUE,
    ROLE,
    VARIABLE,
    AnyMapping,
    Field,
    ListOf,
    MapOf,
    Reviewed,
    Struct,
)
from launcher.spec.values.types import DURATION, Choice, Flag, Integer, Text

_DNS: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_DNS_LABEL: Final = Text("a Kubernetes name", _DNS, "a-z, 0-9 and - within, at most 63 characters", 63)
_DNS_NAME: Final = Text(
    "a Kubernetes name", rf"{_DNS}(?:\.{_DNS})*", "a-z, 0-9, - and . within, at most 253 characters", 253
)
_QUEUE: Final = Text(
    "a Kubernetes name",
    _DNS_NAME.pattern,
    "a-z, 0-9, - and . within, at most 63 characters",
    63,  # it is a label's value
)
_SECRET_PLACE: Final = Text(
    "a place",
    rf"{_DNS}(?:\.{_DNS})*/[A-Za-z0-9._-]+",
    "secret/key: the name of a Kubernetes secret and one of its keys",
)
_NODE_LABEL: Final = Text("a node label", rf"(?:{_DNS}(?:\.{_DNS})*/)?{LABEL}", "name, or domain/name", 253 + 1 + 63)
_DEVICE: Final = Text(
    "a device",
    rf"(?!(?:.*\.)?kubernetes\.io/|nvidia\.com/gpu$){_DNS}(?:\.{_DNS})*/{LABEL}",
    "domain/name",
    253 + 1 + 63,
)
_TOLERATION: Final = Struct(
    "a toleration",
    Field("key", _NODE_LABEL, "of the taint", "any"),
    Field("operator", Choice(("Exists", "Equal")), "how the value is compared", "Equal"),
    Field("value", LABEL_VALUE, "of the taint", "none"),
    Field("effect", Choice(("NoSchedule", "PreferNoSchedule", "NoExecute")), "which effect is tolerated", "all"),
    Field("tolerationSeconds", Integer(0), "how long NoExecute is tolerated", "without limit"),
)
_CACHE: Final = Struct(
    "a cache",
    Field("name", _DNS_NAME, "of the PersistentVolumeClaim", required=True),
    Field("path", Text("a folder", r"/[^:]+", "an absolute path"), "where it is mounted", required=True),
    Field("read_only", Flag(), "nothing can be written there", "false"),
)
_VOLUME: Final = Struct(
    "a volume",
    Field("path", Text("a folder", r"/[^:]*", "an absolute path"), "where it is mounted", required=True),
    Field("claim", _DNS_NAME, "of a PersistentVolumeClaim that exists", "this or `bucket`"),
    Field(
        "bucket",
        Text("a bucket", r"(?:gs|az|s3)://[a-z0-9][a-z0-9._-]*", "gs://NAME or az://CONTAINER"),
        "mounted by the cloud's driver",
        "this or `claim`",
    ),
    Field("read_only", Flag(), "nothing can be written there", "true"),
    Field(
        "sub_path",
        Text("a folder", r"(?!/)(?!(?:.*/)?\.\.(?:/|$))[^:]+", "a relative path without `..`"),
        "the folder within it",
        "all of it",
    ),
    Field("secret", _DNS_NAME, "of az://: the Secret with the account's name and key", "required there"),
    Field(
        "options", ListOf(Text("an option", r"[^,\s]+", "no spaces and commas")), "mount options of a bucket", "none"
    ),
)
_VOLUMES: Final = Reviewed(ListOf(_VOLUME), "launcher.backends.kubernetes.render.volumes:review")
_TOPOLOGY: Final = Struct(
    "a topology",
    Field("within", _NODE_LABEL, "node label of a level: the ranks of a role share one value of it", required=True),
    Field("required", Flag(), "wait for such nodes; without it other nodes are taken in need", "false"),
)
_FABRIC: Final = Struct(
    "a fabric",
    Field(
        "kind",
        Choice(("efa", "infiniband")),
        "efa: AWS Elastic Fabric Adapter; infiniband: any cloud's",
        required=True,
    ),
    Field("interfaces", Integer(1), "for each rank: 32 on p5.48xlarge, 8 on ND H100 v5", required=True),
    Field(
        "resource",
        _DEVICE,
        "of infiniband: the name under which the device plugin offers the adapters, as rdma/ib",
        "required there",
    ),
)
_REVIEWED_FABRIC: Final = Reviewed(_FABRIC, "launcher.backends.kubernetes.render.accelerators:review")
_PARAMETER: Final = Text("a parameter", LABEL, "letters, digits, -, _ and . within", 63)
_PATCH: Final = Reviewed(
    AnyMapping("a patch of a pod", one_reading=True), "launcher.backends.kubernetes.check.patches:review"
)

TRAITS: Final = Traits(
    module="launcher.backends.kubernetes",
    diagnosis="launcher.backends.kubernetes.diagnosis:diagnose",
    extra="kubernetes",
    machine=frozenset({"context"}),
    carries=True,
    block=Struct(
        "a Kubernetes block",
        Field(
            "context",
            Text("a context", r".+"),
            "of the kubeconfig: which cluster; not part of a run",
            "the current one",
        ),
        Field("namespace", _DNS_LABEL, "where the objects go", "the context's"),
        Field("queue", _QUEUE, "Kueue LocalQueue", "none; it starts as soon as nodes have room"),
        Field("queue_priority", _QUEUE, "Kueue WorkloadPriorityClass: who goes first in the queue", "that of the pods"),
        Field(
            "service_account",
            _DNS_NAME,
            "whose identity the pods have in the cloud; they get no token of the cluster's API",
            "default",
        ),
        Field("secrets", MapOf(VARIABLE, _SECRET_PLACE), "where secrets live: NAME: secret/key", "none"),
        Field("store_secret", _DNS_NAME, "secret whose keys (AWS_ACCESS_KEY_ID, ...) open the store", "the identity"),
        Field("image_pull_secrets", ListOf(_DNS_NAME), "secrets of the registry", "the service account's"),
        Field("platform", Choice(("gke", "eks", "aks", "plain")), "whose node labels and taints there are", "plain"),
        Field(
            "accelerators",
            MapOf(GPU, MapOf(_NODE_LABEL, LABEL_VALUE, least=1)),
            "GPU name: labels of the nodes that have it; before the built-in table",
            "the table's",
        ),
        Field("node_selector", MapOf(_NODE_LABEL, LABEL_VALUE), "labels a node must have", "none"),
        Field("tolerations", ListOf(_TOLERATION), "as in a pod's spec", "those of GPU nodes"),
        Field("spread", _NODE_LABEL, "node label by whose values ranks must be spread", "hosts, where possible"),
        Field("topology", _TOPOLOGY, "ranks close to each other, by Kueue's topology-aware scheduling", "none"),
        Field("spot", Flag(), "only on the platform's spot nodes, which it may take back at any time", "false"),
        Field(
            "provisioning",
            MapOf(_PARAMETER, Text(longest=255)),  # of the ProvisioningRequest's definition
            "parameters of the ProvisioningRequest that Kueue makes for a job in such a queue",
            "the queue's",
        ),
        Field("priority_class", _DNS_NAME, "the pods' priority class", "the cluster's"),
        Field("runtime_class", _DNS_NAME, "the pods' runtime class", "the cluster's"),
        Field("host_network", Flag(), "the node's network; Pod Security `restricted` forbids it", "false"),
        Field("caches", ListOf(_CACHE), "volumes that stay: claims and where they are mounted", "none"),
        Field("volumes", _VOLUMES, "claims that exist and buckets, as folders; read-only by default", "none"),
        Field(
            "devices",
            MapOf(_DEVICE, Integer(1)),
            "what device plugins offer, for each rank: devices.kubevirt.io/kvm: 1; GPUs are `resources`",
            "none",
        ),
        Field(
            "patch",
            _PATCH,
            "any other field of the pods: a strategic merge patch of their template (metadata, spec)",
            "none",
        ),
        Field("role_patches", MapOf(ROLE, _PATCH), "role: a patch of its pods only, after `patch`", "none"),
        Field("fabric", _REVIEWED_FABRIC, "the fast network between nodes, for ranks with GPUs", "TCP"),
        Field(
            "gpu_claim",
            _DNS_NAME,
            "ResourceClaimTemplate by which each rank gets its GPUs (DRA), in place of nvidia.com/gpu",
            "a device plugin's GPUs",
        ),
        Field(
            "gang",
            _DNS_NAME,
            "name of a scheduler that has the coscheduling plugin: all ranks of a run start, or none; not with `queue`",
            "each rank starts when there is room for it",
        ),
        Field("array", Flag(), "runs of a matrix as one Indexed Job, where they need the same pod", "false"),
        Field(
            "min_parallelism",
            Integer(1),
            "of an array in a queue: so many runs are enough to begin with; Kueue starts those that fit",
            "all at once",
        ),
        Field("ttl", DURATION, "the finished object is deleted after it; not in files for GitOps", "it stays"),
    ),
)
