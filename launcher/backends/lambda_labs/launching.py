"""Exactly one machine for each member of a run (docs/explanation/lambda.md says what holds at each crash point).

Under the account's lease: the recorded ids are asked for one by one, then all machines are listed; what lives with the
member's tags is adopted. Only where nothing lives, and no unanswered launch is so young that a list may not show its
machine yet, a new one is launched. Absence from a list alone proves nothing, so duplicates remain possible where lists
lag for longer than `settle`: they do no work, because the runtime's claim lets one attempt run, and reap ends them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from launcher.backends.lambda_labs import accounts, names
from launcher.backends.lambda_labs.accounts import LASTS, LeaseTurn, turn
from launcher.backends.lambda_labs.api import CAPACITY, QUOTA, TIMEOUT, EffectUnknown, LambdaApi, LambdaRefused
from launcher.backends.lambda_labs.records import ASKED, LAUNCHED, REFUSED, REGION, TYPE, MachineRecords, record_launch
from launcher.backends.lambda_labs.render import LaunchFile, MachineRequest, request_of
from launcher.backends.lambda_labs.wire import CloudInstance
from launcher.clock import boottime
from launcher.errors import BadInput, Conflict, NoCapacity, SlipwayError, Unreachable
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.wait_hint import LongWait

TRIES: Final = 3  # of one place, after answers that say nothing
BETWEEN: Final = 30.0  # seconds between two looks for capacity


# a machine -> (the same, told from where it fetches what it needs; the credentials of the store, one line of JSON)
Given = Callable[[MachineRequest, str], tuple[MachineRequest, str]]


class RunOver(Exception):
    """The run has ended or was cancelled, so no machine is launched for it."""


@dataclass(frozen=True)
class Times:
    """Seconds. Tests against a cloud whose clock is fast shorten them.

    spacing  between two launches of an account, by all launchers together; Lambda allows one in 12 s
    settle   after which a list shows a machine, as a rule
    """

    interval: float = 1.0
    spacing: float = 13.0
    settle: float = 20.0
    timeout: float = TIMEOUT
    lease: float = LASTS
    between: float = BETWEEN


def mine(instances: list[CloudInstance], run: str, member: str = "") -> list[CloudInstance]:
    """The machines of a run (of one member), the smallest id first."""
    return sorted(
        (each for each in instances if each.tag(names.RUN) == run and member in ("", each.tag(names.MEMBER))),
        key=lambda each: each.id,
    )


def ensure(
    api: LambdaApi,
    store: Store,
    file: LaunchFile,
    machine: MachineRequest,
    given: Given,
    times: Times,
    beside: CloudInstance | None = None,
) -> CloudInstance:
    """The member's machine, launched if none lives. Waits for capacity as long as the job says.

    given   what a launch is given: called right before it, however long that takes
    beside  another member's machine; private addresses reach no other region

    Raises RunOver, BadInput, Conflict, Unreachable.
    """
    if beside is not None and beside.region.name:
        file = replace(file, regions=(beside.region.name,))
    end, wait = time.monotonic() + file.wait, LongWait()
    while True:
        with turn(store, file.account, lasts=times.lease, poll=times.interval / 2) as held:
            launch = _Launch(api, store, file, machine, given, times, held)
            instance = launch.adopt() or launch.launch()
        if instance is not None:
            return instance
        types, regions = ", ".join(file.instance_types), ", ".join(file.regions) or "any region"
        if time.monotonic() + times.between > end:
            launch.records.add(REFUSED, f"{launch.about}: Lambda has no capacity now for {types} in {regions}")
            raise NoCapacity(
                f"{file.run}: Lambda has no capacity now for {types} in {regions}: submit again later, or with "
                f"--wait-for-capacity 6h; nothing is launched twice{_waiting(file, beside)}"
            )
        hours = file.wait / 3600
        wait.tell(f"{file.run} waits: Lambda has no capacity now for {types} in {regions}; asks again for {hours:g} h")
        time.sleep(times.between)


def _waiting(file: LaunchFile, beside: CloudInstance | None) -> str:
    if beside is None:
        return ""
    return (
        f". {beside.tag(names.MEMBER)} is there already, in {beside.region.name}, where the others must be, and is "
        f"billed: `launcher cancel {file.run}` ends it"
    )


@dataclass
class _Launch:
    api: LambdaApi
    store: Store
    file: LaunchFile
    machine: MachineRequest
    given: Given
    times: Times
    held: LeaseTurn

    def __post_init__(self) -> None:
        self.records = MachineRecords(self.store, self.file.run, self.machine.member)
        self.about = f"{self.file.run} {self.machine.member}"

    def adopt(self) -> CloudInstance | None:
        """The machine that lives, recorded; None if there is none."""
        for known in reversed(self.records.ids):
            instance = self.api.instance(known)
            if instance is not None and instance.living:
                return self._ours(instance)
        self._wait_for_the_list()
        if (instance := self._listed()) is None and self.records.records:
            accounts.refuse_others(self.api, self.store, self.file.run)
        return instance

    def _wait_for_the_list(self) -> None:
        """Waits until a list shows what a launch without an answer may have made. Its request may still have been on
        its way for as long as a request lasts."""
        unanswered = self.records.unanswered
        if unanswered is not None:
            age = self.store.now() - unanswered.modified
            time.sleep(max(0.0, self.times.timeout + self.times.settle - age))

    def _listed(self) -> CloudInstance | None:
        living = [each for each in mine(self.api.instances(), self.file.run, self.machine.member) if each.living]
        if not living:
            return None
        instance = self._ours(living[0])
        record_launch(self.records, instance)
        return instance

    def _ours(self, instance: CloudInstance) -> CloudInstance:
        if instance.tag(names.FINGERPRINT) != self.file.fingerprint:
            raise Conflict(f"machine {instance.id} is of another job under the name {self.file.run}")
        return instance

    def launch(self) -> CloudInstance | None:
        """A new machine in the first place that has one; None without capacity. Raises BadInput, Unreachable."""
        for region, instance_type in self._places():
            for _ in range(TRIES):
                try:
                    return self._launch(region, instance_type)
                except EffectUnknown as error:
                    self._wait_for_the_list()
                    if (instance := self._listed()) is not None:
                        return instance
                    self.records.add(REFUSED, f"{self.about}: no machine after {error}")
                except LambdaRefused as error:
                    self.records.add(REFUSED, f"{self.about}: {error}")
                    if error.code == CAPACITY:
                        break
                    raise _explained(error, self.about) from None
            else:
                raise Unreachable(f"{self.about}: Lambda does not say whether it launches: submit again later")
        return None

    def _places(self) -> Iterator[tuple[str, str]]:
        """(region, type) with capacity, in the user's order. Looking costs no launch."""
        offered = self.api.types()
        if unknown := [name for name in self.file.instance_types if name not in offered]:
            raise BadInput(
                f"lambda.instance_types: `{unknown[0]}` is not offered; allowed: {', '.join(sorted(offered))}"
            )
        homes = self._homes()
        for instance_type in self.file.instance_types:
            free = offered[instance_type].regions
            for region in self.file.regions or sorted(free):
                if region in free and (homes is None or region in homes):
                    yield region, instance_type

    def _homes(self) -> set[str] | None:
        """The regions of the machine's file system, which is mounted in no other; None without one, or where the
        account's list does not show it. Raises BadInput where the job allows none of them."""
        names_of = self.machine.request.get("file_system_names", ())
        if not names_of:
            return None
        homes = {each.region.name for each in self.api.file_systems() if each.name in names_of}
        if homes and self.file.regions and not homes.intersection(self.file.regions):
            there, allowed = ", ".join(sorted(homes)), ", ".join(self.file.regions)
            raise BadInput(
                f"lambda.file_systems: {', '.join(names_of)} is in {there}, and is mounted in no other region; "
                f"lambda.regions allows {allowed} only"
            )
        return homes or None

    def _still_wanted(self) -> None:
        """Raises RunOver when the run has ended or was cancelled while this launcher waited."""
        keys = RunKeys(self.file.run)
        if self.store.head(keys.cancel) is not None or self.store.head(keys.result) is not None:
            raise RunOver

    def _launch(self, region: str, instance_type: str) -> CloudInstance:
        if self.held.launched is not None:
            time.sleep(max(0.0, self.held.launched + self.times.spacing - boottime()))
        self.held.check()
        self._still_wanted()
        now, number = self.store.now(), uuid.uuid4().hex
        machine, access = self.given(self.machine, number)
        body = request_of(self.file, machine, region, instance_type, now, access, number)
        marks = accounts.marks(self.api, self.file.run, machine.request["ssh_key_names"][0])
        self.records.add(ASKED, f"{self.about}: {instance_type} in {region}", **marks)
        try:
            instance_id = self.api.launch(body)
        finally:
            self.held.launched = boottime()
        marks |= {TYPE: instance_type, REGION: region}
        self.records.add(LAUNCHED, f"{self.about}: machine {instance_id}", instance_id, **marks)
        shown = self.api.instance(instance_id)
        return shown if shown is not None else _promised(instance_id, body)


def _promised(instance_id: str, body: Mapping[str, object]) -> CloudInstance:
    """A machine that Lambda has promised and does not show yet."""
    region = {"name": body["region_name"]}
    given = {"id": instance_id, "status": "booting", "tags": body["tags"], "region": region}
    return msgspec.convert(given, CloudInstance)


def _explained(error: LambdaRefused, about: str) -> SlipwayError:
    if error.code == QUOTA:
        return NoCapacity(f"{about}: {error}; end a machine or ask Lambda for more, then submit again")
    if error.status in (400, 404, 422):
        return BadInput(f"{about}: {error}")
    return Unreachable(f"{about}: {error}")
