"""The compute instances of runs on a pool: one for each member, with a name that follows from the run.

A name is a key: making an instance again makes none, so a run never has more of them than ranks, however often its
launchers die. Azure stops one that has no job, and the reaper deletes it once its run is over. An instance counts as
ours only where its tags and its name say the same run: both are looked at anew before it is deleted.

What one was billed for is written into the run's events: when it ran first, and before it is deleted, when that was.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from launcher.backends.azureml import names
from launcher.backends.azureml.resources import COMPUTES
from launcher.backends.azureml.workspace import AzureRefused, RequestUnanswered, Workspace
from launcher.backends.base import BilledMachine
from launcher.decoding import decode_record
from launcher.errors import Conflict, NotMadeYet, Unreachable
from launcher.protocol.records import Event
from launcher.results.run_cost import AT, ENDING, HANDLE, HEALTHY, INSTANCE, REGION, STATE, TYPE
from launcher.safe_text import line
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.wait_hint import LongWait

READY: Final = 2700.0  # seconds that a submit waits for its instances
ENDED: Final = 900.0  # seconds that a cancel waits until they are gone
ASK_AGAIN: Final = 6  # looks between two requests to delete
RUNNING: Final = ("Running", "JobRunning")
SPOILED: Final = ("CreateFailed", "SetupFailed", "UserSetupFailed", "Unusable")
LAUNCHED: Final = "launched"


@dataclass(frozen=True)
class PoolInstance:
    """An instance of ours. `since`: when it was made, or started last; `changed`: when its last operation was; both in
    seconds since the epoch, 0 unknown; `why`: Azure's words on why it failed."""

    id: str
    name: str
    member: str
    size: str
    region: str
    state: str
    made: float
    since: float
    changed: float
    tags: Mapping[str, str]
    why: str = ""

    @property
    def run(self) -> str:
        return self.tags[names.TAG]

    @property
    def billed(self) -> bool:
        """Its processor is: a stopped one costs its disk and its address only."""
        return self.state not in ("Stopped", *SPOILED)

    @property
    def key(self) -> str:
        """What tells it from another one of its name, made after it was deleted."""
        return f"{self.name}/{self.made:.0f}"

    @property
    def overdue(self) -> str:
        """Why it must end whatever its run does; "" if it may go on."""
        most = self.tags.get(names.MOST, "")
        if not self.billed or not self.since or not most.isdecimal():
            return ""
        runs = time.time() - self.since
        if runs <= int(most):
            return ""
        return f"{self.name} has run for {runs / 3600:.1f} h, and may for {int(most) / 3600:.1f} h"

    def machine(self) -> BilledMachine:
        return BilledMachine(self.name, self.member, self.size, self.region, since=self.since, key=self.key)


def ours(body: Mapping[str, Any], workspace: str) -> PoolInstance | None:
    """An instance as a launcher made it; None for a stranger's, whatever its tags say."""
    tags = {str(key): str(value) for key, value in (body.get("tags") or {}).items()}
    given, name = body.get("properties") or {}, str(body.get("name", ""))
    inner = given.get("properties") or {}
    run, member = tags.get(names.TAG, ""), tags.get(names.MEMBER, "")
    if str(given.get("computeType", "")).lower() != "computeinstance" or not tags.get(names.OWNER):
        return None
    if not run or not member or name != names.instance_name(workspace, run, member):
        return None
    last = inner.get("lastOperation") or {}
    made, changed = _epoch(given.get("createdOn")), _epoch(last.get("operationTime"))
    return PoolInstance(
        id=str(body.get("id", "")),
        name=name,
        member=member,
        size=str(inner.get("vmSize", "")),
        region=str(body.get("location", "")),
        state=str(inner.get("state") or ""),
        made=made,
        since=changed if last.get("operationName") in ("Start", "Restart") else made,
        changed=changed,
        tags=tags,
        why=_why(given),
    )


def _why(given: Mapping[str, Any]) -> str:
    faults = [each.get("error") or {} for each in given.get("provisioningErrors") or ()]
    return "; ".join(line(f"{each.get('message', '')} ({each.get('code', '')})") for each in faults)


def _epoch(text: object) -> float:
    """A time as Azure writes it, with up to 7 digits of a second; 0.0 where it says none."""
    try:
        return datetime.fromisoformat(
            re.sub(r"(\.\d{6})\d+", r"\1", str(text or "")).replace("Z", "+00:00")
        ).timestamp()
    except ValueError:
        return 0.0


class PoolRun(NamedTuple):
    """A run whose instances are to end."""

    run: str
    members: Sequence[str]
    store: str


class InstancePool:
    """The instances in a workspace. `poll`: seconds between two looks. `waiting`: seconds that a submit waits for its
    instances."""

    def __init__(self, workspace: Workspace, poll: float, waiting: float = READY) -> None:
        self.workspace, self.poll, self.waiting = workspace, poll, waiting

    def all(self) -> Iterator[PoolInstance]:
        """Those of all runs."""
        for body in self.workspace.raw(COMPUTES):
            if (found := ours(body, self.workspace.name)) is not None:
                yield found

    def get(self, name: str) -> PoolInstance | None:
        """None where there is none of ours."""
        body = self.workspace.instance(name)
        return ours(body, self.workspace.name) if body is not None else None

    def of(self, run: str, members: Sequence[str], store: str) -> list[PoolInstance]:
        """Those of a run."""
        found = (self.get(names.instance_name(self.workspace.name, run, member)) for member in members)
        return [each for each in found if each is not None and _belongs(each, run, store)]

    # making

    def ready(self, documents: Sequence[Mapping[str, Any]], store: Callable[[], Store]) -> None:
        """Makes the instances that are missing, starts those that were stopped, and returns when all run. Raises
        Conflict, Unreachable, NotMadeYet, AzureRefused."""
        seen: set[str] = set()
        end, wait = time.monotonic() + self.waiting, LongWait()
        while True:  # all in one look: the first may have been idle for long when the last one runs
            found = [self._step(document, seen) for document in documents]
            running = [each for each in found if each is not None]
            if len(running) == len(found):
                break
            if time.monotonic() > end:
                late = [document["name"] for document, each in zip(documents, found, strict=True) if each is None]
                raise NotMadeYet(
                    f"{', '.join(late)}: {self.waiting / 60:.0f} min after it was asked for, it does not run: submit "
                    "again, nothing is made twice; or end it with `launcher cancel`"
                )
            run = documents[0]["tags"][names.TAG]
            wait.tell(f"{run} waits for its instances, some minutes: {len(running)} of {len(found)} run")
            time.sleep(self.poll)
        for each in running:
            record(store(), each, LAUNCHED)

    def _step(self, document: Mapping[str, Any], seen: set[str]) -> PoolInstance | None:
        """One look, and what follows from it; the instance if it runs. `seen`: those that were there before. Nothing is
        deleted here: a launcher that slept may have seen another one than that of today."""
        name, tags = document["name"], dict(document["tags"])
        body = self.workspace.instance(name)
        there = ours(body, self.workspace.name) if body is not None else None
        if body is not None and (there is None or there.tags != tags or there.size.lower() != document["size"].lower()):
            raise Conflict(f"the workspace has another compute instance under the name {name}")
        if there is None or there.state == "Deleting":
            if name in seen:
                raise Unreachable(f"{name} was deleted while it was made: see `launcher status`, then submit again")
            if there is None:
                self._ask(lambda: self.workspace.make_instance(document), name)
            return None
        seen.add(name)
        if there.state in SPOILED:
            run = tags[names.TAG]
            raise Unreachable(
                f"Azure could not make {name}: {there.why or there.state}. End it, and the others of its run, with "
                f"`launcher cancel {run}`, then `launcher retry {run}`"
            )
        if there.state == "Stopped":
            self._ask(lambda: self.workspace.start_instance(name), name)
        return there if there.state in RUNNING else None

    def _ask(self, request: Callable[[], None], name: str) -> None:
        """A request that the next look judges: another launcher may have been faster, or its answer is lost."""
        try:
            request()
        except RequestUnanswered:
            return
        except AzureRefused as error:
            if self.workspace.instance(name) is None:
                raise Unreachable(f"Azure makes no instance {name}: {error}") from None

    # ending

    def end(self, runs: Sequence[PoolRun], opened: Callable[[str], Store]) -> None:
        """Deletes the instances of runs, all at once, and returns when all are gone. Raises Unreachable."""
        end, looks, trouble, wait = time.monotonic() + ENDED, 0, "", LongWait()
        told = ", ".join(one.run for one in runs)
        while left := [(each, one.store) for one in runs for each in self.of(one.run, one.members, one.store)]:
            if looks % ASK_AGAIN == 0:
                for each, store in left:
                    if each.state == "Deleting":
                        continue
                    try:
                        record(opened(store), each, ENDING)
                        self.workspace.delete(each.id, COMPUTES)
                    except (AzureRefused, RequestUnanswered) as error:  # it may be gone: look again
                        trouble = f": {error}"
            if time.monotonic() > end:
                raise Unreachable(f"{left[0][0].name} is there {ENDED / 60:.0f} min after it was deleted{trouble}")
            if looks:
                wait.tell(f"waits until Azure has deleted the instances of {told}, some minutes: {len(left)} left")
            time.sleep(self.poll)
            looks += 1


def _belongs(each: PoolInstance, run: str, store: str) -> bool:
    return each.run == run and each.tags[names.OWNER].rstrip("/") == store.rstrip("/")


def record(store: Store, instance: PoolInstance, state: str) -> None:
    """Writes once into the run's events that an instance runs, or is about to be deleted, and since when. Raises
    Unreachable."""
    writer = f"{names.NAME}-{instance.member}"
    keys, last = RunKeys(instance.run), -1
    for meta in list(store.scan(f"{keys.events}0-{writer}-")):
        stored = store.read(meta.key)
        if stored is None:
            continue
        event = decode_record(meta.key, stored[0], Event)
        last = max(last, event.seq)
        if (event.fields.get(STATE), event.fields.get(INSTANCE)) == (state, instance.key):
            return
    now = time.time()
    ended = instance.changed if instance.state == "Stopped" and instance.changed else now
    fields = {STATE: state, INSTANCE: instance.key, "member": instance.member}
    fields |= {TYPE: instance.size, REGION: instance.region, HEALTHY: f"{instance.made:.0f}"}
    if state == ENDING:
        fields[AT] = f"{ended:.0f}"
    did = "is deleted" if state == ENDING else "runs"
    text = f"{instance.run} {instance.member}: compute instance {instance.name} {did}"
    event, seq = Event(0, writer, 0, HANDLE, text, fields, now), last
    while True:  # another writer may have the number
        seq += 1
        if store.create(keys.event(0, writer, seq), msgspec.json.encode(replace(event, seq=seq))):
            return


def by_run(instances: Collection[PoolInstance]) -> dict[str, list[PoolInstance]]:
    found: dict[str, list[PoolInstance]] = {}
    for each in sorted(instances, key=lambda each: each.name):
        found.setdefault(each.run, []).append(each)
    return found
