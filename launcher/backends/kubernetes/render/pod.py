"""The pod of one rank. Pure: the same job gives the same pod.

Resources. CPU is requested and not limited: a limit slows data loaders down while cores are idle, and the request
already divides a busy node fairly. Memory has a limit equal to its request: memory cannot be taken back, so a pod above
its request would cause an OOM kill somewhere. GPUs are extended resources, whose limit is their request; both are
written, because Kueue counts requests. `disk` is the ephemeral storage of the whole container and the size of /work;
`shm` is a memory-backed volume at /dev/shm, whose pages count as the container's memory (as in Docker).

Rights. Pod Security `restricted`, a read-only root with volumes where programs write, no service account token unless
an account is named; then the account decides whether its token is mounted.

Environment. The run's address and the job itself. The kubelet fills in the placement from the downward API, because a
pod's name and a controller's uid are not known before. `where` is the controller's uid for a Job (a Job replaces a pod
only when it is gone), and for a set the JobSet's uid, with the number of its restart. The cluster is known by the root
certificates that every namespace holds: another cluster that is asked about a run can tell that it is not its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

import msgspec

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.render.accelerators import GPU, fabric_resources, fabric_variables
from launcher.backends.kubernetes.render.patch import patched
from launcher.backends.kubernetes.render.scheduling import gang_labels, gang_scheduler, scheduling, topology_annotations
from launcher.backends.kubernetes.render.volumes import driver_annotations, mounted
from launcher.decoding import decode
from launcher.errors import BadInput
from launcher.spec.hashing import encode_job
from launcher.spec.model import ResolvedJob, Resources
from launcher.spec.resolve.threads import THREADS, threads, whole

_DNS: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_PLACE: Final = re.compile(rf"({_DNS}(?:\.{_DNS})*)/([A-Za-z0-9._-]{{1,253}})")
_FIELD: Final = {
    "SLIPWAY_POD": "metadata.name",
    "SLIPWAY_ADDRESS": "status.podIP",
    "SLIPWAY_OWNER": f"metadata.labels['{names.CONTROLLER_UID}']",
    "SLIPWAY_SET": f"metadata.labels['{names.JOBSET_UID}']",
    "SLIPWAY_RESTART": f"metadata.labels['{names.RESTART}']",
    "SLIPWAY_RANK": f"metadata.labels['{names.COMPLETION_INDEX}']",
    "SLIPWAY_INDEX": f"metadata.labels['{names.COMPLETION_INDEX}']",
}
_UNITS: Final = (
    *((unit, 1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)),
    *((unit, 1000**power) for power, unit in enumerate(("k", "M", "G", "T"), 1)),
)
MARGIN: Final = (
    3600  # seconds that the deadline does not count: pulling images, loading inputs, waiting for the other ranks
)
_GPUS: Final = "gpus"  # the claim of a pod's GPUs
_ID: Final = 1000

RESTRICTED_POD: Final = {
    "runAsNonRoot": True,
    "runAsUser": _ID,
    "runAsGroup": _ID,
    "fsGroup": _ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


class PodContext(msgspec.Struct, frozen=True):
    """What the object around a pod decides for it.

    kind     job | set: the controller that creates it, which decides what its placement contains
    host     in a set: the ranks' address, with $(SLIPWAY_RANK) or $(SLIPWAY_INDEX) in it
    files    ConfigMaps that hold the job; none: the job is in the environment
    array    several runs share the pod template: the job of an index is in the file of that number
    labels   of the pod, for the object it belongs to
    after    for one stage of several: the runs that it reads from; None: the object has only this run
    former   as launchers wrote it that named the renderer's version names.FORMER
    """

    kind: str
    host: str = ""
    files: tuple[str, ...] = ()
    array: bool = False
    labels: Mapping[str, str] = {}
    after: tuple[str, ...] | None = None
    former: bool = False


def template(job: ResolvedJob, run: str, role: str, seat: PodContext) -> dict[str, Any]:
    """The pod template. Raises BadInput for a job that no pod can hold."""
    patches = {"patch": job.options.get("patch"), f"role_patches.{role}": job.options.get("role_patches", {}).get(role)}
    return patched(_template(job, run, role, seat), {field: patch for field, patch in patches.items() if patch})


def _template(job: ResolvedJob, run: str, role: str, seat: PodContext) -> dict[str, Any]:
    return {
        "metadata": {
            "labels": {
                names.APP_NAME: names.APP,
                names.APP_MANAGED: names.APP,
                names.APP_COMPONENT: role,
                **({} if seat.array else {names.APP_INSTANCE: run, names.RUN: run}),
                names.ROLE: role,
                **seat.labels,
                **user_labels(job),
                **_platform_labels(job),
                **gang_labels(job, run),
            },
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "true",
                **driver_annotations(job.options.get("volumes", ())),
                **topology_annotations(job),
            },
        },
        "spec": _spec(job, run, role, seat),
    }


def user_labels(job: ResolvedJob) -> dict[str, str]:
    """The user's labels, with our prefix. Raises BadInput for a key that the prefix makes too long."""
    longest = names.NAME_LENGTH - len(names.LABEL_PREFIX.rpartition("/")[2])
    for key in job.labels:
        if len(key) > longest:
            raise BadInput(f"labels.{key}: {len(key)} characters are too many on Kubernetes; at most {longest}")
    return {f"{names.LABEL_PREFIX}{key}": value for key, value in sorted(job.labels.items())}


def _platform_labels(job: ResolvedJob) -> dict[str, str]:
    """Labels of the platform: AKS gives an identity only to pods that ask for it by label."""
    identity = job.options.get("platform") == "aks" and "service_account" in job.options
    return {"azure.workload.identity/use": "true"} if identity else {}


def _spec(job: ResolvedJob, run: str, role: str, seat: PodContext) -> dict[str, Any]:
    options = job.options
    need = job.roles[role].resources
    mounts, volumes = _volumes(job, need, seat)
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": deadline(job),
        "terminationGracePeriodSeconds": grace(job),
    }
    if (account := options.get("service_account")) is not None:
        spec["serviceAccountName"] = account
    if account is None or not seat.former:
        # an identity in a cloud needs no token of the cluster's API
        spec["automountServiceAccountToken"] = False
    spec["enableServiceLinks"] = False
    if options.get("host_network"):
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    for key, field in (("priority_class", "priorityClassName"), ("runtime_class", "runtimeClassName")):
        if key in options:
            spec[field] = options[key]
    if options.get("image_pull_secrets"):
        spec["imagePullSecrets"] = [{"name": name} for name in options["image_pull_secrets"]]
    if (claim := options.get("gpu_claim")) is not None and need.gpus:
        spec["resourceClaims"] = [{"name": _GPUS, "resourceClaimTemplateName": claim}]
    spec["securityContext"] = RESTRICTED_POD
    spec |= scheduling(job, run, role)
    spec |= gang_scheduler(job)
    spec["containers"] = [_container(job, run, role, seat, mounts)]
    spec["volumes"] = volumes
    return spec


def deadline(job: ResolvedJob) -> int:
    """Seconds after which the kubelet ends a pod whatever its runtime says."""
    assert job.limits.deadline is not None  # resolve requires a deadline where the backend costs money
    return ceil(job.limits.deadline + job.timing.stale) + MARGIN + grace(job)


def grace(job: ResolvedJob) -> int:
    """Seconds from SIGTERM to SIGKILL of a pod: equal parts for the command and for the flush."""
    return ceil(2 * job.limits.grace) + 10


def _container(job: ResolvedJob, run: str, role: str, seat: PodContext, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    chosen = job.roles[role]
    container: dict[str, Any] = {
        "name": names.CONTAINER,
        "image": image(job, role),
        "imagePullPolicy": "IfNotPresent",
        "command": list(names.ENTRYPOINT),
        "env": _environment(job, run, role, seat),
    }
    if (store := job.options.get("store_secret")) is not None:
        container["envFrom"] = [{"secretRef": {"name": store}}]
    ports = [{"name": name, "containerPort": port} for port, name in _ports(chosen.ports).items()]
    if ports:
        container["ports"] = ports
    container["resources"] = _resources(chosen.resources, job.options, fabric_resources(job, role))
    container["securityContext"] = RESTRICTED
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    container["volumeMounts"] = mounts
    return container


def _ports(ports: Mapping[str, int]) -> dict[int, str]:
    """Number -> its first name, for users: nothing depends on the ports that a pod declares. Skips ports that the
    runtime picks itself and names that Kubernetes would reject."""
    by_number: dict[int, str] = {}
    for name, number in sorted(ports.items()):
        if number and "--" not in name:
            by_number.setdefault(number, name)
    return by_number


def image(job: ResolvedJob, role: str) -> str:
    """The image by digest, without the tag, which then has no effect."""
    image_of_role = job.roles[role].image
    if not image_of_role.digest:
        return image_of_role.reference
    path, slash, last = image_of_role.reference.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}@{image_of_role.digest}"


def _environment(job: ResolvedJob, run: str, role: str, seat: PodContext) -> list[dict[str, Any]]:
    """The pod's environment variables. The order matters: a variable may refer to earlier ones."""
    variables: dict[str, str | dict[str, Any]] = {"SLIPWAY_STORE": escape(job.store)}
    if not seat.array:
        variables["SLIPWAY_RUN"] = run
    variables["SLIPWAY_ROLE"] = role
    variables["SLIPWAY_RANK"] = _field("SLIPWAY_RANK") if seat.kind == "set" and not seat.array else "0"
    variables["SLIPWAY_POD"] = _field("SLIPWAY_POD")
    if seat.array:
        variables["SLIPWAY_INDEX"] = _field("SLIPWAY_INDEX")
    place: dict[str, str]
    if seat.kind == "set":
        variables |= {name: _field(name) for name in ("SLIPWAY_SET", "SLIPWAY_RESTART")}
        place = {"kind": "set", "where": "$(SLIPWAY_SET)", "generation": "$(SLIPWAY_RESTART)", "host": seat.host}
    else:
        variables |= {name: _field(name) for name in ("SLIPWAY_OWNER", "SLIPWAY_ADDRESS")}
        place = {"kind": "job", "where": "$(SLIPWAY_OWNER)", "host": "$(SLIPWAY_ADDRESS)"}
    place["container"] = "$(SLIPWAY_POD)"
    text = json.dumps(place, separators=(",", ":"))
    variables["SLIPWAY_PLACEMENT"] = text.replace('"$(SLIPWAY_RESTART)"', "$(SLIPWAY_RESTART)")  # a number: no quotes
    config_map, key = names.ROOT_CA
    variables["SLIPWAY_CLUSTER"] = {"configMapKeyRef": {"name": config_map, "key": key, "optional": True}}
    if seat.after is not None:
        variables["SLIPWAY_STAGE"] = ",".join(seat.after) or "first"
    variables |= {
        "SLIPWAY_WORKDIR": names.WORK,
        "HOME": names.WORK,
        "PYTHONUNBUFFERED": "1",
        THREADS: str((whole if seat.former else threads)(job.roles[role])),
        **fabric_variables(job, role),
    }
    for name, place_of in sorted(job.secrets.items()):
        variables[name] = _secret(name, place_of)
    if seat.array:
        variables["SLIPWAY_JOB_FILE"] = f"{names.JOBS}/$(SLIPWAY_INDEX).json"
    elif seat.files:
        variables["SLIPWAY_JOB_FILE"] = f"{names.JOBS}/{job_key(run)}"
    else:
        variables["SLIPWAY_JOB"] = escape(job_text(job))
    return [
        {"name": name, "value": value} if type(value) is str else {"name": name, "valueFrom": value}
        for name, value in variables.items()
    ]


def _field(name: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": _FIELD[name]}}


def _secret(name: str, place: str) -> dict[str, Any]:
    match = _PLACE.fullmatch(place)
    if match is None:
        raise BadInput(
            f"secrets: `{name}` is kept in `{place}`, which Kubernetes does not have; write SECRET/KEY, for example "
            f"`kubernetes: {{secrets: {{{name}: my-secret/{name}}}}}`"
        )
    return {"secretKeyRef": {"name": match[1], "key": match[2]}}


def job_key(run: str) -> str:
    """The name of a job's file in its ConfigMap."""
    return f"{run}.json"


def job_text(job: ResolvedJob) -> str:
    """job.json with one field a line: the same values, but a changed field is one line of a diff."""
    fields = decode(encode_job(job), dict[str, msgspec.Raw])
    return "{" + ",\n ".join(f"{json.dumps(name)}:{bytes(value).decode()}" for name, value in fields.items()) + "}"


def escape(text: str) -> str:
    """A variable's value for the kubelet, which expands `$(NAME)` and reads `$$` as `$`."""
    return re.sub(r"\$(?=[$(])", "$$", text) if "$" in text else text


def unescape(text: str) -> str:
    """The value that a container gets from an escaped one."""
    return text.replace("$$", "$")


def _resources(need: Resources, options: Mapping[str, Any], others: Mapping[str, str]) -> dict[str, Any]:
    requests = {"cpu": cores(need.cpus)}
    limits: dict[str, str] = {}
    for name, value in (("memory", need.memory), ("ephemeral-storage", need.disk)):
        if value is not None:
            requests[name] = limits[name] = quantity(value)
    claimed = need.gpus and "gpu_claim" in options
    if need.gpus and not claimed:
        requests[GPU] = limits[GPU] = str(need.gpus)
    for name, count in sorted(options.get("devices", {}).items()):
        requests[name] = limits[name] = str(count)
    requests |= others
    limits |= others
    claims = {"claims": [{"name": _GPUS}]} if claimed else {}
    return {"requests": requests, **({"limits": limits} if limits else {}), **claims}


def cores(cpus: float) -> str:
    """`8`, `500m`; rounded up to thousandths of a CPU."""
    milli = ceil(round(cpus * 1000, 6))
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def quantity(size: int) -> str:
    """Bytes as an exact quantity, in the unit that needs the fewest digits."""
    texts = [f"{size // factor}{unit}" for unit, factor in _UNITS if size % factor == 0]
    return min(texts, key=len, default=str(size))


def _volumes(job: ResolvedJob, need: Resources, seat: PodContext) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mounts and volumes."""
    work: dict[str, Any] = {"sizeLimit": quantity(need.disk)} if need.disk is not None else {}
    mounts: list[dict[str, Any]] = [{"name": "work", "mountPath": names.WORK}, {"name": "tmp", "mountPath": names.TMP}]
    volumes: list[dict[str, Any]] = [{"name": "work", "emptyDir": work}, {"name": "tmp", "emptyDir": {}}]
    if need.shm is not None:
        mounts.append({"name": "shm", "mountPath": names.SHM})
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": quantity(need.shm)}})
    for number, cache in enumerate(job.options.get("caches", ())):
        name = f"cache-{number}"
        if cache["path"].rstrip("/") in (*(mount["mountPath"] for mount in mounts), names.JOBS, names.SHM):
            raise BadInput(f"kubernetes.caches: something is mounted at {cache['path']} already")
        only = {"readOnly": True} if cache.get("read_only") else {}
        mounts.append({"name": name, "mountPath": cache["path"], **only})
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": cache["name"], **only}})
    own_mounts, own_volumes = mounted(job.options.get("volumes", ()), [mount["mountPath"] for mount in mounts])
    mounts += own_mounts
    volumes += own_volumes
    if seat.files:
        mounts.append({"name": names.JOBS_VOLUME, "mountPath": names.JOBS, "readOnly": True})
        volumes.append({"name": names.JOBS_VOLUME, **_files(seat.files)})
    return mounts, volumes


def _files(maps: Sequence[str]) -> dict[str, Any]:
    if len(maps) == 1:
        return {"configMap": {"name": maps[0]}}
    return {"projected": {"sources": [{"configMap": {"name": name}} for name in maps]}}
