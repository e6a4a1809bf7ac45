"""What the store knows of a run's machines: an event before each launch, and one after it with the machine's id or
the refusal. A launch without an answer may have made a machine that no list shows yet. Before a machine is terminated
an event says since when it was billed: later nobody can ask."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from launcher.backends.lambda_labs.names import (
    ACCOUNT,
    EXPIRES,
    MACHINE,
    MEMBER,
    NAME,
    RUN,
    STORE,
    account_of,
    lifetime,
)
from launcher.backends.lambda_labs.names import LAUNCHED as LAUNCHED_AT
from launcher.backends.lambda_labs.wire import CloudInstance, InstanceTag
from launcher.decoding import decode_record
from launcher.protocol.records import Event
from launcher.reasons import Reason, named
from launcher.spec.hashing import decode_job
from launcher.store.base import Store
from launcher.store.layout import RunKeys

KIND: Final = "handle"
NAMED: Final = r"([a-z0-9][a-z0-9-]*-[0-9a-f]{12})-(.+-\d+)"  # a machine's name: run, member
ASKED, LAUNCHED, REFUSED, ENDING = "asked", "launched", "refused", "ending"
# fields of LAUNCHED and ENDING events: the instance's type, region and cents an hour; of ENDING also, in seconds since
# the epoch, when it passed its first health check ("0": not yet, or unknown) and when it was told to end
TYPE, REGION, PRICE, HEALTHY, AT = "type", "region", "cents_per_hour", "first_healthy", "at"
BOOTING: Final = "booting"  # of ENDING: it had passed no health check, so it was not billed


@dataclass(frozen=True)
class LaunchRecord:
    """One event. `modified`: by the store's clock."""

    seq: int
    state: str
    instance: str
    modified: float


class MachineRecords:
    """The records of one member's machines, in order."""

    def __init__(self, store: Store, run: str, member: str) -> None:
        self.store, self.run, self.member = store, run, member
        self.records = list(_read(store, run, member))

    @property
    def ids(self) -> list[str]:
        """Every machine that was launched, the newest last."""
        return [record.instance for record in self.records if record.state == LAUNCHED]

    @property
    def unanswered(self) -> LaunchRecord | None:
        """The launch whose answer nobody has recorded."""
        last = next((record for record in reversed(self.records) if record.state != ENDING), None)
        return last if last is not None and last.state == ASKED else None

    def add(self, state: str, message: str, instance: str = "", **more: str) -> None:
        """`more`: further fields of the event. Raises Unreachable."""
        seq = self.records[-1].seq + 1 if self.records else 0
        writer = _writer(self.member)
        while True:
            fields = {"state": state, "member": self.member, **({"instance": instance} if instance else {}), **more}
            event = Event(0, writer, seq, KIND, message, fields, time.time())
            if self.store.create(RunKeys(self.run).event(0, writer, seq), msgspec.json.encode(event)):
                break
            seq += 1
        self.records.append(LaunchRecord(seq, state, instance, self.store.now()))


def _writer(member: str) -> str:
    return f"{NAME}-{member}"


def _read(store: Store, run: str, member: str) -> Iterator[LaunchRecord]:
    prefix = f"{RunKeys(run).events}0-{_writer(member)}-"
    for meta in list(store.scan(prefix)):
        answer = store.read(meta.key)
        if answer is not None:
            event = decode_record(meta.key, answer[0], Event)
            if event.fields.get("member") == member:
                yield LaunchRecord(
                    event.seq, event.fields.get("state", ""), event.fields.get("instance", ""), meta.modified
                )


def recorded(store: Store, run: str) -> dict[str, list[str]]:
    """Member -> the ids of every machine that was launched for it."""
    ids: dict[str, list[str]] = {}
    for meta in list(store.scan(f"{RunKeys(run).events}0-{NAME}-")):
        answer = store.read(meta.key)
        if answer is not None:
            fields = decode_record(meta.key, answer[0], Event).fields
            if fields.get("state") == LAUNCHED and "member" in fields and "instance" in fields:
                ids.setdefault(fields["member"], []).append(fields["instance"])
    return ids


class GivenUp(NamedTuple):
    """Why no runtime could start on a machine, in its own words."""

    reason: Reason
    message: str


def given_up(store: Store, run: str, numbers: Sequence[str] | None = None) -> GivenUp | None:
    """What a machine of the run said before it powered off because no runtime could start. `numbers`: of the launches
    of its machines, one request each; None: any, by a list."""
    keys = RunKeys(run)
    if numbers is None:
        found = [meta.key for meta in store.scan(f"{keys.events}0-{MACHINE}-")]
    else:
        found = [keys.event(0, f"{MACHINE}-{number}", 0) for number in numbers]
    for key in found:
        if (answer := store.read(key)) is not None:
            event = decode_record(key, answer[0], Event)
            return GivenUp(named(event.fields.get("reason", "")) or Reason.INFRASTRUCTURE, event.message)
    return None


def restored(machine: CloudInstance, store: Store, url: str) -> CloudInstance | None:
    """A machine that lacks our tags, which anybody with the account's login may take off, with those that it had; None
    for one that is not ours. Two witnesses: its name says the run, and the run's own record of a launch has its id."""
    named = re.fullmatch(NAMED, machine.name or "")
    if named is None:
        return None
    run, member = named.groups()
    launch = next(
        (each for each in _read(store, run, member) if (each.state, each.instance) == (LAUNCHED, machine.id)), None
    )
    body = store.read(RunKeys(run).job) if launch is not None else None
    if launch is None or body is None:
        return None
    job = decode_job(body[0])
    ours = as_recorded(machine, run, member, url)
    known = {ACCOUNT: account_of(job), LAUNCHED_AT: f"{launch.modified:.0f}"}
    known[EXPIRES] = f"{launch.modified + lifetime(job):.0f}"
    added = [InstanceTag(key, value) for key, value in known.items() if not machine.tag(key)]
    return msgspec.structs.replace(ours, tags=[*(ours.tags or ()), *added])


def as_recorded(instance: CloudInstance, run: str, member: str, url: str) -> CloudInstance:
    """A machine with the tags by which the store knows it: whoever has a login may have edited those that it has."""
    own = {RUN: run, MEMBER: member, STORE: url}
    others = [tag for tag in instance.tags or () if tag.key not in own]
    return msgspec.structs.replace(instance, tags=[*others, *(InstanceTag(*each) for each in own.items())])


def shown_in(store: Store, run: str, after: float) -> float:
    """Seconds until a list shows, as a rule, every machine that a launcher asked for without an answer; 0 or less: it
    shows them. `after`: seconds after the request."""
    last: dict[str, tuple[int, str, float]] = {}
    for meta in list(store.scan(f"{RunKeys(run).events}0-{NAME}-")):
        answer = store.read(meta.key)
        if answer is None:
            continue
        event = decode_record(meta.key, answer[0], Event)
        state, member = event.fields.get("state", ""), event.fields.get("member", "")
        if state != ENDING and event.seq >= last.get(member, (0,))[0]:
            last[member] = event.seq, state, meta.modified
    asked = [modified for _, state, modified in last.values() if state == ASKED]
    return max(asked) + after - store.now() if asked else 0.0


def record_launch(records: MachineRecords, instance: CloudInstance) -> None:
    """Records a machine that a list showed, and whose launch nobody recorded."""
    if instance.id not in records.ids:
        text = f"{records.run} {records.member}: machine {instance.id} was in the list"
        fields = {TYPE: instance.instance_type.name, REGION: instance.region.name}
        records.add(LAUNCHED, text, instance.id, **fields)


def record_end(store: Store, instance: CloudInstance) -> None:
    """Records a machine that is about to be terminated, once: since when it is billed, and what it costs."""
    records = MachineRecords(store, instance.tag(RUN), instance.tag(MEMBER))
    record_launch(records, instance)
    if any(known.state == ENDING and known.instance == instance.id for known in records.records):
        return
    fields = {
        TYPE: instance.instance_type.name,
        REGION: instance.region.name,
        PRICE: str(instance.instance_type.price_cents_per_hour),
        HEALTHY: f"{instance.healthy_since:.0f}",
        AT: f"{store.now():.0f}",
        **({BOOTING: "true"} if instance.booting else {}),
    }
    records.add(ENDING, f"{records.run} {records.member}: machine {instance.id} is terminated", instance.id, **fields)
