"""Any jobs that a Kubernetes cluster can run, alone and bound to each other, with awkward texts."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from launcher.backends.kubernetes.render.accelerators import PLATFORMS, known
from launcher.spec.hashing import work_hash
from launcher.spec.model import Image, Limits, ResolvedJob, Resources, Role
from tests.unit.kubernetes.support import STORE, reading

NAMES = st.sampled_from(["a", "b1", "c-d", "e--f", "train-it", "evaluate", "x9y8z7w6"])
DNS = st.sampled_from(["ns", "team-a", "a1", "0", "x" * 40])
VARIABLES = st.sampled_from(["HF_TOKEN", "A", "B_2", "HOME", "Z9"])
LABELS = st.sampled_from(["team", "0", "A.b_c-D", "x" * 57, "true", "1.5"])
TEXTS = st.one_of(
    st.sampled_from(
        ["$(SLIPWAY_RUN)", "$$", "$$$(HOME)", "$", "$SLIPWAY_CONFIG", "'", '"', "{{x}}", "a: b # c", "\u2028"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)
IMAGES = st.builds(
    lambda path, tag, digit: Image(f"registry.example.com:5000/{path}{tag}", "sha256:" + digit * 64),
    NAMES,
    st.sampled_from(["", ":1.2", ":latest"]),
    st.sampled_from("0123456789abcdef"),
)
SIZES = st.integers(1 << 20, 1 << 44) | st.sampled_from([10**9, 500 * 10**6, 1 << 30, 3 << 40])

VOLUMES = st.one_of(
    st.builds(lambda name, only: {"path": f"/data/{name}", "claim": name, "read_only": only}, DNS, st.booleans()),
    st.builds(lambda name: {"path": f"/data/{name}", "bucket": f"gs://{name}"}, DNS),
    st.builds(lambda name: {"path": f"/data/{name}", "bucket": f"az://{name}", "secret": name}, DNS),
)
_RIGHTS = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_SIDECAR = {
    "name": "beside",
    "image": "registry.example.com/beside@sha256:" + "6a" * 32,
    "restartPolicy": "Always",
    "securityContext": _RIGHTS,
}
PATCHES: list[dict[str, Any]] = [
    {"metadata": {"labels": {"example.com/egress": "proxy"}}, "spec": {"initContainers": [_SIDECAR]}},
    {"spec": {"volumes": [{"name": "work", "emptyDir": {"medium": "Memory"}}], "topologySpreadConstraints": None}},
    {"spec": {"containers": [{"name": "main", "imagePullPolicy": "Always"}], "schedulerName": "other"}},
]


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """The block of a job, without what the namespaces of our tests forbid (host_network)."""
    chosen: dict[str, st.SearchStrategy[Any]] = {
        "namespace": DNS,
        "queue": DNS,
        "queue_priority": DNS,
        "service_account": DNS,
        "priority_class": DNS,
        "runtime_class": DNS,
        "store_secret": DNS,
        "image_pull_secrets": st.lists(DNS, min_size=1, max_size=2, unique=True),
        "platform": st.sampled_from(PLATFORMS),
        "node_selector": st.dictionaries(LABELS, LABELS, max_size=2),
        "tolerations": st.lists(
            st.builds(lambda key, value: {"key": key, "operator": "Equal", "value": value}, LABELS, LABELS), max_size=2
        ),
        "spread": st.just("topology.kubernetes.io/zone"),
        "caches": st.lists(
            st.builds(lambda name, only: {"name": name, "path": f"/mnt/{name}", "read_only": only}, DNS, st.booleans()),
            max_size=2,
            unique_by=lambda cache: cache["path"],
        ),
        "ttl": st.floats(0.5, 1e6),
        "topology": st.fixed_dictionaries({"within": LABELS, "required": st.booleans()}),
        "provisioning": st.dictionaries(st.sampled_from(["maxRunDurationSeconds", "a"]), TEXTS, min_size=1),
        "spot": st.just(True),
        "gpu_claim": DNS,
        "fabric": st.builds(lambda count: {"kind": "efa", "interfaces": count}, st.integers(1, 32))
        | st.builds(
            lambda count: {"kind": "infiniband", "interfaces": count, "resource": "rdma/ib"}, st.integers(1, 32)
        ),
        "volumes": st.lists(VOLUMES, max_size=2, unique_by=lambda volume: volume["path"]),
        "patch": st.sampled_from(PATCHES),
    }
    keys = draw(st.sets(st.sampled_from(sorted(chosen))))
    if keys & {"queue_priority", "topology", "provisioning"}:
        keys.add("queue")
    if "topology" in keys:
        keys.discard("spread")
    if "spot" in keys:
        return {
            **{key: draw(chosen[key]) for key in sorted(keys)},
            "platform": draw(st.sampled_from(sorted({*PLATFORMS} - {"plain"}))),
        }
    return {key: draw(chosen[key]) for key in sorted(keys)}


@st.composite
def resources(draw: st.DrawFn, platform: str) -> Resources:
    gpus = draw(st.integers(0, 8))
    return Resources(
        cpus=draw(st.floats(0.001, 512.0)),
        memory=draw(SIZES),
        gpus=gpus,
        gpu=draw(st.none() | st.sampled_from(known(platform))) if gpus else None,
        shm=draw(st.none() | SIZES),
        disk=draw(st.none() | SIZES),
    )


@st.composite
def jobs(draw: st.DrawFn, block: dict[str, Any] | None = None, alone: bool = False) -> ResolvedJob:
    """`block`: its options, where those have to be another's as well; `alone`: of one rank."""
    chosen = draw(options()) if block is None else block
    count = 1 if alone else draw(st.integers(1, 3))
    named = draw(st.lists(NAMES, min_size=count, max_size=count, unique=True)) if count > 1 else ["main"]
    roles = {
        name: Role(
            command=tuple(draw(st.lists(TEXTS, min_size=1, max_size=3))),
            image=draw(IMAGES),
            leader=count > 1 and number == 0,
            replicas=1 if alone else draw(st.sampled_from([1, 1, 2, 11])),
            env=draw(st.dictionaries(VARIABLES, TEXTS, max_size=2)),
            resources=draw(resources(chosen.get("platform", "plain"))),
            ports=draw(st.dictionaries(NAMES, st.sampled_from([0, 80, 8000]), max_size=2)),
        )
        for number, name in enumerate(named)
    }
    return ResolvedJob(
        name=draw(NAMES),
        roles=roles,
        store=STORE,
        backend="kubernetes",
        config=draw(st.none() | st.dictionaries(TEXTS, PLAIN, max_size=2)),
        secrets=draw(st.dictionaries(VARIABLES, st.just("secret/key"), max_size=2)),
        limits=Limits(
            deadline=draw(st.floats(0.5, 1e7)), retries=draw(st.integers(0, 100)), grace=draw(st.floats(0.1, 120))
        ),
        labels=draw(st.dictionaries(LABELS, LABELS, max_size=2)),
        options=chosen,
    )


@st.composite
def groups(draw: st.DrawFn) -> list[ResolvedJob]:
    """Several jobs of a submit, some of which read what others before them made, some of them a matrix's."""
    block = draw(options())
    made: list[ResolvedJob] = []
    for _ in range(draw(st.integers(1, 3))):
        array = draw(st.booleans())
        one = draw(jobs({**block, "array": True} if array else block, alone=array))
        upstream = draw(st.lists(st.sampled_from(made), max_size=2)) if made else []
        one = msgspec.structs.replace(one, inputs=reading(*(work_hash(other) for other in upstream)))
        variants = (
            [one]
            if not array
            else [msgspec.structs.replace(one, config={"seed": seed}) for seed in range(draw(st.integers(1, 3)))]
        )
        made += variants
    return made
