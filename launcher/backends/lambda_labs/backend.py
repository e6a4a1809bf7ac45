"""The Lambda backend (docs/explanation/lambda.md). It finds every machine again by its tags and by the records of its
launch in the store, so it keeps no state on this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from launcher.backends.abilities import BilledDisk, BilledOther
from launcher.backends.base import BackendObservation, BilledMachine, Handle, Rendered
from launcher.backends.lambda_labs import access, accounts, entering, names, processor, renewal
from launcher.backends.lambda_labs.api import LambdaApi
from launcher.backends.lambda_labs.ending import duplicates, end, expired, overdue, unlisted
from launcher.backends.lambda_labs.launching import Given, RunOver, Times, ensure, mine
from launcher.backends.lambda_labs.records import (
    GivenUp,
    as_recorded,
    given_up,
    record_end,
    recorded,
    restored,
    shown_in,
)
from launcher.backends.lambda_labs.render import MachineRequest, fetching, parse, render
from launcher.backends.lambda_labs.wire import CloudInstance
from launcher.backends.poll import follow, watch_runs
from launcher.errors import Conflict, NotFound, SlipwayError, Unreachable, refused
from launcher.protocol.read import read_run
from launcher.protocol.records import Placement
from launcher.reasons import Reason
from launcher.spec.hashing import decode_job, run_hash, run_id
from launcher.spec.model import ResolvedJob
from launcher.store import Store, open_store
from launcher.store.layout import RunKeys

POLL = 5  # intervals between two looks of `watch` and `logs`


class LambdaBackend:
    """Runs on machines of Lambda Cloud. `options`: the block; `store`: the URL of the run's store."""

    name = names.NAME

    def __init__(self, options: Mapping[str, object]) -> None:
        self.options: Mapping[str, Any] = options
        self.account = str(options.get("account", names.DEFAULT_ACCOUNT))
        fields = {name: float(str(options[name])) for name in Times.__dataclass_fields__ if name in options}
        self.times = Times(**fields)
        self._api: LambdaApi | None = None
        self._stores: dict[str, Store] = {}
        self._gone: set[str] = set()  # ids that were seen gone: they never come back
        self._listing: tuple[float, list[CloudInstance]] | None = None
        self._unlisted: list[CloudInstance] | None = None  # asked for once: a reaper's process is short
        self._untagged: dict[str, CloudInstance | None] = {}  # machines without our tags, as `restored` tells them
        self._lock = threading.Lock()

    @property
    def api(self) -> LambdaApi:
        if self._api is None:
            self._api = LambdaApi(interval=self.times.interval)
        return self._api

    @property
    def place(self) -> str:
        return f"Lambda, account {self.account}"

    def render(self, group: Sequence[ResolvedJob]) -> Rendered:
        return render(group)

    def check(self, group: Sequence[ResolvedJob]) -> None:
        """Asks, before anything is written, whether machines can reach the store, are large enough and have a
        processor for which the images are made. Raises BadInput, Unreachable."""
        access.check(group, self._folders)
        if not group:
            return
        offered = self.api.types()
        wrong = []
        for job in group:
            for name in job.options.get("instance_types", ()):
                if name not in offered:
                    allowed = ", ".join(sorted(offered))
                    wrong.append((job.name, f"lambda.instance_types: `{name}` is not offered; allowed: {allowed}"))
                    continue
                specs = offered[name].instance_type.specs
                for role, chosen in job.roles.items():
                    need = chosen.resources
                    for field, wanted, there in (
                        ("gpus", need.gpus, specs.gpus),
                        ("cpus", need.cpus, specs.vcpus),
                        ("memory", (need.memory or 0) / 2**30, specs.memory_gib),
                        ("disk", (need.disk or 0) / 2**30, specs.storage_gib),
                    ):
                        if wanted > there:
                            told = f"roles.{role}.resources.{field}: {name} has {there}; allowed: at most {there}"
                            wrong.append((job.name, told))
        wrong += [(job.name, line) for job in group if (line := renewal.unattended(job, self._store, self.account))]
        if wrong:
            raise refused(wrong)
        if wrong := [(job.name, line) for job in group for line in processor.refusals(job)]:
            raise refused(wrong)

    @property
    def _folders(self) -> Sequence[str]:
        return tuple(self.options.get("folders", ()))

    def submit(self, rendered: Rendered, group: Sequence[ResolvedJob]) -> Mapping[str, Handle]:
        jobs = {run_id(job): job for job in group}
        if unknown := sorted(set(rendered.objects) - set(jobs)):
            raise Conflict(f"{unknown[0]} is not a run of this submit")
        handles = {}
        for run, file_name in rendered.objects.items():
            file = parse(rendered.documents[file_name], file_name)
            if (file.run, file.fingerprint) != (run, run_hash(jobs[run])):
                raise Conflict(f"{file_name} does not carry {run} as it is submitted")
            access.check([jobs[run]], self._folders)
            if "waiting" in self.options:
                file = msgspec.structs.replace(file, wait=float(self.options["waiting"]))
            store = self._store(file.store)
            handles[run] = Handle(run, self.name, run, file.fingerprint, {"store": file.store})
            given = _given(jobs[run])
            with suppress(RunOver):  # then the handle names no machine, and the caller sees why in the store
                machines: list[CloudInstance] = []
                for each in file.machines:
                    beside = machines[0] if machines else None
                    machines.append(ensure(self.api, store, file, each, given, self.times, beside))
                handles[run] = self._handle(run, machines)
            self._forget()
        return handles

    # observing

    def find(self, runs: Collection[str]) -> Mapping[str, Handle]:
        """The runs that need no launch: every member has a machine, or the run was cancelled and one is left to end. A
        run of which one machine is missing counts as not there, so that submit launches what is missing."""
        handles = {}
        for run in runs:
            living = self._living(run)
            if not living:
                continue
            store = self._store(living[0].tag(names.STORE))
            body = store.read(RunKeys(run).job)
            members = decode_job(body[0]).members() if body is not None else ()
            whole = {each.tag(names.MEMBER) for each in living}.issuperset(members)
            if whole or store.head(RunKeys(run).cancel) is not None:
                handles[run] = self._handle(run, living)
        return handles

    def _living(self, run: str) -> list[CloudInstance]:
        """The run's machines that live: those that the list shows, and those that are known by their ids."""
        living = {each.id: each for each in mine(self._instances(), run) if each.living and each.id not in self._gone}
        url = next(iter(living.values())).tag(names.STORE) if living else str(self.options.get("store") or "")
        known = recorded(self._store(url), run) if url else {}
        for instance_id in {each for ids in known.values() for each in ids} - set(living):
            if (instance := self._instance(instance_id)) is not None:
                living[instance_id] = instance
        return mine(list(living.values()), run)

    def look_up(self, run: str) -> BackendObservation | None:
        living = [each for each in mine(self._instances(), run) if each.living and each.id not in self._gone]
        url = living[0].tag(names.STORE) if living else str(self.options.get("store") or "")
        if not living and url:  # a list may not show them yet, or somebody has edited their tags
            known = recorded(self._store(url), run)
            ids = [each for of_member in known.values() for each in of_member]
            living = sorted(self._recorded(run, url, known), key=lambda each: each.id)
            if not living:
                accounts.refuse_others(self.api, self._store(url), run)
            if ids and not living:
                handle = Handle(run, self.name, run, "", {"store": url})
                why = given_up(self._store(url), run)
                text = f"its machines were terminated: {', '.join(ids)}"
                reason, told = (why.reason, why.message) if why is not None else (Reason.INFRASTRUCTURE, text)
                return BackendObservation(handle, False, "gone", reason, told)
        return self._observe(run, living) if living else None

    def _recorded(self, run: str, url: str, known: Mapping[str, Sequence[str]]) -> list[CloudInstance]:
        """Those of a run's recorded machines that live. `known`: member -> ids."""
        asked = [(member, self._instance(each)) for member, ids in known.items() for each in ids]
        return [as_recorded(seen, run, member, url) for member, seen in asked if seen is not None]

    def part(self, run: str, job: ResolvedJob) -> BackendObservation | None:
        """A launch whose answer nobody recorded: a list may not show its machine yet."""
        if self._shown_in(run, job.store) <= 0.0:
            return None
        text = "a launcher asked for a machine and recorded no answer: it may still come"
        return BackendObservation(
            Handle(run, self.name, run, "", {"store": job.store}), True, "starting", evidence=text
        )

    def _shown_in(self, run: str, url: str) -> float:
        return shown_in(self._store(url), run, self.times.timeout + self.times.settle)

    def _observe(self, run: str, living: Sequence[CloudInstance]) -> BackendObservation:
        """The state of a run that has machines. It is active until it has its result: afterwards no runtime starts
        anything, but a machine is billed until somebody ends it."""
        handle = self._handle(run, living)
        if self._ended(handle):
            text = f"billed until `launcher reap` ends it: {', '.join(each.id for each in living)}"
            return BackendObservation(
                handle, active=False, phase="ended", evidence=text, billed=True, machines=_billed(living)
            )
        if (why := self._given_up(run, living)) is not None:
            return BackendObservation(
                handle, False, "ended", why.reason, why.message, billed=True, machines=_billed(living)
            )
        unhealthy = [each.id for each in living if each.status not in ("booting", "active")]
        return self._active(run, living, f"Lambda says that {unhealthy[0]} is not healthy" if unhealthy else "")

    def _given_up(self, run: str, living: Sequence[CloudInstance]) -> GivenUp | None:
        """Why no runtime can start on the machines of a member; None while each member has one that did not say so."""
        said: dict[str, list[GivenUp | None]] = {}
        for each in living:
            url, number = each.tag(names.STORE), each.tag(names.LAUNCH)
            why = given_up(self._store(url), run, [number]) if url and number else None
            said.setdefault(each.tag(names.MEMBER), []).append(why)
        return next((whys[0] for whys in said.values() if all(why is not None for why in whys)), None)

    def _active(self, run: str, living: Sequence[CloudInstance], evidence: str) -> BackendObservation:
        phase = "booting" if {each.status for each in living} == {"booting"} else "running"
        handle = self._handle(run, living)
        return BackendObservation(
            handle, active=True, phase=phase, evidence=evidence, billed=True, machines=_billed(living)
        )

    def _ended(self, handle: Handle) -> bool:
        url = handle.place.get("store", "")
        return bool(url) and self._store(url).head(RunKeys(handle.run).result) is not None

    def watch(self, handles: Collection[Handle], cursor: str | None) -> Iterator[BackendObservation]:
        """Changes of the runs, until none is active. It ends the machines of runs that have their result."""
        for seen in watch_runs(handles, self._present, lambda: time.sleep(POLL * self.times.interval)):
            yield seen
            if not seen.active and seen.phase == "ended":
                self.cancel([seen.handle])

    def _present(self, handle: Handle) -> BackendObservation:
        return self.look_up(handle.run) or BackendObservation(handle, active=False, phase="gone")

    def logs(self, handle: Handle, role: str, rank: int, previous: bool) -> Iterator[bytes]:
        store, poll = self._store(handle.place["store"]), POLL * self.times.interval
        return follow(store, handle.run, f"{role}-{rank}", previous, poll, self.look_up)

    def execute(self, run: str, member: str, command: Sequence[str], *, tty: bool) -> list[str]:
        return entering.execute(self._machine(run, member), command, tty=tty)

    def forward(self, run: str, member: str, ports: Sequence[tuple[int, int]]) -> list[str]:
        return entering.forward(self._machine(run, member), ports)

    def _machine(self, run: str, member: str) -> CloudInstance:
        living = self._living(run)
        if not living:
            if url := str(self.options.get("store") or ""):
                accounts.refuse_others(self.api, self._store(url), run)
            raise NotFound(f"{run}: it has no machine")
        view = read_run(self._store(living[0].tag(names.STORE)), run, full=False)
        return entering.machine_of(living, view, run, member)

    def mine(self) -> Iterator[BackendObservation]:
        unread: dict[str, str] = {}  # store -> why it cannot be read: nobody waits for it again
        for run, living in self._ours().items():
            url = living[0].tag(names.STORE)
            try:
                if url in unread:
                    raise Unreachable(unread[url])
                seen = self._observe(run, living)
                late = seen.evidence if seen.reason else ""
                late = late or (overdue(living, self._store) if seen.active else "")
            except (SlipwayError, OSError) as error:  # one run's store says nothing of the other runs
                if isinstance(error, Unreachable):
                    unread[url] = str(error)
                seen = self._active(run, living, f"what the store has of it cannot be read: {error}")
                late = expired(living, self.api.now())
            yield msgspec.structs.replace(seen, overdue=late)

    def disks(self) -> list[BilledDisk]:
        """The shared file systems. Nobody can tell whose they are: they have no tags."""
        return [
            BilledDisk(each.id, each.name, each.region.name, each.bytes_used, each.is_in_use)
            for each in self.api.file_systems()
        ]

    def others(self) -> list[BilledOther]:
        """The machines of the account that are not of a run of ours: started by hand, or by others."""
        return [
            BilledOther(
                f"machine {' '.join(filter(None, (each.name, each.id)))}",
                each.instance_type.name,
                each.region.name,
                1,
                each.instance_type.price_cents_per_hour,
                each.healthy_since or each.launched_before_health,
                "no run of this account's name has it: who started it can end it",
            )
            for each in self._instances()
            if each.living and not self._tagged(each) and self._restored(each) is None
        ]

    def _tagged(self, machine: CloudInstance) -> bool:
        return machine.tag(names.ACCOUNT) == self.account and bool(machine.tag(names.RUN))

    def _restored(self, machine: CloudInstance) -> CloudInstance | None:
        """A machine of ours that lost the tag of its run or account, as it was; None for a stranger's. Where the
        records cannot be read it is a stranger's, which nobody ends."""
        url = str(self.options.get("store") or "")
        if not url or (machine.tag(names.RUN) and machine.tag(names.ACCOUNT)):
            return None
        if machine.id not in self._untagged:
            try:
                self._untagged[machine.id] = restored(machine, self._store(url), url)
            except (SlipwayError, OSError):
                return None
        known = self._untagged[machine.id]
        return known if known is not None and self._tagged(known) else None

    def _ours(self) -> dict[str, list[CloudInstance]]:
        """Run -> its machines that live. Two witnesses: the list, and the audit events, which name a machine that the
        list does not show."""
        shown = self._instances()
        if self._unlisted is None:
            self._unlisted = unlisted(self.api, {each.id for each in shown}, time.time())
        living = {each.id: each for each in (*self._unlisted, *shown) if each.living and each.id not in self._gone}
        runs: dict[str, list[CloudInstance]] = {}
        for each in living.values():
            ours = each if self._tagged(each) else self._restored(each)
            if ours is not None:
                runs.setdefault(ours.tag(names.RUN), []).append(ours)
        return {run: mine(runs[run], run) for run in sorted(runs)}

    def end_duplicates(self, *, plan: bool) -> Iterator[tuple[str, str]]:
        for run, living in self._ours().items():
            if len({each.tag(names.MEMBER) for each in living}) == len(living):
                continue
            try:
                store = self._store(living[0].tag(names.STORE))
                idle = duplicates(living, read_run(store, run, full=False))
            except (SlipwayError, OSError):  # `mine` says so, if it is more than a run that nobody knows
                continue
            if idle and not plan:
                self._end(idle)
            for each in idle:
                yield run, f"machine {each.id} did no work: another one of {each.tag(names.MEMBER)} does"

    def renew(self, *, plan: bool) -> Iterator[tuple[str, str, bool]]:
        """Renews the credentials of runs that live longer than AWS lets them live, and leaves a mark that a reaper was
        here, without which submit takes no such run."""
        own = str(self.options.get("store") or "")
        yield from renewal.renew_all(self._ours(), self._store, self.account, own, plan=plan)

    def here(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        if placement is None:  # another account may have it
            return seen is not None
        return placement.kind == names.KIND and placement.where.partition("/")[0] == self.account

    def dead(self, placement: Placement | None, seen: BackendObservation | None) -> bool:
        """Whether every machine that was ever launched for the run is gone: Lambda has said so of each id."""
        return placement is not None and self.here(placement, seen) and seen is not None and seen.phase == "gone"

    # ending

    def cancel(self, handles: Collection[Handle]) -> None:
        """Terminates every machine of these runs, and returns when each was seen gone. One that a launcher asked for
        without an answer is waited for, until a list shows it. Raises Unreachable, after it ended what the list shows,
        where the records of a run cannot be read."""
        runs = {handle.run: handle for handle in handles}
        self._end_shown(runs)
        coming = [self._shown_in(run, url) for run, handle in runs.items() if (url := handle.place.get("store"))]
        if (pause := max(coming, default=0.0)) > 0.0:
            time.sleep(pause)
            self._end_shown(runs)

    def _end_shown(self, runs: Mapping[str, Handle]) -> None:
        shown = [each for each in self.api.instances() if each.tag(names.RUN) in runs]
        listed, trouble = {each.id for each in shown}, ""
        for run, handle in runs.items():
            try:
                if url := handle.place.get("store"):
                    known = recorded(self._store(url), run)
                    left = {member: [each for each in ids if each not in listed] for member, ids in known.items()}
                    shown += self._recorded(run, url, left)
            except (SlipwayError, OSError) as error:
                trouble = f"{run}: a machine that the list does not show may still live: {error}"
        self._end(shown)
        for run, handle in runs.items():
            with suppress(SlipwayError, OSError):  # what is left there ends by itself
                if url := handle.place.get("store"):
                    renewal.forget(self._store(url), run)
        if trouble:
            raise Unreachable(trouble)

    def _end(self, machines: Sequence[CloudInstance]) -> None:
        """Records the machines and since when they were billed, then terminates them until each was seen gone. Raises
        Unreachable, after their end, where the records cannot be written."""
        unrecorded = self._record([each for each in machines if each.living and each.tag(names.STORE)])
        ids = {each.id for each in machines} - self._gone
        end(self.api, ids, self.times.interval)
        self._gone |= ids
        self._forget()
        if again := self._record([each for each, _ in unrecorded]):
            machine, error = again[0]
            raise Unreachable(f"machine {machine.id} is ended, but what it cost is not recorded: {error}")

    def _record(self, machines: Sequence[CloudInstance]) -> list[tuple[CloudInstance, Exception]]:
        """Records when these machines end; those whose records cannot be written, with the reasons. They end all the
        same: a machine that lives costs more than a record that is missing."""
        unrecorded: list[tuple[CloudInstance, Exception]] = []
        for each in machines:
            try:
                record_end(self._store(each.tag(names.STORE)), each)
            except (SlipwayError, OSError) as error:
                unrecorded.append((each, error))
        return unrecorded

    # what is there

    def _handle(self, run: str, machines: Sequence[CloudInstance]) -> Handle:
        """The handle names the smallest id of each member."""
        place = {"store": machines[0].tag(names.STORE)}
        for each in sorted(machines, key=lambda each: (each.tag(names.MEMBER), each.id)):
            place.setdefault(each.tag(names.MEMBER), each.id)
        return Handle(run, self.name, run, machines[0].tag(names.FINGERPRINT), place)

    def _instances(self) -> list[CloudInstance]:
        """The account's machines; one list serves everybody who asks within an interval."""
        with self._lock:
            now = time.monotonic()
            if self._listing is None or now - self._listing[0] > self.times.interval:
                self._listing = time.monotonic(), self.api.instances()
            return self._listing[1]

    def _forget(self) -> None:
        with self._lock:
            self._listing = None

    def _instance(self, instance_id: str) -> CloudInstance | None:
        """A machine that lives, by its id."""
        if instance_id in self._gone:
            return None
        seen = self.api.instance(instance_id)
        if seen is None or not seen.living:
            self._gone.add(instance_id)
            return None
        return seen

    def _store(self, url: str) -> Store:
        if url not in self._stores:
            self._stores[url] = open_store(url)
        return self._stores[url]


def _given(job: ResolvedJob) -> Given:
    """What each launch of the job's machines is given. Raises Unreachable where there is no access to the store: now,
    and not after hours of waiting for capacity."""
    held = access.LaunchAccess(job)
    held.get()

    def given(machine: MachineRequest, number: str) -> tuple[MachineRequest, str]:
        variables = held.get()
        return fetching(machine, job, variables, number), msgspec.json.encode(variables).decode()

    return given


def _billed(living: Sequence[CloudInstance]) -> tuple[BilledMachine, ...]:
    return tuple(
        BilledMachine(
            each.id,
            each.tag(names.MEMBER),
            each.instance_type.name,
            each.region.name,
            each.instance_type.price_cents_per_hour,
            each.healthy_since or each.launched_before_health,
            bound=not each.healthy_since,
        )
        for each in living
    )
