"""Job -> the launch requests of its machines, one for each member. Pure. The region and the type are chosen at the
launch, by capacity; submit adds the tag `slipway:expires` and the credentials of the store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from launcher.backends.base import Rendered
from launcher.backends.lambda_labs import names
from launcher.backends.lambda_labs.access import archive_url, event_url
from launcher.backends.lambda_labs.script import completed, script, with_archive, with_event_url
from launcher.backends.lambda_labs.traits import ARN
from launcher.backends.lambda_labs.venv import digest_of
from launcher.errors import BadInput, refused
from launcher.spec.hashing import run_hash, run_id, work_hash
from launcher.spec.model import ResolvedJob, Role
from launcher.spec.values.yaml_text import dump

VERSION: Final = 1
LONGEST_DATA: Final = 900_000  # bytes of user data; Lambda takes 1 MB, and the credentials are still to come

# our images with CUDA -> the oldest branch of NVIDIA's driver that they start with (SLIPWAY_DRIVER_FLOOR)
DRIVERS: Final = {"trl-grpo": 580, "unsloth-sft": 580, "vllm-serve": 580}

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class MachineRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The launch of one member's machine. `request`: the fields of the API, without region, type and expiry."""

    member: str
    request: dict[str, Any]


class LaunchFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rendered file. `wait`: seconds for which submit waits for capacity; `lifetime`: seconds from the launch after
    which a machine may be ended by anybody."""

    launch: int
    run: str
    fingerprint: str
    store: str
    account: str
    instance_types: tuple[str, ...]
    lifetime: int
    machines: tuple[MachineRequest, ...]
    regions: tuple[str, ...] = ()
    wait: float = 0.0


def render(group: Sequence[ResolvedJob]) -> Rendered:
    """Raises BadInput with every reason why Lambda cannot run one of the jobs."""
    if wrong := [(job.name, line) for job in group for line in refusals(job)]:
        raise refused(wrong)
    files = [launch_file(job) for job in group]
    works = {work_hash(job): run_id(job) for job in group} if any(job.inputs for job in group) else {}
    warnings = tuple(
        f"{job.name} is billed while it waits for {item.job or item.work}: submit it when that has ended"
        for job in group
        for item in job.inputs.values()
        if item.work in works
    ) + tuple(
        f"{job.name}: its image {name} needs NVIDIA's driver {DRIVERS[name]} or newer, and a host of "
        "Lambda may have an older one: the run then ends with docker's words"
        for job in group
        for name in dict.fromkeys(_image(role) for role in job.roles.values() if role.resources.gpus)
        if name in DRIVERS
    )
    documents = {f"{file.run}.yaml": dump(msgspec.to_builtins(file)) for file in files}
    return Rendered(documents, {file.run: f"{file.run}.yaml" for file in files}, warnings)


def _image(role: Role) -> str:
    """The name of a role's image, without registry, tag and digest."""
    return role.image.reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def refusals(job: ResolvedJob) -> list[str]:
    """A line for everything in a job that this backend cannot do."""
    options, run = job.options, run_id(job)
    lines = []
    if not options.get("instance_types"):
        lines.append("lambda.instance_types: is missing; allowed: a list such as [gpu_1x_h100_pcie, gpu_1x_a100]")
    if not options.get("ssh_key"):
        lines.append("lambda.ssh_key: is missing; allowed: the name of an SSH key of the account")
    if len(options.get("file_systems", ())) > 1:
        lines.append("lambda.file_systems: Lambda mounts one; allowed: one name")
    if job.limits.deadline is None:
        lines.append("limits.deadline: is missing: lambda bills until a run ends; allowed: a duration: 6h")
    for name, place in sorted(job.secrets.items()):
        if not re.fullmatch(ARN, place):
            lines.append(
                f"secrets: `{name}` is kept in `{place}`: a machine of Lambda keeps no secrets, it asks AWS; "
                "allowed: the ARN of a secret of Secrets Manager or of a parameter of Systems Manager"
            )
        elif not job.store.startswith("s3://"):
            lines.append(f"secrets: `{name}`: only a run whose store is s3:// has credentials of AWS; allowed: none")
    if job.store_access:
        lines.append("store_access: the credentials are the runtime's alone on lambda; allowed: false")
    if len(job.store) > names.LONGEST_TAG:
        lines.append(f"store: its URL is a tag of the machine; allowed: at most {names.LONGEST_TAG} characters")
    if "\n" in job.store:
        lines.append("store: its URL has a line break; allowed: one line")
    for role, chosen in job.roles.items():
        if len(f"{run}-{role}-{chosen.replicas - 1}") > names.LONGEST_NAME:
            lines.append(f"roles.{role}: the name of a machine is run, role and rank; allowed: a shorter name")
        if chosen.restarts and chosen.replicas > 1 and chosen.leader:
            lines.append(f"roles.{role}.restarts: not for the leading role of several machines; allowed: 0")
    return lines


def launch_file(job: ResolvedJob) -> LaunchFile:
    run, options = run_id(job), job.options
    return LaunchFile(
        launch=VERSION,
        run=run,
        fingerprint=run_hash(job),
        store=job.store,
        account=names.account_of(job),
        instance_types=tuple(options["instance_types"]),
        lifetime=names.lifetime(job),
        machines=tuple(_machine(job, run, member) for member in job.members()),
        regions=tuple(options.get("regions", ())),
        wait=float(options.get("wait_for_capacity", 0.0)),
    )


def _machine(job: ResolvedJob, run: str, member: str) -> MachineRequest:
    role, _, rank = member.rpartition("-")
    user_data = script(job, run, role, int(rank))
    if len(user_data.encode()) > LONGEST_DATA:
        raise BadInput(f"{job.name}: the job is too long for Lambda's user data; allowed: {LONGEST_DATA} bytes")
    tags = {
        names.RUN: run,
        names.MEMBER: member,
        names.FINGERPRINT: run_hash(job),
        names.STORE: job.store,
        names.ACCOUNT: names.account_of(job),
    }
    request: dict[str, Any] = {
        "name": f"{run}-{member}",
        "ssh_key_names": [job.options["ssh_key"]],
        "file_system_names": list(job.options.get("file_systems", ())),
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
        "user_data": user_data,
    }
    if (family := job.options.get("image_family")) is not None:
        request["image"] = {"family": family}
    return MachineRequest(member, request)


def parse(text: str, where: str) -> LaunchFile:
    """Reads a rendered file back. Raises BadInput."""
    try:
        file = msgspec.convert(yaml.load(text, Loader=Loader), LaunchFile)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise BadInput(f"{where}: {error}") from None
    if file.launch > VERSION:
        raise BadInput(f"{where}: of version {file.launch}; this launcher reads up to {VERSION}")
    return file


def fetching(machine: MachineRequest, job: ResolvedJob, given: Mapping[str, str], number: str) -> MachineRequest:
    """The machine, told where it says why no runtime can start on it, and from where it fetches the archive of its
    Python environment, if it needs one. `given`: its credentials of the store; `number`: of its launch."""
    user_data = with_event_url(machine.request["user_data"], event_url(job, number, given))
    if digest := digest_of(job, machine.member.rpartition("-")[0]):
        user_data = with_archive(user_data, archive_url(job, digest, given))
    return msgspec.structs.replace(machine, request={**machine.request, "user_data": user_data})


def request_of(
    file: LaunchFile,
    machine: MachineRequest,
    region: str,
    instance_type: str,
    now: float,
    access: str,
    launch: str,
) -> Mapping[str, Any]:
    """The body of a launch. `now`: seconds since the epoch; a lifetime later anybody may end the machine. `access`: the
    credentials of the store; `launch`: the number of this request, unlike that of any other."""
    given = {names.LAUNCHED: int(now), names.EXPIRES: int(now) + file.lifetime, names.LAUNCH: launch}
    tags = [*machine.request["tags"], *({"key": key, "value": str(value)} for key, value in given.items())]
    chosen = {"region_name": region, "instance_type_name": instance_type}
    user_data = completed(machine.request["user_data"], access, launch)
    return {**machine.request, **chosen, "tags": tags, "user_data": user_data}
