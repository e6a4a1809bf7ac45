"""The Azure ML backend (docs/explanation/azure.md). It finds every job again by its name, so it keeps no state on this
machine."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from launcher.backends.abilities import BilledDisk, BilledOther
from launcher.backends.azureml import names, rest
from launcher.backends.azureml.pool import READY, InstancePool, PoolInstance, PoolRun, by_run, ours
from launcher.backends.azureml.render import COMMAND, INSTANCE, parse, render
from launcher.backends.azureml.resources import ADDRESSES, DISKS
from launcher.backends.azureml.unused import end_unused, overdue
from launcher.backends.azureml.workspace import (
    PATIENCE,
    AzureRefused,
    RequestUnanswered,
    Workspace,
    WorkspaceCompute,
    WorkspaceJob,
    described,
)
from launcher.backends.base import BackendObservation, Handle, Rendered
from launcher.backends.poll import follow, watch_runs
from launcher.errors import BadInput, Conflict, SlipwayError, Unreachable, refused
from launcher.protocol.records import Placement
from launcher.reasons import Reason
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import ResolvedJob
from launcher.store import Store, open_store

POLL: Final = 10.0  # seconds between two looks of `watch` and `logs`
TRIES: Final = 3  # to create a job, after answers that say nothing
ENDING: Final = 600.0  # seconds that a cancelled job may take to end
ASK_AGAIN: Final = 6  # looks between two requests to cancel
_PHASES: Final = {"Running": "running", "CancelRequested": "stopping", "Finalizing": "stopping"}


class AzureBackend:
    """Runs as jobs of a workspace. `options`: the block; `store`: the URL of the run's store."""

    name = names.NAME

    def __init__(self, options: Mapping[str, object]) -> None:
        self.options: Mapping[str, Any] = options
        self.poll = float(str(options.get("poll", POLL)))
        self.workspace = Workspace(options, float(str(options.get("patience", PATIENCE))))
        self.pool = InstancePool(self.workspace, self.poll, float(str(options.get("waiting", READY))))
        self._stores: dict[str, Store] = {}
        self._unlisted = ""

    @property
    def place(self) -> str:
        return f"Azure ML, workspace {self.workspace.name}"

    def render(self, group: Sequence[ResolvedJob]) -> Rendered:
        return render(group)

    def check(self, group: Sequence[ResolvedJob]) -> None:
        """Asks, before anything is written, whether the nodes can reach the store and whether there are enough. Raises
        BadInput, Unreachable."""
        wrong = []
        folders = tuple(self.options.get("folders", ()))
        for job in group:
            scheme, _, path = job.store.partition("://")
            if scheme == "file" and not any(f"{path}/".startswith(f"{folder}/") for folder in folders):
                wrong.append((job.name, f"store: a node does not see {job.store}; allowed: az://CONTAINER/PREFIX"))
        wanted = [(job, job.options["compute"]) for job in group if "compute" in job.options]
        most = {compute: self.workspace.nodes(compute) for compute in {compute for _, compute in wanted}}
        for job, compute in wanted:
            there, needed = most[compute], max(role.replicas for role in job.roles.values())
            if there is None:
                allowed = f"a cluster of {self.workspace.name}"
                wrong.append((job.name, f"azureml.compute: there is no cluster `{compute}`; allowed: {allowed}"))
            elif needed > there:
                wrong.append((job.name, f"replicas: `{compute}` has at most {there} nodes; allowed: {there} or fewer"))
        if wrong:
            raise refused(wrong)

    def submit(self, rendered: Rendered, group: Sequence[ResolvedJob]) -> Mapping[str, Handle]:
        jobs = {run_id(job): job for job in group}
        if unknown := sorted(set(rendered.objects) - set(jobs)):
            raise Conflict(f"{unknown[0]} is not a run of this submit")
        handles = {}
        for run, file_name in rendered.objects.items():
            job, documents = jobs[run], parse(rendered.documents[file_name], file_name)
            jobs_of_run = [each for each in documents if each["type"] == COMMAND]
            expected = {(name, run, run_hash(job)) for name in names.job_names(job, run)}
            carried = {
                (each["name"], each["properties"].get(names.RUN), each["properties"].get(names.FINGERPRINT))
                for each in jobs_of_run
            }
            if carried != expected:
                raise Conflict(f"{file_name} does not carry {run} as it is submitted")
            self._can_begin(run, jobs_of_run, job.store)
            if "pool" in job.options:
                self._ready(run, jobs_of_run, [each for each in documents if each["type"] == INSTANCE], job.store)
            for document in jobs_of_run:
                self._ensure(document)
            handles[run] = self._handle(run, jobs_of_run[-1]["properties"])
        return handles

    def _can_begin(self, run: str, documents: Sequence[Mapping[str, Any]], store: str) -> None:
        """Raises Conflict for a run of several jobs of which one was never sent, where another has ended, or has waited
        so long for it that its limit may end it first: the names of jobs are used once, so the missing one would wait,
        and be billed, for nodes that never come. Raises Unreachable when the store cannot be read."""
        if len(documents) == 1:
            return
        there = {each["name"]: self.workspace.get(each["name"]) for each in documents}
        ended = [name for name, job in there.items() if job is not None and not job.active]
        unsent = [name for name, job in there.items() if job is None]
        again = f"end it with `launcher cancel {run}`, then `launcher retry {run}`"
        if ended and unsent:
            raise Conflict(
                f"{run}: its job {ended[0]} has ended before {unsent[0]} was sent, so it cannot begin any more: {again}"
            )
        if unsent and len(unsent) < len(there) and (late := overdue(self._store(store), run, "", unsent[0])):
            raise Conflict(f"{run}: {late}, so their nodes may end before it starts: {again}")

    def _ready(
        self, run: str, jobs: Sequence[Mapping[str, Any]], instances: Sequence[Mapping[str, Any]], store: str
    ) -> None:
        """Waits until an instance runs for every job that was not sent. A run whose leading job is there has begun: its
        instances may be gone again."""
        if self.workspace.get(run) is not None:
            return
        unsent = {each["compute"].removeprefix("azureml:") for each in jobs if self.workspace.get(each["name"]) is None}
        mine = {names.instance_name(self.workspace.name, run, each["tags"][names.MEMBER]) for each in instances}
        if not unsent <= mine or {each["tags"][names.TAG] for each in instances} != {run}:
            raise Conflict(f"what was rendered of {run} does not carry its instances")
        self.pool.ready([each for each in instances if each["name"] in unsent], partial(self._store, store))

    def _ensure(self, document: Mapping[str, Any]) -> None:
        """Creates a job, or finds it there. Raises BadInput, Conflict, Unreachable."""
        name = document["name"]
        for _ in range(TRIES):
            if (there := self.workspace.get(name)) is not None:
                return _must_be(document, there)
            try:
                return self.workspace.create(document)
            except RequestUnanswered:
                time.sleep(min(1.0, self.poll))
            except AzureRefused as error:
                # another launcher may have created it between the question and the request
                if (there := self.workspace.get(name)) is not None:
                    return _must_be(document, there)
                raise BadInput(f"{name}: {error}") from None
        if (there := self.workspace.get(name)) is not None:
            return _must_be(document, there)
        raise Unreachable(f"{name}: Azure ML does not say whether it has the job: submit again, nothing runs twice")

    # observing

    def look_up(self, run: str) -> BackendObservation | None:
        leader = self.workspace.get(run)
        if leader is None or leader.properties.get(names.RUN) != run:
            return None
        return self._observe(run, [leader, *self._others(leader)])

    def stranded(self, run: str, job: ResolvedJob) -> BackendObservation | None:
        """The jobs of a run of several roles, all ended, whose leading one nobody sent. A launcher that is about to
        send it begins nothing either: the nodes end when they see the run's result."""
        there = self._sent(run, [name for name in names.job_names(job, run) if name != run])
        if not there or any(seen.active for seen in there):
            return None
        if self.workspace.get(run) is not None:
            return None  # it was sent before they ended: the next look sees it
        observation = self._observe(run, there)
        why = f"{there[0].name} has ended ({there[0].status}) before {run} was sent, so the run cannot begin any more"
        return replace(observation, reason=str(Reason.INFRASTRUCTURE), evidence=f"{why}: {there[0].studio}")

    def part(self, run: str, job: ResolvedJob) -> BackendObservation | None:
        """The run's jobs, whether the leading one was sent or not, and on a pool its instances, which outlive them."""
        there = self._sent(run, sorted(names.job_names(job, run), key=lambda name: (name != run, name)))
        made = self.pool.of(run, job.members(), job.store) if "pool" in job.options else []
        if there:
            return _with_instances(self._observe(run, there), made)
        return self._only_instances(made, active=True) if made else None

    def _only_instances(self, made: Sequence[PoolInstance], *, active: bool) -> BackendObservation:
        """Instances of a run of which no job was sent. `active`: one may come."""
        first = made[0]
        tags = first.tags
        properties = {names.RANKS: tags.get(names.POOL_RANKS, ""), names.LEADING: tags.get(names.POOL_LEADING, "")}
        properties |= {names.STORE: tags[names.OWNER], names.FINGERPRINT: tags.get(names.POOL_JOB, "")}
        seen = BackendObservation(self._handle(first.run, properties), active, "starting", made=first.made)
        return _with_instances(replace(seen, evidence="no job was sent to its instances"), made)

    def _sent(self, run: str, wanted: Sequence[str]) -> list[WorkspaceJob]:
        """The jobs of these names that the workspace has, none of a stranger."""
        found = map(self.workspace.get, wanted)
        return [seen for seen in found if seen is not None and seen.properties.get(names.RUN) == run]

    def _others(self, leader: WorkspaceJob) -> Iterator[WorkspaceJob]:
        """The jobs of the other roles, which were created before the leading one's."""
        for name in self._job_names(self._handle(leader.name, leader.properties)):
            if name != leader.name and (job := self.workspace.get(name)) is not None:
                yield job

    def _observe(self, run: str, jobs: Sequence[WorkspaceJob]) -> BackendObservation:
        """`jobs`: of the run's roles; the first decides how it is described."""
        first = jobs[0]
        handle = self._handle(run, first.properties)
        made = first.created
        active = [job for job in jobs if job.active]
        if active:
            shown = first if first.active else active[0]
            phase = _PHASES.get(shown.status, "queued" if shown.status in ("NotStarted", "Queued") else "starting")
            silent = f"Azure ML says that {shown.name} does not respond" if shown.status == "NotResponding" else ""
            return BackendObservation(handle, True, phase, evidence=silent, made=made, billed=True)
        reason = "" if first.status == "Completed" else str(Reason.INFRASTRUCTURE)
        text = f"Azure ML says {first.status}: {first.studio}"
        return BackendObservation(handle, False, "ended", reason, text, made=made)

    def watch(self, handles: Collection[Handle], cursor: str | None) -> Iterator[BackendObservation]:
        return watch_runs(handles, self._present, lambda: time.sleep(self.poll))

    def _present(self, handle: Handle) -> BackendObservation:
        return self.look_up(handle.run) or BackendObservation(handle, active=False, phase="gone")

    def logs(self, handle: Handle, role: str, rank: int, previous: bool) -> Iterator[bytes]:
        store = self._store(handle.place["store"])
        return follow(store, handle.run, f"{role}-{rank}", previous, self.poll, self.look_up)

    def mine(self) -> Iterator[BackendObservation]:
        runs: dict[str, list[WorkspaceJob]] = {}
        for job in self.workspace.jobs():
            if run := job.properties.get(names.RUN):
                runs.setdefault(run, []).append(job)
        pooled = {run for run, jobs in runs.items() if any(job.properties.get(names.RANKS) for job in jobs)}
        for run in runs:
            if run not in pooled:
                yield self._listed(run, runs[run])
        made: dict[str, list[PoolInstance]] = {}
        self._unlisted = ""
        try:
            made = by_run(list(self.pool.all()))
        except SlipwayError as error:  # it hides no job; `end_unused` tells it, and `others` asks again
            self._unlisted = f"compute instances of runs cannot be listed, so none is ended: {error}"
        for run in sorted(pooled):
            yield _with_instances(self._listed(run, runs[run]), made.get(run, ()))
        for run in sorted(set(made) - set(runs)):
            yield self._only_instances(made[run], active=False)

    def _listed(self, run: str, jobs: list[WorkspaceJob]) -> BackendObservation:
        """A run of whose jobs a list told."""
        jobs.sort(key=lambda job: (job.name != run, job.name))
        seen = self._observe(run, jobs)
        if not seen.active:
            return seen
        statuses = {job.status for job in jobs if job.active}
        status = statuses.pop() if len(statuses) == 1 else ""
        evidence, late = seen.evidence, ""
        try:
            late = overdue(self._store(seen.handle.place["store"]), run, status, self._unsent(seen.handle, jobs))
        except (SlipwayError, OSError) as error:  # one run's store says nothing of the other runs
            evidence = f"what the store has of it cannot be read: {error}"
        return BackendObservation(
            seen.handle, True, seen.phase, evidence=evidence, made=seen.made, billed=True, overdue=late
        )

    def disks(self) -> list[BilledDisk]:
        """The disks of the resource group. Those of compute instances are not among them: Azure keeps them elsewhere,
        and they end with their instance."""
        return [
            BilledDisk(each.id, each.name, each.location, each.size or None, each.used)
            for each in self.workspace.loose(DISKS)
        ]

    def others(self) -> list[BilledOther]:
        """Compute instances of no run of ours, the nodes that clusters keep without a job, and public addresses that no
        machine has. A run's own instance is among them once it is stopped: its disk is billed."""
        found = []
        for each in self.workspace.computes():
            command = f"--name {each.name} --resource-group {self.workspace.place[1]} -w {self.workspace.place[2]}"
            if each.kind == "amlcompute" and each.least:
                why = f"it keeps them without a job: `az ml compute update --min-instances 0 {command}`"
                found.append(BilledOther(f"cluster {each.name}", each.size, each.location, each.least, why=why))
            elif each.kind == "computeinstance":
                stopped = each.state.lower() == "stopped"
                if not stopped and _is_ours(each, self.workspace.name):
                    continue
                found.append(
                    BilledOther(
                        f"compute instance {each.name}",
                        each.size,
                        each.location,
                        0 if stopped else 1,
                        why=_why_billed(each, command, stopped),
                    )
                )
        for address in self.workspace.loose(ADDRESSES):
            if not address.used:
                why = f"no machine has it: `az network public-ip delete --ids {address.id}`"
                found.append(BilledOther(f"address {address.name}", "", address.location, 0, why=why))
        return found

    def end_unused(self, store: Store, *, plan: bool) -> Iterator[tuple[str, str]]:
        if self._unlisted:
            yield "unreachable", self._unlisted
        yield from end_unused(self.workspace, store, plan=plan)

    def _unsent(self, handle: Handle, jobs: Sequence[WorkspaceJob]) -> str:
        """The name of a job of the run that the workspace does not have; "" if it has all. `jobs`: those of its list,
        which may not show the newest."""
        absent = set(self._job_names(handle)) - {job.name for job in jobs}
        return next((name for name in sorted(absent) if self.workspace.get(name) is None), "")

    def here(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        if placement is None:  # another workspace may have it
            return seen is not None
        return placement.kind == names.KIND and placement.where.startswith(f"{self.workspace.name}/")

    def dead(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        """Whether Azure ML says of all jobs of the run that they have ended. It never starts them again."""
        return placement is not None and self.here(placement, seen) and seen is not None and seen.phase == "ended"

    # ending

    def cancel(self, handles: Collection[Handle]) -> None:
        """Cancels the jobs of these runs, deletes the instances of those on a pool, and returns when all of it was seen
        ended and gone."""
        on_pools = [
            PoolRun(handle.run, names.pool_members(ranks, handle.place.get("leading", "")), handle.place["store"])
            for handle in handles
            if (ranks := handle.place.get("ranks"))
        ]
        try:
            self._cancel({name for handle in handles for name in self._job_names(handle)})
        except SlipwayError:  # a job that does not end keeps no instance
            self.pool.end(on_pools, self._store)
            raise
        self.pool.end(on_pools, self._store)

    def _cancel(self, jobs: Collection[str]) -> None:
        left = set(jobs)
        end, looks, trouble = time.monotonic() + ENDING, 0, ""
        while left := {name for name in left if (job := self.workspace.get(name)) is not None and job.active}:
            if looks % ASK_AGAIN == 0:
                for name in sorted(left):
                    try:
                        self.workspace.cancel(name)
                    except (AzureRefused, RequestUnanswered) as error:  # it may have ended meanwhile: look again
                        trouble = f": {error}"
            elif time.monotonic() > end:
                raise Unreachable(f"job {min(left)} has not ended {ENDING / 60:.0f} min after its cancel{trouble}")
            else:
                time.sleep(self.poll)
            looks += 1

    def _job_names(self, handle: Handle) -> list[str]:
        leading = handle.place.get("leading", "")
        if ranks := handle.place.get("ranks"):
            leader, *others = names.pool_members(ranks, leading)
            return [names.job_name(handle.run, member, leader) for member in (leader, *others)]
        roles = [role for role in handle.place.get("roles", "").split(",") if role]
        return [names.job_name(handle.run, role, leading) for role in roles] or [handle.run]

    def _handle(self, run: str, properties: Mapping[str, str]) -> Handle:
        roles = properties.get(names.ROLES, "")
        place = {"workspace": self.workspace.name, "store": properties.get(names.STORE, ""), "roles": roles}
        place["leading"] = properties.get(names.LEADING, "")
        if ranks := properties.get(names.RANKS):
            place["ranks"] = ranks
        return Handle(run, self.name, run, properties.get(names.FINGERPRINT, ""), place)

    def _store(self, url: str) -> Store:
        if url not in self._stores:
            self._stores[url] = open_store(url)
        return self._stores[url]


def _with_instances(seen: BackendObservation, made: Sequence[PoolInstance]) -> BackendObservation:
    """`made`: the instances of its run, which somebody must delete."""
    late = next(filter(None, (each.overdue for each in made)), "")
    machines = tuple(each.machine() for each in made if each.billed)
    return replace(seen, billed=seen.billed or bool(made), overdue=seen.overdue or late, machines=machines)


def _is_ours(each: WorkspaceCompute, workspace: str) -> bool:
    body = {"name": each.name, "tags": each.tags, "properties": {"computeType": each.kind}}
    return ours(body, workspace) is not None


def _why_billed(instance: WorkspaceCompute, command: str, stopped: bool) -> str:
    if stopped:
        return f"stopped; its disk and address are still billed: `az ml compute delete {command}`"
    if instance.stops_after:
        return f"{instance.state or 'in no known state'}; stops when it was idle for {instance.stops_after}"
    return f"{instance.state or 'in no known state'}; nothing stops it: `az ml compute stop {command}`"


def _must_be(document: Mapping[str, Any], there: WorkspaceJob) -> None:
    """Raises Conflict unless the job that is there is the rendered one and runs the same."""
    name, properties = document["name"], document["properties"]
    if there.properties.get(names.FINGERPRINT) != properties[names.FINGERPRINT]:
        raise Conflict(f"the workspace has another job under the name {name}")
    ours = described(document, rest.environment_version(document["environment"]["image"]))
    if different := sorted(field for field, value in ours.items() if there.runs.get(field) != value):
        raise Conflict(f"job {name} does not run what its job says: another {' and '.join(different)}")
