"""A workspace of Azure ML, asked through the unmodified SDK. It says of every failure whether the request may have
taken effect.

The SDK takes seconds to import and is loaded with the first request. It renews the login itself and repeats a failed
request a few times, also one that creates a job: the job's name makes that harmless. It raises the same error for a
connection that broke after the request was sent as for one that was never opened, so both count as unknown.

A 404 means that a job does not exist only if its workspace does: a login that sees another subscription gets 404, too.
"""

from __future__ import annotations

import io
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from launcher.backends.azureml import names, rest
from launcher.backends.azureml.names import workspace_of
from launcher.backends.azureml.resources import COMPUTES, MAKES, URL, LooseResource, ask, listed, pages, pipeline
from launcher.errors import BadInput, SlipwayError, Unreachable
from launcher.install import install
from launcher.safe_text import line
from launcher.spec.values.yaml_text import dump

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.mgmt.core import ARMPipelineClient

T = TypeVar("T")

TIMEOUTS: Final = {"connection_timeout": 10, "read_timeout": 60}  # seconds of one request
REPEATS: Final = 2  # of a failed request by the SDK, a few seconds apart
PATIENCE: Final = 60.0  # seconds for which a question without an answer is asked again
SDK: Final = "azure-ai-ml==1.35.2 azure-identity six"  # the extra `azure`
TERMINAL: Final = ("Completed", "Failed", "Canceled")
LOGIN: Final = "log in with `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"

_clients: dict[tuple[str, ...], MLClient] = {}
_making = threading.Lock()


class AzureRefused(SlipwayError):
    """Azure refused a request, which therefore had no effect."""

    exit_code = 4

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"Azure ML refuses: {message} ({code or status})")
        self.status, self.code = status, code


class RequestUnanswered(Unreachable):
    """A request failed, and nobody knows whether it took effect."""


@dataclass(frozen=True)
class WorkspaceJob:
    """A job as the workspace shows it. `created`: seconds since the epoch, 0 unknown; `studio`: the address of its
    page; `runs`: what it runs, as in `described`."""

    name: str
    status: str
    properties: Mapping[str, str]
    runs: Mapping[str, Any]
    created: float = 0.0
    studio: str = ""

    @property
    def active(self) -> bool:
        """It runs, or may still start a process. An unknown status counts as active."""
        return self.status not in TERMINAL


@dataclass(frozen=True)
class WorkspaceCompute:
    """A compute instance or a cluster. `kind`: computeinstance, amlcompute or another, in lower case; `state`: of an
    instance, in Azure's words; `least`: nodes that a cluster keeps although it has no job; `stops_after`: how long an
    instance may be idle, as Azure says it, or ""; `tags`: of an instance."""

    name: str
    kind: str
    size: str
    location: str
    state: str = ""
    least: int = 0
    stops_after: str = ""
    tags: Mapping[str, str] | None = None


def described(document: Mapping[str, Any], version: str) -> dict[str, Any]:
    """What a rendered job runs, for the comparison with one that is there. `version`: of its environment."""
    resources = document["resources"]
    return {
        "command": document["command"],
        "environment": version,
        "variables": dict(document["environment_variables"]),
        "compute": document.get("compute", "").removeprefix("azureml:"),
        "instance_type": resources.get("instance_type", ""),
        "instances": resources["instance_count"],
    }


class Workspace:
    """`options`: subscription, resource_group and workspace. Raises Unreachable."""

    def __init__(self, options: Mapping[str, Any], patience: float = PATIENCE) -> None:
        self.place = tuple(str(options.get(name) or "") for name in names.PLACE)
        self.name = workspace_of(options)
        self.patience = patience
        self._exists = False
        self._location = ""
        self._arm: ARMPipelineClient | None = None

    # reading

    def get(self, name: str) -> WorkspaceJob | None:
        """A job by its name; None if the workspace has none."""
        try:
            return _job(self._read(lambda client: client.jobs.get(name)))
        except AzureRefused as error:
            if error.status != 404:
                raise
            self.must_exist()
            return None

    def jobs(self) -> Iterator[WorkspaceJob]:
        """The jobs with our tag, ended ones too, the newest first."""
        try:
            listed = self._read(lambda client: [each for each in client.jobs.list(tag=names.TAG) if each is not None])
        except AzureRefused as error:
            if error.status == 404:
                self.must_exist()
            raise
        yield from map(_job, listed)

    def nodes(self, compute: str) -> int | None:
        """The most nodes that a cluster may have; None if the workspace has no such compute, or it is no cluster."""
        try:
            answer = self._read(lambda client: client.compute.get(compute))
        except AzureRefused as error:
            if error.status != 404:
                raise
            self.must_exist()
            return None
        most = getattr(answer, "max_instances", None)
        return most if isinstance(most, int) else None

    def computes(self) -> list[WorkspaceCompute]:
        """The compute instances and clusters of the workspace."""
        try:
            listed = self._read(lambda client: list(client.compute.list()))
        except AzureRefused as error:
            if error.status == 404:
                self.must_exist()
            raise
        return [_compute(each) for each in listed]

    def loose(self, kind: tuple[str, str]) -> list[LooseResource]:
        """The disks or the addresses of the workspace's resource group, whoever made them."""
        group = f"/subscriptions/{self.place[0]}/resourceGroups/{self.place[1]}"
        try:
            return self._read(lambda client: list(listed(self._manager(client), group, kind)))
        except AzureRefused as error:
            if error.status == 404:
                self.must_exist()
            raise

    def raw(self, kind: tuple[str, str]) -> list[Mapping[str, Any]]:
        """The disks or the addresses of the resource group, or the workspace's computes, as Azure describes them."""
        path = f"/subscriptions/{self.place[0]}/resourceGroups/{self.place[1]}/providers/{kind[0]}"
        if kind == COMPUTES:
            path = path.replace("/workspaces/", f"/workspaces/{self.place[2]}/")
        return self._read(lambda client: list(pages(self._manager(client), path, kind[1])))

    def resource(self, path: str, kind: tuple[str, str]) -> Mapping[str, Any] | None:
        """One of them by its id; None if there is none."""
        try:
            found: Mapping[str, Any] = self._read(lambda client: ask(self._manager(client), "GET", path, kind[1]))
        except AzureRefused as error:
            if error.status != 404:
                raise
            return None
        return found

    def must_exist(self) -> None:
        """Raises Unreachable when this login does not see the workspace."""
        if self._exists:
            return
        try:
            found = self._read(lambda client: client.workspaces.get(self.place[2]))
        except AzureRefused as error:
            raise Unreachable(
                f"this login does not see the workspace {self.name}, so nothing is known of its jobs: {error}; log in "
                f"to the run's subscription (`az account set --subscription {self.place[0]}`)"
            ) from None
        self._exists, self._location = True, str(getattr(found, "location", None) or "")

    def instance(self, name: str) -> Mapping[str, Any] | None:
        """A compute instance as Azure describes it; None if the workspace has none of this name."""
        found = self.resource(self._instance(name), COMPUTES)
        if found is None:
            self.must_exist()
        return found

    def _instance(self, name: str) -> str:
        return f"{rest.workspace_id(*self.place)}/computes/{name}"

    # changing

    def make_instance(self, document: Mapping[str, Any]) -> None:
        """Asks for a compute instance, whose making takes minutes. Raises AzureRefused, RequestUnanswered."""
        self.must_exist()
        group = f"/subscriptions/{self.place[0]}/resourceGroups/{self.place[1]}"
        body = rest.instance_body(document, self._location, group)
        path = self._instance(document["name"])
        self._call(lambda client: ask(self._manager(client), "PUT", path, MAKES, body))

    def start_instance(self, name: str) -> None:
        """Asks a stopped compute instance to run. Raises AzureRefused, RequestUnanswered."""
        path = f"{self._instance(name)}/start"
        self._call(lambda client: ask(self._manager(client), "POST", path, MAKES))

    def create(self, document: Mapping[str, Any]) -> None:
        """Creates a job, or finds it as it is. Raises AzureRefused, RequestUnanswered."""

        def act(client: MLClient) -> None:
            from azure.ai.ml import load_job

            client.jobs.create_or_update(load_job(io.StringIO(dump(document))))

        self._call(act)

    def cancel(self, name: str) -> None:
        """Asks for the end of a job. Raises AzureRefused, RequestUnanswered."""
        self._call(lambda client: client.jobs.begin_cancel(name, polling=False))

    def delete(self, path: str, kind: tuple[str, str]) -> None:
        """Deletes one of the resources of `raw` by its id; one that is gone already is deleted. Raises AzureRefused (a
        machine has it, a lock), RequestUnanswered."""
        action = "&underlyingResourceAction=Delete" if kind == COMPUTES else ""
        url = f"{URL}{path}?api-version={kind[1]}{action}"
        try:
            self._call(lambda client: ask(self._manager(client), "DELETE", url, kind[1]))
        except AzureRefused as error:
            if error.status != 404:
                raise

    # requests

    def _read(self, ask: Callable[[MLClient], T]) -> T:
        end, pause = time.monotonic() + self.patience, 1.0
        while True:
            try:
                return self._call(ask)
            except RequestUnanswered:
                if time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 15.0)

    def _call(self, act: Callable[[MLClient], T]) -> T:
        try:
            from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

            client = self._client()
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(("azure", "six")):
                raise
            raise BadInput(
                f"backend `{names.NAME}` needs its SDK beside launcher, the extra `azure` (missing: {error.name}): "
                f"`{install(SDK)}`"
            ) from None
        try:
            return act(client)
        except ClientAuthenticationError as error:
            raise Unreachable(f"Azure gives this machine no login: {_first(error)}; {LOGIN}") from None
        except HttpResponseError as error:
            status, code = error.status_code or 0, str(getattr(error.error, "code", "") or "")
            if status in (401, 403):
                raise Unreachable(f"this login may not do that in {self.name}: {_first(error)}") from None
            if status == 0 or status >= 500 or status in (408, 429):
                raise RequestUnanswered(f"Azure ML fails: {_first(error)}") from None
            raise AzureRefused(status, code, _first(error)) from None
        except AzureError as error:
            if type(error).__module__.startswith("azure.ai.ml"):  # the SDK's own checks, before any request
                raise AzureRefused(400, type(error).__name__, _first(error)) from None
            raise RequestUnanswered(f"Azure ML does not answer: {_first(error)}") from None

    def _manager(self, client: MLClient) -> ARMPipelineClient:
        """The resource manager, asked with the login of `client`."""
        if self._arm is None:
            self._arm = pipeline(client._credential, {"retry_total": REPEATS})
        return self._arm

    def _client(self) -> MLClient:
        """One client for each workspace and login of this process."""
        if missing := [name for name, value in zip(names.PLACE, self.place, strict=True) if not value]:
            raise Unreachable(f"azureml.{missing[0]} is not set: write it into slipway.yaml")
        login = tuple(os.environ.get(name, "") for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "HTTPS_PROXY"))
        with _making:
            if (client := _clients.get((*self.place, *login))) is None:
                from azure.ai.ml import MLClient
                from azure.identity import DefaultAzureCredential

                settings: dict[str, Any] = {**TIMEOUTS, "retry_total": REPEATS, "enable_telemetry": False}
                client = _clients[(*self.place, *login)] = MLClient(DefaultAzureCredential(), *self.place, **settings)
                for logger in ("azure", "azure.ai.ml"):  # it prints what is experimental; errors are ours to tell
                    logging.getLogger(logger).setLevel(logging.CRITICAL)
            return client


def _job(job: Any) -> WorkspaceJob:
    resources = job.resources if hasattr(job, "resources") and job.resources is not None else {}
    created = getattr(job.creation_context, "created_at", None)
    runs = {
        "command": getattr(job, "command", ""),
        "environment": str(getattr(job, "environment", "")).rpartition(":")[2],
        "variables": dict(getattr(job, "environment_variables", None) or {}),
        "compute": str(job.compute or ""),
        "instance_type": str(resources.get("instance_type") or ""),
        "instances": resources.get("instance_count", 1),
    }
    return WorkspaceJob(
        name=str(job.name),
        status=str(getattr(job.status, "value", job.status)),
        properties=dict(job.properties or {}),
        runs=runs,
        created=created.timestamp() if created is not None else 0.0,
        studio=str(getattr(job, "studio_url", "") or ""),
    )


def _compute(compute: Any) -> WorkspaceCompute:
    least, state = getattr(compute, "min_instances", None), getattr(compute, "state", None)
    return WorkspaceCompute(
        name=str(compute.name),
        kind=str(compute.type or "").lower(),
        size=str(getattr(compute, "size", None) or ""),
        location=str(getattr(compute, "location", None) or ""),
        state=str(getattr(state, "value", state) or ""),
        least=least if isinstance(least, int) else 0,
        stops_after=str(getattr(compute, "idle_time_before_shutdown", None) or ""),
        tags=dict(getattr(compute, "tags", None) or {}),
    )


def _first(error: BaseException) -> str:
    """The first line of an error's message that says something."""
    lines = [each.strip() for each in str(error).splitlines()]
    said = [each for each in lines if each and not each.startswith(("DefaultAzureCredential failed", "Attempted"))]
    return line(said[0] if said else type(error).__name__)
