"""The settings with which a member's container is created. Pure: the same job, place and slots give the same settings.

The entrypoint is always the runtime, whatever the image's own is. The container runs under the submitter's uid, so that
the submitter owns what it writes into a file:// store. It has no capabilities and cannot gain privileges. Of the host
it sees only its scratch folder, its file:// stores and inputs, and the volumes and devices that the job names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from launcher.spec.model import ResolvedJob

OURS: Final = frozenset(("linux-desktop", "slipway-cpu", "trl-grpo", "unsloth-sft", "vllm-serve", "waa-vm"))

RUNTIME_LABEL: Final = "slipway.runtime"  # on images that have the runtime; the value is the job schema
RUN: Final = "slipway.run"
MEMBER: Final = "slipway.member"
MARK: Final = "slipway.mark"
QUEUE: Final = "slipway.queue"  # the state folder's id
START: Final = "slipway.start"
ENTRYPOINT: Final = ("python", "-m", "launcher.runtime")
WORK: Final = "/work"
PRIVATE: Final = "/run/slipway/private.json"
LOG_SIZE, LOG_FILES = "64m", 2  # of the engine's copy of the output; the store has all of it
BUILT_IN: Final = ("bridge", "host", "none")
NETWORK: Final = "slipway"  # for runs with several members, which find each other by container name
# The project is on no package index yet, so a wheel is copied.
FIX: Final = (
    f'add `COPY slipway_cua-*.whl /tmp/`, `RUN pip install /tmp/slipway_cua-*.whl` and `LABEL {RUNTIME_LABEL}="1"` to '
    "its Dockerfile (`make wheel` in a clone of Slipway makes the file), or build it FROM one of the images of "
    "`launcher images list`"
)
TOOLKIT: Final = (
    "the engine cannot give GPUs to containers: install the NVIDIA Container Toolkit on its machine "
    "(nvidia-container-toolkit), then `nvidia-ctk runtime configure --runtime=docker` and restart Docker"
)
AWS: Final = "/run/slipway/aws"  # the submitter's ~/.aws, used when the environment has no credentials
# variables that name a file which the store's client reads; the file has the same path in the container
CREDENTIAL_FILES: Final = (
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
)


@dataclass(frozen=True)
class ContainerSettings:
    """What this machine adds to a job: the submitter, the folders for scratch and private files, the GPUs."""

    user: str  # uid:gid of the submitter, as containers of this engine see it
    work: Path
    private: Path
    gpus: tuple[str, ...] = ()
    credentials: Mapping[str, str] = field(default_factory=dict)  # file or folder here -> its path in the container
    cpus: float | None = None  # CPUs of the engine's machine; the engine refuses a higher limit
    shown: tuple[str, ...] = ()  # paths in the container of files that are not secret: certificates
    groups: tuple[int, ...] = ()  # gids of the devices that the job names, as the engine's machine has them
    remapped: bool = False  # the engine shifts the uids of containers (userns-remap)


class Bind(NamedTuple):
    """A mount of a file or folder of this machine. Its path may hold any character; the engine never creates it."""

    source: str
    target: str
    read_only: bool = False


def name(run: str, member: str, start: int, queue: str) -> str:
    """The container's name. Each start has a new container; two queues on one engine may have the same run."""
    return f"slipway-{run}-{member}-{start}-{queue[:6]}"


def host(run: str, member: str, start: int, queue: str) -> str:
    """The container's host name, by which other members find it: its name, shortened where it exceeds the 63 characters
    of DNS."""
    container_name = name(run, member, start, queue)
    return container_name if len(container_name) <= 63 else name(run[-12:], member, start, queue)


def image(job: ResolvedJob, role: str) -> str:
    """The image reference for the engine: by digest where there is one."""
    image_of_role = job.roles[role].image
    return f"{image_of_role.reference}@{image_of_role.digest}" if image_of_role.digest else image_of_role.reference


def unbuilt(reference: str) -> str:
    """The message for a missing image that is in no registry, with the command that builds it."""
    name = reference.partition(":")[0]
    if name in OURS:
        return f"no image {reference} here: `launcher images build {name}`"
    return f"no image {reference} here, and one without a registry is not pulled: `docker build -t {reference} FOLDER`"


def moved(run: str, reference: str, before: str, now: str) -> str:
    """The message for an image that is another one than the run began with."""
    return (
        f"image {reference} is {now} now, and this run was submitted with {before}: `launcher retry {run}` makes a run "
        f"with today's image; to use the earlier one, `docker tag {before} {reference}` before that"
    )


def network(job: ResolvedJob) -> str:
    chosen: str = job.options.get("network") or (NETWORK if len(job.members()) > 1 else "bridge")
    return chosen


def user(job: ResolvedJob, place: ContainerSettings) -> str | None:
    """uid:gid; None: the image's own user."""
    chosen: str = job.options.get("user", "me")
    return place.user if chosen == "me" else None if chosen == "image" else chosen


def loopback(url: str) -> bool:
    """Whether a URL, or the `endpoint=` of a store, names loopback, which inside a container is the container
    itself."""
    parts = urlsplit(url)
    if parts.scheme in ("s3", "gs", "az"):
        return any(loopback(endpoint) for endpoint in parse_qs(parts.query).get("endpoint", ()))
    host = parts.hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def credentials(private: Mapping[str, str], home: Path | None) -> dict[str, str]:
    """Files with the credentials of the submitter's shell for stores: path here -> path in the container. Files that
    variables name keep their paths. ~/.aws is added when no variable gives AWS credentials."""
    variables = {}
    for variable in CREDENTIAL_FILES:
        path = private.get(variable, "")
        if path.startswith("/") and Path(path).is_file():
            variables[path] = path
    named = {"AWS_ACCESS_KEY_ID", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"} & set(private)
    if not named and home is not None and (home / ".aws").is_dir():
        variables[str(home / ".aws")] = AWS
    return variables


def environment(
    job: ResolvedJob, run: str, member: str, start: int, queue: str, place: ContainerSettings
) -> dict[str, str]:
    """The container's environment variables. `docker inspect` shows them, so none is a secret. `queue`: the id of the
    state folder, which tells this queue's runs from those of another host on the same engine."""
    from launcher.backends.local.entry import where
    from launcher.backends.local.environment import INLINE_JOB
    from launcher.spec.hashing import encode_job
    from launcher.spec.resolve.threads import THREADS, threads

    role, _, rank = member.rpartition("-")
    address = "127.0.0.1" if network(job) == "host" else host(run, member, start, queue)
    encoded = encode_job(job)
    variables = {
        THREADS: str(threads(job.roles[role])),
        "PYTHONUNBUFFERED": "1",
        "HOME": WORK,
        "SLIPWAY_STORE": job.store,
        "SLIPWAY_RUN": run,
        "SLIPWAY_ROLE": role,
        "SLIPWAY_RANK": rank,
        "SLIPWAY_PLACEMENT": json.dumps({"kind": "container", "where": where(queue, run, "docker"), "host": address}),
        "SLIPWAY_WORKDIR": WORK,
        "SLIPWAY_PRIVATE": PRIVATE,
        # the runtime reads these files, then empties them: the command could read them too
        **({} if job.store_access else {"SLIPWAY_HIDE": os.pathsep.join(_hidden(place))}),
        **({} if place.gpus else {"CUDA_VISIBLE_DEVICES": ""}),
        **(
            {"AWS_SHARED_CREDENTIALS_FILE": f"{AWS}/credentials", "AWS_CONFIG_FILE": f"{AWS}/config"}
            if AWS in place.credentials.values()
            else {}
        ),
    }
    if len(encoded) <= INLINE_JOB:  # the runtime reads a longer job from the store
        variables["SLIPWAY_JOB"] = encoded.decode()
    if user(job, place) is not None:  # libraries ask for the user's name, which the image does not know for this uid
        variables["USER"] = variables["LOGNAME"] = "slipway"
    return variables


def _hidden(place: ContainerSettings) -> list[str]:
    files = [there for there in place.credentials.values() if there not in (AWS, *place.shown)]
    return files + ([f"{AWS}/credentials", f"{AWS}/config"] if AWS in place.credentials.values() else [])


def mounts(job: ResolvedJob, place: ContainerSettings) -> list[Bind]:
    """What the container sees of this machine, without the volumes that the job names. Those win where both have a
    target."""
    binds = [Bind(str(place.work), WORK), Bind(str(place.private), PRIVATE)]
    if (folder := _file(job.store)) is not None:
        binds.append(Bind(folder, folder))
    for given in job.inputs.values():
        if given.url is not None and (source := _file(given.url)) is not None:
            binds.append(Bind(source, source, True))
    for here, there in place.credentials.items():  # the runtime empties copies only
        binds.append(Bind(here, there, job.store_access or there in place.shown))
    chosen = {volume.split(":")[1].rstrip("/") for volume in job.options.get("volumes", ())}
    return list({bind.target: bind for bind in reversed(binds) if bind.target not in chosen}.values())[::-1]


def _file(url: str) -> str | None:
    """The path of a file:// URL, or of a plain absolute path, read as the store and the runtime read it."""
    if url.startswith("file://"):
        return os.path.normpath(unquote(urlsplit(url).path))
    return url if url.startswith("/") else None


def _device(text: str) -> str:
    """`host:container:permissions`: the engine's client takes the second part of `/dev/kvm:rw` for a path."""
    host, *rest = text.split(":")
    target = next((part for part in rest if part.startswith("/")), host)
    permissions = next((part for part in rest if not part.startswith("/")), "rwm")
    return f"{host}:{target}:{permissions}"


def settings(
    job: ResolvedJob, run: str, member: str, start: int, mark: str, place: ContainerSettings, extra: Mapping[str, str]
) -> dict[str, Any]:
    """Keyword arguments for the SDK's create_container; those for the host are plain values under `host_config`.

    `extra`: more environment variables, not secret (SLIPWAY_TUNING, SLIPWAY_IMAGE).
    """
    role, queue = member.rpartition("-")[0], mark.partition(":")[0]
    need = job.roles[role].resources
    options = job.options
    limits: dict[str, Any] = {
        "mounts": mounts(job, place),
        "binds": list(job.options.get("volumes", ())),
        "network_mode": network(job),
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "read_only": bool(options.get("read_only", False)),
        "nano_cpus": int(min(need.cpus, place.cpus or need.cpus) * 1e9),
        "log_config": {"type": "json-file", "config": {"max-size": LOG_SIZE, "max-file": str(LOG_FILES)}},
        "restart_policy": {"Name": "no"},  # the supervisor decides: Docker's policies cannot exclude exit code 78
    }
    if limits["read_only"]:
        limits["tmpfs"] = {"/tmp": "rw,exec,nosuid,nodev,mode=1777"}
    if need.memory is not None:
        limits["mem_limit"] = limits["memswap_limit"] = need.memory
    if need.shm is not None:
        limits["shm_size"] = need.shm
    if place.remapped and user(job, place) == place.user:  # other users, root among them, stay shifted
        limits["userns_mode"] = "host"
    if devices := options.get("devices"):
        limits["devices"] = [_device(text) for text in devices]
        limits["group_add"] = [str(gid) for gid in place.groups]
    if place.gpus:
        limits["device_requests"] = [{"driver": "nvidia", "device_ids": list(place.gpus), "capabilities": [["gpu"]]}]
    return {
        "image": image(job, role),
        "name": name(run, member, start, queue),
        # in the host's network another name than the host's is one that nothing there knows: torchrun waits for it
        "hostname": None if network(job) == "host" else host(run, member, start, queue),
        "entrypoint": list(ENTRYPOINT),
        "command": [],
        "user": user(job, place),
        "working_dir": WORK,
        "environment": {**environment(job, run, member, start, queue, place), **extra},
        "labels": {RUN: run, MEMBER: member, MARK: mark, QUEUE: queue, START: str(start)},
        "stop_signal": "SIGTERM",
        "host_config": limits,
    }
