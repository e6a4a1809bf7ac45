"""The workspace. Every method gets the time, in seconds of the admin clock; nothing here waits."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fakes.azureml.instances import StandInInstances

SUBSCRIPTION: Final = "11111111-2222-3333-4444-555555555555"
GROUP, WORKSPACE = "ml", "lab"
ID: Final = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.MachineLearningServices"
    f"/workspaces/{WORKSPACE}"
)
TERMINAL: Final = ("Completed", "Failed", "Canceled")
# what a PUT may change of a job that is there
CHANGEABLE: Final = ("tags", "displayName", "description", "properties", "isArchived")
PAGE: Final = 3
VAULT_TOKEN: Final = "a-token-of-the-identity-for-key-vault"
NODE_WORD: Final = "the-word-of-a-node"  # by which a node's service knows its own processes


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str, inner: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.inner = status, code, message, inner


@dataclass
class StandInJob:
    name: str
    body: dict[str, Any]
    created: float
    queued: float  # since when it waits
    status: str = "NotStarted"
    ending: float = 0.0  # when its cancel was asked for
    starts: int = 0
    held: bool = False  # a test has set its status
    running: float = 0.0  # since when it runs
    on_instance: bool = False

    @property
    def compute(self) -> str:
        return str(self.body["properties"].get("computeId") or "").rpartition("/")[2]


@dataclass
class Settings:
    """What a test may change while the server runs. Times are seconds of the admin clock."""

    queue: float = 30.0
    cancel: float = 10.0
    grace: float = 30.0  # from SIGTERM to SIGKILL
    stuck: bool = False  # nothing leaves the queue
    token: bool = True  # logins are given
    rights: bool = True
    computes: dict[str, int] = field(default_factory=lambda: {"gpu": 8, "cpu": 8})  # name -> most nodes
    least: dict[str, int] = field(default_factory=dict)  # of these clusters, the nodes that they keep
    # name -> the properties of an instance that was made long ago, and does not change
    instances: dict[str, dict[str, Any]] = field(default_factory=dict)
    # path below the resource group's providers -> what is there: disks and addresses
    resources: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    vault: dict[str, str] = field(default_factory=dict)  # host/secrets/name of Key Vault -> the secret's value
    vault_rights: bool = True  # the identity of jobs may read them
    locked: list[str] = field(default_factory=list)  # names of resources with a lock against their deletion
    lag: bool = False  # lists show what was deleted
    faults: list[dict[str, Any]] = field(default_factory=list)  # {"on": call, "kind": ..., "times": n}


class Cloud:
    def __init__(self) -> None:
        self.settings = Settings()
        self.jobs: dict[str, StandInJob] = {}
        self.environments: dict[tuple[str, str], dict[str, Any]] = {}
        self.ledger: list[dict[str, Any]] = []
        self.deleted: set[tuple[str, str]] = set()  # kind and name of resources
        self.made = StandInInstances(self.has_job, self.note)

    def note(self, now: float, event: str, **fields: Any) -> None:
        self.ledger.append({"at": now, "event": event, **fields})

    def ledger_of(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.ledger if entry["event"] == event]

    def fault(self, call: str) -> str:
        for fault in self.settings.faults:
            if fault["on"] in (call, "*") and fault.get("times", 1) > 0:
                fault["times"] = fault.get("times", 1) - 1
                return str(fault["kind"])
        return ""

    # the resource manager

    def beside(self, path: str) -> str | None:
        """The kind of resource that a path lists, of another provider than the workspace's; None: it lists none."""
        match = re.fullmatch(
            r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/(Microsoft\.(?:Compute|Network)/\w+(?:/[\w-]+)?)",
            path,
        )
        if match is None or match[1] != SUBSCRIPTION or match[2].lower() != GROUP:
            return None
        if not self.settings.rights:
            raise Refused(403, "AuthorizationFailed", "The client does not have authorization to perform action.")
        return match[3]

    def resources(self, kind: str, skip: int | None) -> dict[str, Any]:
        """A page; `skip` None: all of them."""
        there = self.settings.resources.get(kind, [])
        found = [each for each in there if self.settings.lag or (kind, each["name"]) not in self.deleted]
        ids = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/{kind}"
        value = [{"id": f"{ids}/{each['name']}", "location": "westeurope", **each} for each in found]
        if skip is None:
            return {"value": value}
        answer: dict[str, Any] = {"value": value[skip : skip + PAGE]}
        if skip + PAGE < len(value):
            answer["nextLink"] = f"https://management.azure.com{ids}?api-version=2024-03-02&$skip={skip + PAGE}"
        return answer

    def one_resource(self, method: str, kind: str, name: str, now: float) -> dict[str, Any] | None:
        """Answers GET and DELETE of a disk, an address or a compute instance."""
        if kind == "computes" and name in self.made.there:
            if method == "DELETE" and name not in self.settings.locked:
                self.made.delete(name, now)
            return None if method == "DELETE" else self.made_instance(name)
        if kind == "computes":
            there = name in self.settings.instances
            body = self.instance(name) if there else {}
        else:
            (body,) = [each for each in self.resources(kind, None)["value"] if each["name"] == name] or [{}]
            there = bool(body)
        if not there or (kind, name) in self.deleted:
            raise Refused(404, "ResourceNotFound", f"The Resource {name} was not found.")
        if method == "GET":
            return body
        if body.get("managedBy") or body.get("properties", {}).get("ipConfiguration"):
            raise Refused(409, "OperationNotAllowed", f"{name} is attached.")
        if name in self.settings.locked:
            text = "cannot perform delete operation because following scope(s) are locked"
            raise Refused(409, "ScopeLocked", f"The scope '{kind}/{name}' {text}: '{name}'. Remove the lock.")
        self.note(now, "deleted", kind=kind, name=name)
        self.deleted.add((kind, name))
        return None

    def secret(self, host: str, path: str, authorization: str, now: float) -> dict[str, Any]:
        """Answers as Key Vault does to GET /secrets/NAME[/VERSION]."""
        self.note(now, "secret", host=host, path=path)
        if fault := self.fault("secret"):
            raise Refused(int(fault), "InternalServerError", "An internal error occurred.")
        if authorization != f"Bearer {VAULT_TOKEN}":
            raise Refused(401, "Unauthorized", "AKV10000: Request is missing a Bearer or PoP token.")
        if not self.settings.vault_rights:
            raise Refused(
                403, "Forbidden", "Caller is not authorized to perform action on resource.", "ForbiddenByRbac"
            )
        place = f"{host}{path.rstrip('/')}"  # Microsoft's client asks for the newest with a slash at the end
        found = self.settings.vault.get(place)
        if found is None:
            raise Refused(404, "SecretNotFound", "A secret with (name/id) was not found in this key vault.")
        attributes = {"enabled": True, "created": 1700000000, "updated": 1700000000, "recoveryLevel": "Recoverable"}
        version = "" if place.count("/") == 3 else f"/{'0' * 32}"
        return {"value": found, "id": f"https://{place}{version}", "attributes": attributes, "tags": {}}

    def place(self, path: str) -> str:
        """The rest of a path below the workspace. Raises Refused as the resource manager does for another place."""
        match = re.fullmatch(
            r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.MachineLearningServices"
            r"/workspaces/([^/]+)(?:/(.*))?",
            path,
            re.IGNORECASE,
        )
        if match is None:
            raise Refused(404, "InvalidResourceType", f"no resource at {path}")
        subscription, group, workspace, rest = match.groups()
        if subscription != SUBSCRIPTION:
            raise Refused(404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")
        if group.lower() != GROUP:
            raise Refused(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
        if workspace.lower() != WORKSPACE:
            named = f"Microsoft.MachineLearningServices/workspaces/{workspace}"
            raise Refused(
                404, "ResourceNotFound", f"The Resource '{named}' under resource group '{group}' was not found."
            )
        if not self.settings.rights:
            raise Refused(403, "AuthorizationFailed", "The client does not have authorization to perform action.")
        return rest or ""

    def workspace(self) -> dict[str, Any]:
        properties = {
            "friendlyName": WORKSPACE,
            "workspaceId": "22222222-2222-2222-2222-222222222222",
            "discoveryUrl": "https://westeurope.api.azureml.ms/discovery",
            "mlFlowTrackingUri": f"azureml://westeurope.api.azureml.ms/mlflow/v1.0{ID}",
            "provisioningState": "Succeeded",
        }
        kind = "Microsoft.MachineLearningServices/workspaces"
        return {"id": ID, "name": WORKSPACE, "type": kind, "location": "westeurope", "properties": properties}

    def compute(self, name: str) -> dict[str, Any]:
        if name not in self.settings.computes:
            raise Refused(404, "ResourceNotFound", f"Compute {name} was not found.")
        least = self.settings.least.get(name, 0)
        scale = {
            "minNodeCount": least,
            "maxNodeCount": self.settings.computes[name],
            "nodeIdleTimeBeforeScaleDown": "PT2M",
        }
        inner = {"vmSize": "STANDARD_NC40ADS_H100_V5", "scaleSettings": scale, "allocationState": "Steady"}
        properties = {"computeType": "AmlCompute", "provisioningState": "Succeeded", "properties": inner}
        return {"id": f"{ID}/computes/{name}", "name": name, "location": "westeurope", "properties": properties}

    def instance(self, name: str) -> dict[str, Any]:
        """`tags` of its settings are those of the resource."""
        given = {**self.settings.instances[name]}
        tags = given.pop("tags", {})
        inner = {"computeType": "ComputeInstance", "provisioningState": "Succeeded", "properties": given}
        return {
            "id": f"{ID}/computes/{name}",
            "name": name,
            "location": "eastus",
            "tags": tags,
            "properties": inner,
        }

    def made_instance(self, name: str) -> dict[str, Any]:
        return {"id": f"{ID}/computes/{name}", "name": name, **self.made.there[name].show()}

    def put_instance(self, name: str, body: dict[str, Any], now: float) -> tuple[int, dict[str, Any]]:
        if body["properties"].get("computeType") != "ComputeInstance" or name in self.settings.computes:
            raise Refused(400, "BadArgument", f"{name} is no compute instance.")
        before = name in self.made.there
        answer = self.made.put(name, json.loads(json.dumps(body)), now)
        if isinstance(answer, str):
            raise Refused(409 if answer == "Conflict" else 400, answer, f"The compute {name} cannot be made.")
        return 200 if before else 201, self.made_instance(name)

    def start_instance(self, name: str, now: float) -> None:
        if name not in self.made.there:
            raise Refused(404, "ResourceNotFound", f"Compute {name} was not found.")
        if not self.made.start(name, now):
            raise Refused(409, "Conflict", f"The compute {name} is {self.made.there[name].state}.")

    def has_job(self, name: str) -> bool:
        return any(job.status not in TERMINAL and job.compute == name for job in self.jobs.values())

    def lost_jobs(self) -> list[StandInJob]:
        """Those whose instance was stopped or deleted."""
        running = {name for name, each in self.made.there.items() if each.state == "Running"}
        return [
            job
            for job in self.jobs.values()
            if job.status not in TERMINAL and job.on_instance and job.compute not in running
        ]

    def all_computes(self) -> dict[str, Any]:
        names = [
            name for name in self.settings.instances if self.settings.lag or ("computes", name) not in self.deleted
        ]
        instances = [*map(self.instance, names), *map(self.made_instance, self.made.there)]
        return {"value": [*map(self.compute, self.settings.computes), *instances]}

    def put_environment(self, name: str, version: str, body: Mapping[str, Any]) -> dict[str, Any]:
        made = {
            "id": f"{ID}/environments/{name}/versions/{version}",
            "name": version,
            "properties": {**body["properties"], "environmentType": "UserCreated", "provisioningState": "Succeeded"},
            "systemData": {"createdAt": "2026-11-23T00:00:00Z"},
        }
        return self.environments.setdefault((name, version), made)

    # jobs

    def put_job(self, name: str, body: dict[str, Any], now: float) -> tuple[int, dict[str, Any]]:
        if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,254}", name):
            raise Refused(400, "UserError", f"The job name {name} is not allowed.")
        known = self.jobs.get(name)
        if known is not None:
            if _fixed(known.body) != _fixed(body):
                text = "A job with this name already exists. If you are trying to submit a new job, use another name."
                raise Refused(400, "UserError", text)
            return 200, self.show(known)
        given = body["properties"]
        compute = str(given.get("computeId") or "").rpartition("/")[2]
        made = self.made.there.get(compute)
        if made is not None and made.state != "Running":
            raise Refused(400, "UserError", f"The compute target '{compute}' is {made.state}.")
        if compute and made is None and compute not in self.settings.computes:
            raise Refused(400, "UserError", f"Unknown compute target '{compute}'.")
        if not compute and not given["resources"].get("instanceType"):
            raise Refused(400, "UserError", "A job names a compute or an instance type.")
        match = re.search(r"/environments/([^/]+)/versions/([^/]+)$", given["environmentId"])
        if match is None or (match[1], match[2]) not in self.environments:
            raise Refused(400, "UserError", f"Environment {given['environmentId']} was not found.")
        job = self.jobs[name] = StandInJob(name, json.loads(json.dumps(body)), now, now)
        job.on_instance = made is not None
        self.note(now, "created", name=name)
        return 201, self.show(job)

    def get_job(self, name: str) -> StandInJob:
        if name not in self.jobs:
            raise Refused(404, "UserError", f"Run {name} was not found")
        return self.jobs[name]

    def cancel(self, name: str, now: float) -> str:
        """The path at which the end of the cancel can be asked for."""
        job = self.get_job(name)
        if job.status in TERMINAL:
            raise Refused(400, "UserError", f"Run {name} is in the terminal state {job.status}.")
        if job.status != "CancelRequested":
            job.status, job.ending = "CancelRequested", now
            self.note(now, "cancelled", name=name)
        return f"{ID}/operations/{uuid.uuid4().hex}"

    def page(self, tag: str, skip: int) -> dict[str, Any]:
        """The newest jobs first, as the studio lists them."""
        jobs = [job for job in reversed(self.jobs.values()) if not tag or tag in job.body["properties"].get("tags", {})]
        answer: dict[str, Any] = {"value": [self.show(job) for job in jobs[skip : skip + PAGE]]}
        if skip + PAGE < len(jobs):
            query = f"api-version=2024-01-01-preview&$skip={skip + PAGE}&tag={tag}"
            answer["nextLink"] = f"https://management.azure.com{ID}/jobs?{query}"
        return answer

    def show(self, job: StandInJob) -> dict[str, Any]:
        given = job.body["properties"]
        studio = {"endpoint": f"https://ml.azure.com/runs/{job.name}?wsid={ID}", "jobServiceType": "Studio"}
        properties = {
            **given,
            "status": job.status,
            "properties": {**given.get("properties", {}), "_azureml.ComputeTargetType": "amlctrain"},
            "services": {**(given.get("services") or {}), "Studio": studio},
        }
        kind = "Microsoft.MachineLearningServices/workspaces/jobs"
        created = {"createdAt": "2026-11-23T00:00:00Z", "createdBy": "me", "createdByType": "User"}
        return {
            "id": f"{ID}/jobs/{job.name}",
            "name": job.name,
            "type": kind,
            "properties": properties,
            "systemData": created,
        }


def _fixed(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body["properties"].items() if name not in CHANGEABLE}


def seconds(text: str) -> float:
    """A duration of ISO 8601 in days, hours, minutes and seconds."""
    match = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", text)
    assert match is not None, text
    return sum(int(part or 0) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
