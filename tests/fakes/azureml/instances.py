"""Compute instances that somebody makes: creating, running, stopped by Azure when they have no job, deleted. Nothing
here waits; `advance` gets the time, in seconds of the admin clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

NAME: Final = r"[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]"
# where a state leads to by itself
NEXT: Final = {"Creating": "Running", "Starting": "Running", "Stopping": "Stopped", "Deleting": "gone"}


@dataclass
class StandInInstance:
    """`since`: when its state began; `used`: when it last had a job; `billed`: from when to when it ran."""

    name: str
    body: dict[str, Any]
    created: float
    since: float
    used: float
    fails: bool = False
    state: str = "Creating"
    operation: str = "Create"
    operated: float = 0.0
    epoch: float = 0.0  # of the admin clock, in seconds since 1970
    billed: list[list[float]] = field(default_factory=list)

    @property
    def idle(self) -> float:
        """Seconds without a job after which it is stopped; endless if nobody said."""
        text = self.body["properties"]["properties"].get("idleTimeBeforeShutdown") or ""
        match = re.fullmatch(r"PT(\d+)M", text)
        return int(match[1]) * 60.0 if match else float("inf")

    def show(self) -> dict[str, Any]:
        """As the resource manager does; it writes the size in capitals."""
        given = self.body["properties"]
        done = "InProgress" if self.state in NEXT else "Failed" if self.state == "CreateFailed" else "Succeeded"
        last = {
            "operationName": self.operation,
            "operationTime": stamp(self.epoch + self.operated),
            "operationStatus": done,
        }
        size = given["properties"]["vmSize"].upper()
        inner = {**given["properties"], "vmSize": size, "state": self.state, "lastOperation": last}
        shown = {**given, "createdOn": stamp(self.epoch + self.created), "properties": inner}
        shown["provisioningState"] = {"Creating": "Creating", "CreateFailed": "Failed"}.get(self.state, "Succeeded")
        if self.state == "CreateFailed":
            text = "Requested 8 vCPUs of the family Standard DSv3; 0 are left."
            shown["provisioningErrors"] = [{"error": {"code": "ClusterCoreQuotaReached", "message": text}}]
        return {**{key: self.body[key] for key in ("location", "tags") if key in self.body}, "properties": shown}


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class StandInInstances:
    """Those that are there or were. `busy`: whether an instance has a job; `note`: writes the ledger."""

    def __init__(self, busy: Callable[[str], bool], note: Callable[..., None]) -> None:
        self.busy, self.note = busy, note
        self.there: dict[str, StandInInstance] = {}
        self.gone: list[StandInInstance] = []
        self.making, self.changing = 300.0, 60.0  # seconds
        self.quota = 1000
        self.failing = 0  # how many of the next ones Azure accepts and cannot make
        self.epoch = 0.0
        self.most = 0  # how many there were at once

    def advance(self, now: float) -> None:
        """What happens by itself until `now`."""
        for each in list(self.there.values()):
            while self._next(each, now):
                pass

    def _next(self, each: StandInInstance, now: float) -> bool:
        """One step of one instance, if its time has come."""
        if each.state == "Running":
            if self.busy(each.name):
                each.used = now
            elif now >= max(each.used, each.since) + each.idle:
                self._become(each, "Stopping", max(each.used, each.since) + each.idle, "Stop")
                return True
            return False
        takes = self.making if each.state == "Creating" else self.changing
        if each.state not in NEXT or now < each.since + takes:
            return False
        then = NEXT[each.state]
        self._become(each, "CreateFailed" if each.state == "Creating" and each.fails else then, each.since + takes)
        return True

    def _become(self, each: StandInInstance, state: str, at: float, operation: str = "") -> None:
        if state == "Running":
            each.billed.append([at, -1.0])
        elif each.billed and each.billed[-1][1] < 0 and state in ("Stopped", "gone"):
            each.billed[-1][1] = at
        each.state, each.since = state, at
        if operation:
            each.operation, each.operated = operation, at
        if state == "gone":
            self.gone.append(self.there.pop(each.name))
        self.note(at, "instance", name=each.name, state=state)

    def put(self, name: str, body: dict[str, Any], now: float) -> StandInInstance | str:
        """Makes one; a text says why not: a code."""
        known = self.there.get(name)
        if known is not None:
            same = known.body["properties"] == body["properties"] and known.body.get("tags") == body.get("tags")
            return known if same and known.state != "Deleting" else "Conflict"
        if not re.fullmatch(NAME, name):
            return "BadArgument"
        if len(self.there) >= self.quota:
            return "QuotaExceeded"
        made = StandInInstance(name, body, now, now, now, fails=self.failing > 0, operated=now)
        made.epoch = self.epoch
        self.failing = max(self.failing - 1, 0)
        self.there[name] = made
        self.most = max(self.most, len(self.there))
        self.note(now, "made", name=name)
        return made

    def start(self, name: str, now: float) -> bool:
        each = self.there[name]
        if each.state == "Stopped":
            each.used = now
            self._become(each, "Starting", now, "Start")
        return each.state in ("Starting", "Running")

    def stop(self, name: str, now: float) -> None:
        self._become(self.there[name], "Stopping", now, "Stop")

    def delete(self, name: str, now: float) -> None:
        if self.there[name].state != "Deleting":
            self._become(self.there[name], "Deleting", now, "Delete")

    def seconds(self, name: str, now: float) -> float:
        """For how long the instances of this name were billed."""
        all_of_it = [each for each in (*self.gone, *self.there.values()) if each.name == name]
        return sum((end if end >= 0 else now) - begin for each in all_of_it for begin, end in each.billed)
