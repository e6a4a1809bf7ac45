"""Job -> the command jobs of Azure ML, one for each role, as `az ml job create --file` takes them; on a pool one for
each rank, after its compute instance, as `az ml compute create --file` takes it. Pure, and without the SDK."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import yaml

from launcher.backends.azureml import names
from launcher.backends.azureml.script import command
from launcher.backends.azureml.traits import VAULT
from launcher.backends.base import Rendered
from launcher.errors import BadInput, refused
from launcher.runtime.secrets.fetch import SECRETS, STORE_SECRETS
from launcher.spec.hashing import encode_job, run_hash, run_id, work_hash
from launcher.spec.model import ResolvedJob, Role
from launcher.spec.resolve.threads import THREADS, threads
from launcher.spec.values.yaml_text import dump

SCHEMA: Final = "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"
INSTANCE_SCHEMA: Final = "https://azuremlschemas.azureedge.net/latest/computeInstance.schema.json"
COMMAND, INSTANCE = "command", "computeinstance"  # the types of documents
KVM: Final = "--device=/dev/kvm"
INLINE: Final = 32 * 1024  # bytes of job.json in a variable; the runtime reads a longer one from the store
# scheme -> the variables that open such a store, required ones first; az:// is opened with the identity
OPENS: Final = {
    "s3": (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("AWS_SESSION_TOKEN",)),
    "gs": (("GOOGLE_SERVICE_ACCOUNT_KEY",), ()),
}
LONGEST: Final = 256  # characters of a property that we write
SMALLEST_SHM: Final = 1 << 20  # bytes
_UNITS: Final = ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k"), (1, "b"))

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def render(group: Sequence[ResolvedJob]) -> Rendered:
    """One file for each run. Raises BadInput with every reason why Azure ML cannot run one of the jobs."""
    if wrong := [(job.name, line) for job in group for line in refusals(job)]:
        raise refused(wrong)
    works = {work_hash(job) for job in group} if any(job.inputs for job in group) else set()
    warnings = [
        f"{job.name} is billed while it waits for {item.job or item.work}: submit it when that has ended"
        for job in group
        for item in job.inputs.values()
        if item.work in works
    ]
    warnings += [
        f"{job.name}: its roles are jobs of their own: they reach each other only in one virtual network, and one is "
        "billed while another waits in the queue"
        for job in group
        if len(job.roles) > 1 and "pool" not in job.options
    ]
    warnings += [
        f"{job.name}: its ranks do not reach each other without azureml.pool.subnet"
        for job in group
        if "pool" in job.options and "subnet" not in job.options["pool"] and len(job.members()) > 1
    ]
    texts = {run_id(job): "---\n".join(map(dump, documents(job))) for job in group}
    return Rendered(
        {f"{run}.yaml": text for run, text in texts.items()}, {run: f"{run}.yaml" for run in texts}, tuple(warnings)
    )


def refusals(job: ResolvedJob) -> Iterator[str]:
    """A line for everything in a job that this backend cannot do."""
    options = job.options
    for name in names.PLACE:
        if not options.get(name):
            yield f"azureml.{name}: is missing; allowed: that of the workspace; slipway.yaml can hold it"
    if "pool" in options:
        yield from _pool_refusals(job)
    elif ("compute" in options) == ("instance_type" in options):
        both = "not with instance_type" if "compute" in options else "is missing"
        yield f"azureml.compute: {both}; allowed: a cluster, or `instance_type` for serverless compute"
    if "vm_size" in options and "compute" not in options:
        yield "azureml.vm_size: is of a cluster only; allowed: with compute"
    for name in ("locations", "tier", "priority"):
        if name in options and "instance_type" not in options:
            yield f"azureml.{name}: is of serverless compute only; allowed: with instance_type"
    if options.get("tier") == "spot" and len(job.roles) > 1:
        # the others would run, and reach their limits, while one waits for hours for another node
        yield "azureml.tier: spot takes back the node of one role alone; allowed: spot with one role"
    if job.limits.deadline is None:
        yield "limits.deadline: is missing: azureml bills until a run ends; allowed: a duration: 6h"
    for name, place in sorted(job.secrets.items()):
        if not re.fullmatch(VAULT, place):
            yield (
                f"secrets: `{name}` is kept in `{place}`: a job of Azure ML keeps no secrets, it asks Key Vault; "
                "allowed: https://VAULT.vault.azure.net/secrets/NAME"
            )
    if (job.secrets or options.get("store_secrets")) and "identity" not in options:
        yield "azureml.identity: is missing: the run asks Key Vault with it; allowed: {kind: managed}"
    yield from _store_refusals(job)
    for role, chosen in job.roles.items():
        if chosen.restarts and chosen.replicas > 1 and chosen.leader:
            yield f"roles.{role}.restarts: not for the leading role of several nodes; allowed: 0"
        if chosen.resources.shm is not None and chosen.resources.shm < SMALLEST_SHM:
            yield f"roles.{role}.resources.shm: docker takes no less than 1Mi; allowed: 1Mi or more"


def _pool_refusals(job: ResolvedJob) -> Iterator[str]:
    options, pool, ranks = job.options, job.options["pool"], len(job.members())
    for name in ("compute", "instance_type"):
        if name in options:
            yield f"azureml.{name}: not with pool; allowed: one of compute, instance_type and pool"
    if ranks > pool["instances"]:
        yield (
            f"azureml.pool.instances: {pool['instances']} for {ranks} ranks, each of which needs one; allowed: {ranks} "
            "or more, or fewer replicas"
        )
    identity = options.get("identity", {})
    managed = identity.get("kind") == "managed"
    if managed and ("client_id" not in identity or "identity" not in pool):
        absent = "azureml.identity.client_id" if "client_id" not in identity else "azureml.pool.identity"
        yield (
            f"{absent}: is missing: a new instance has no identity of its own that may read the store; allowed: "
            "a user-assigned identity, by client_id and by pool.identity; or identity: {kind: user}"
        )
    budget = job.limits.budget
    if budget is not None and budget.price and job.limits.deadline is not None:
        seconds = names.pool_seconds(job)
        worst = budget.price * seconds / 3600
        if worst > budget.amount:
            machines = f"{ranks} instance{'s' if ranks > 1 else ''}"
            more = (seconds - job.limits.deadline) / 3600
            yield (
                f"limits.budget: {machines} may cost {worst:.2f} {budget.currency} in {seconds / 3600:.2f} h "
                f"(limits.deadline, {more:.2f} h to load, end and be idle), which is more than {budget.amount:.2f}; "
                "allowed: a larger budget, a shorter deadline, fewer ranks"
            )


def _store_refusals(job: ResolvedJob) -> Iterator[str]:
    scheme, keys = job.store.partition("://")[0], job.options.get("store_secrets", {})
    if len(job.store) > LONGEST or not job.store.isprintable():
        yield f"store: its URL is a property of the job; allowed: at most {LONGEST} characters in one line"
    if scheme == "az":
        if "account" not in parse_qs(urlsplit(job.store).query):
            yield "store: a node does not know the storage account; allowed: az://CONTAINER/PREFIX?account=NAME"
        if "identity" not in job.options:
            yield "azureml.identity: is missing: the run opens its store with it; allowed: {kind: managed}"
    required, allowed = OPENS.get(scheme, ((), ()))
    for name in required:
        if name not in keys:
            yield (
                f"azureml.store_secrets: `{name}` is missing, with which a node opens {scheme}://; allowed: the "
                "address of a secret of Key Vault, or a store in az://"
            )
    for name in sorted(set(keys) - {*required, *allowed}):
        of = f"{scheme}://: {', '.join((*required, *allowed))}" if required else f"{scheme}://: none"
        yield f"azureml.store_secrets: `{name}` opens no such store; allowed with {of}"


def documents(job: ResolvedJob) -> list[dict[str, Any]]:
    """The command jobs of a run: the leading role's last, so that a run whose job of its name exists has them all. On a
    pool its compute instances come first."""
    run = run_id(job)
    if "pool" not in job.options:
        return [_document(job, name, role) for name, role in names.job_names(job, run).items()]
    jobs = names.job_names(job, run)
    return [*(_instance(job, run, member) for member in jobs.values()), *_pool_documents(job, run, jobs)]


def _pool_documents(job: ResolvedJob, run: str, jobs: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The job of each rank, on its own instance and with the machine's device for virtual machines."""
    workspace = names.workspace_of(job.options)
    for name, member in jobs.items():
        role, _, rank = member.rpartition("-")
        document = _document(job, name, role, int(rank))
        document["compute"] = f"azureml:{names.instance_name(workspace, run, member)}"
        document["properties"][names.RANKS] = names.ranks(job)
        given = document["resources"].pop("docker_args", "")
        document["resources"]["docker_args"] = f"{KVM} {given}" if given else KVM
        yield document


def _instance(job: ResolvedJob, run: str, member: str) -> dict[str, Any]:
    """A compute instance that Azure itself stops when it has no job."""
    pool = job.options["pool"]
    document: dict[str, Any] = {
        "$schema": INSTANCE_SCHEMA,
        "type": INSTANCE,
        "name": names.instance_name(names.workspace_of(job.options), run, member),
        "size": pool["size"],
        "idle_time_before_shutdown_minutes": names.idle(pool) // 60,
        "tags": {
            names.TAG: run,
            names.OWNER: job.store,
            names.MEMBER: member,
            names.POOL_RANKS: names.ranks(job),
            names.POOL_LEADING: job.leading,
            names.POOL_JOB: run_hash(job),
            names.MOST: str(names.pool_seconds(job)),
        },
    }
    if "subnet" in pool:
        vnet, _, subnet = pool["subnet"].partition("/")
        document["network_settings"] = {"vnet_name": vnet, "subnet": subnet}
    if "identity" in pool:
        identity = {"type": "user_assigned", "user_assigned_identities": [{"resource_id": pool["identity"]}]}
        document["identity"] = identity
    return document


def _document(job: ResolvedJob, name: str, role: str, rank: int | None = None) -> dict[str, Any]:
    """`rank`: where it is the job of this rank alone."""
    run, options, chosen = run_id(job), job.options, job.roles[role]
    leading = name == run
    document: dict[str, Any] = {
        "$schema": SCHEMA,
        "type": COMMAND,
        "name": name,
        "display_name": job.name if leading else f"{job.name} {role if rank is None else f'{role}-{rank}'}",
        "experiment_name": options.get("experiment", "slipway"),
        "tags": {names.TAG: run, **{f"label-{key}": value for key, value in sorted(job.labels.items())}},
        "properties": {
            names.RUN: run,
            names.ROLE: role,
            names.ROLES: ",".join(sorted(job.roles)),
            names.LEADING: job.leading,
            names.FINGERPRINT: run_hash(job),
            names.STORE: job.store,
            names.GIT[0]: names.GIT[1],
        },
        "environment": {"image": image(job, role)},
        "environment_variables": _variables(job, run, role),
        "command": command(job, run, rank),
    }
    if "compute" in options:
        document["compute"] = f"azureml:{options['compute']}"
    document["resources"] = _resources(chosen, options, chosen.replicas if rank is None else 1)
    if chosen.replicas > 1 and rank is None:
        document["distribution"] = {"type": "pytorch", "process_count_per_instance": 1}
    queue = {"job_tier": options.get("tier"), "priority": options.get("priority")}
    if queue := {name: value for name, value in queue.items() if value is not None}:
        document["queue_settings"] = queue
    if (identity := options.get("identity")) is not None:
        document["identity"] = _identity(identity)
    document["limits"] = {"timeout": names.lifetime(job)}
    if services := _services(options):
        document["services"] = services
    return document


def image(job: ResolvedJob, role: str) -> str:
    """The image by digest, without the tag, which then has no effect."""
    image_of_role = job.roles[role].image
    path, slash, last = image_of_role.reference.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}@{image_of_role.digest}"


def _resources(chosen: Role, options: Mapping[str, Any], count: int) -> dict[str, Any]:
    resources: dict[str, Any] = {"instance_count": count}
    if "instance_type" in options:
        resources["instance_type"] = options["instance_type"]
    if "locations" in options:
        resources["locations"] = list(options["locations"])
    if chosen.resources.shm is not None:
        resources["shm_size"] = shm_size(chosen.resources.shm)
    if options.get("docker_args"):
        resources["docker_args"] = " ".join(options["docker_args"])
    return resources


def shm_size(size: int) -> str:
    """Bytes as docker writes them, exact: `16g`."""
    return next(f"{size // factor}{unit}" for factor, unit in _UNITS if size % factor == 0)


def _identity(identity: Mapping[str, str]) -> dict[str, str]:
    if identity["kind"] == "user":
        return {"type": "user_identity"}
    return {"type": "managed", **({"client_id": identity["client_id"]} if "client_id" in identity else {})}


def _services(options: Mapping[str, Any]) -> dict[str, Any]:
    services: dict[str, Any] = {}
    if "ssh_public_key" in options:
        services["ssh"] = {"type": "ssh", "ssh_public_keys": options["ssh_public_key"], "nodes": "all"}
    if "tensorboard" in options:
        services["tensorboard"] = {"type": "tensor_board", "log_dir": options["tensorboard"]}
    return services


def _variables(job: ResolvedJob, run: str, role: str) -> dict[str, str]:
    """The environment of the runtime. Everybody who may read the workspace sees it, so no value is a secret."""
    variables = {
        THREADS: str(threads(job.roles[role])),
        "PYTHONUNBUFFERED": "1",
        "SLIPWAY_STORE": job.store,
        "SLIPWAY_RUN": run,
        "SLIPWAY_ROLE": role,
    }
    # where they are kept; the runtime fetches the values with the node's identity
    for variable, places in ((SECRETS, job.secrets), (STORE_SECRETS, job.options.get("store_secrets"))):
        if places:
            variables[variable] = json.dumps(dict(sorted(places.items())))
    encoded = encode_job(job).decode()
    # Azure ML reads ${{...}} as a reference to an input
    if len(encoded.encode()) <= INLINE and "${{" not in encoded:
        variables["SLIPWAY_JOB"] = encoded
    return variables


def parse(text: str, where: str) -> list[dict[str, Any]]:
    """Reads a rendered file back. Raises BadInput."""
    try:
        parsed = [document for document in yaml.load_all(text, Loader=Loader) if document is not None]
    except yaml.YAMLError as error:
        raise BadInput(f"{where}: {error}") from None
    for document in parsed:
        fine = isinstance(document, dict) and document.get("type") in (COMMAND, INSTANCE)
        if not fine or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}", str(document.get("name", ""))):
            raise BadInput(f"{where}: it is not a command job of Azure ML with a name")
    if not any(document["type"] == COMMAND for document in parsed):
        raise BadInput(f"{where}: it holds no job")
    return parsed
