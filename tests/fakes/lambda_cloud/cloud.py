"""The account: instances, capacity, quota, limits and the ledger. Every method gets the time, in seconds of the
admin clock; nothing here waits."""

from __future__ import annotations

import re
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

REQUESTS: Final = 1.0  # seconds between two requests
LAUNCHES: Final = 12.0  # seconds between two launches
GONE: Final = 600.0  # seconds for which a terminated instance can still be asked for by its id
LAUNCH_FIELDS: Final = {
    "region_name", "instance_type_name", "ssh_key_names", "file_system_names", "file_system_mounts", "hostname", "name",
    "image", "user_data", "tags", "firewall_rulesets",
}  # fmt: skip
TYPES: Final = {
    "gpu_1x_a10": (1, 30, 200, 75),
    "gpu_1x_h100_pcie": (1, 26, 200, 249),
    "gpu_8x_h100_sxm5": (8, 208, 1800, 2392),
    "gpu_1x_gh200": (1, 64, 432, 229),  # arm64, of which the API says nothing
}  # name -> GPUs, vCPUs, memory in GiB, cents an hour


class Refused(Exception):
    """An answer of the API that is an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class Instance:
    id: str
    body: dict[str, Any]
    launched: float
    boot: float
    number: int
    visible: float  # when lists show it
    jupyter_token: str = field(default_factory=lambda: uuid.uuid4().hex)
    terminating: float | None = None
    unhealthy: bool = False
    started: bool = False  # its user data runs, or ran
    failing: bool = False  # never passes its first health check, so it is never billed
    jump: float = 0.0  # seconds by which its wall clock was moved since its start
    off: bool = False  # the system was powered off; the instance is still listed, and billed

    def tag(self, key: str) -> str:
        return next((tag["value"] for tag in self.body.get("tags", ()) if tag["key"] == key), "")


@dataclass
class Settings:
    """What a test may change while the server runs. Times are seconds of the admin clock."""

    boot: float = 150.0
    lag: float = 40.0  # from the start of the user data to `active`
    terminating: float = 30.0
    list_lag: float = 0.0
    audit_lag: float = 5.0  # after which an audit event is shown
    audit_page: int = 100
    audit_refused: bool = False  # the key may not read audit events
    keys: list[str] = field(default_factory=list)  # more API keys of the account
    quota: int = 1000
    limits: bool = True
    tells_health: bool = True  # an instance has `first_healthy`, which the public client does not know
    capacity: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: {"us-east-1": 1000, "us-west-1": 1000} for name in TYPES}
    )
    disks: dict[str, dict[str, Any]] = field(default_factory=dict)  # name -> region, bytes_used, is_in_use
    faults: list[dict[str, Any]] = field(default_factory=list)  # {"on": call, "kind": ..., "times": n}


class Cloud:
    def __init__(self, key: str, settings: Settings) -> None:
        self.key, self.settings = key, settings
        self.ssh_key = uuid.uuid4().hex  # the id of the account's one SSH key
        self.instances: dict[str, Instance] = {}
        self.ledger: list[dict[str, Any]] = []
        self.epoch = time.time()  # what the admin clock's 0 is, in seconds since 1970
        self.events: list[tuple[float, dict[str, Any]]] = []
        self._requests: deque[float] = deque(maxlen=1)
        self._launches: deque[float] = deque(maxlen=1)

    def note(self, now: float, event: str, **fields: Any) -> None:
        self.ledger.append({"at": now, "event": event, **fields})

    # limits and faults

    def admit(self, now: float, call: str, authorization: str) -> None:
        if authorization.removeprefix("Bearer ") not in (self.key, *self.settings.keys):
            raise Refused(401, "global/invalid-api-key", "API key was invalid, expired, or deleted.")
        if not self.settings.limits:
            return
        # a tenth of tolerance: a network is not an exact clock
        if self._requests and now - self._requests[0] < 0.9 * REQUESTS:
            self.note(now, "throttled", call=call, limit="requests")
            raise Refused(429, "global/too-many-requests", "Too many requests.")
        self._requests.append(now)
        if call == "launch":
            if self._launches and now - self._launches[0] < LAUNCHES:
                self.note(now, "throttled", call=call, limit="launches")
                raise Refused(429, "global/too-many-requests", "Too many launch requests.")
            self._launches.append(now)

    def fault(self, call: str) -> str:
        for fault in self.settings.faults:
            if fault["on"] in (call, "*") and fault.get("times", 1) > 0:
                fault["times"] = fault.get("times", 1) - 1
                return str(fault["kind"])
        return ""

    # the API

    def status(self, instance: Instance, now: float) -> str:
        if instance.terminating is not None:
            return "terminated" if now >= instance.terminating + self.settings.terminating else "terminating"
        if now < instance.launched + instance.boot:
            return "booting"
        return "unhealthy" if instance.unhealthy or instance.failing else "active"

    def list(self, now: float) -> list[dict[str, Any]]:
        return [
            self.show(instance, now)
            for instance in self.instances.values()
            if now >= instance.visible and self.status(instance, now) != "terminated"
        ]

    def get(self, instance_id: str, now: float) -> dict[str, Any]:
        instance = self.instances.get(instance_id)
        if instance is None or (instance.terminating is not None and now > instance.terminating + GONE):
            raise Refused(404, "global/object-does-not-exist", "Specified instance does not exist.")
        return self.show(instance, now)

    def launch(self, body: dict[str, Any], now: float) -> str:
        self._validate(body)
        kind, region = body["instance_type_name"], body["region_name"]
        left = self.settings.capacity.get(kind, {}).get(region, 0)
        living = [each for each in self.instances.values() if each.terminating is None]
        if len(living) >= self.settings.quota:
            raise Refused(400, "global/quota-exceeded", "Quota exceeded.")
        if left <= 0:
            code = "instance-operations/launch/insufficient-capacity"
            raise Refused(400, code, "Not enough capacity to fulfill launch request.")
        self.settings.capacity[kind][region] = left - 1
        instance = Instance(
            uuid.uuid4().hex, body, now, self.settings.boot, len(self.instances) + 1, now + self.settings.list_lag
        )
        self.instances[instance.id] = instance
        self.note(now, "launched", id=instance.id, name=body.get("name", ""), run=instance.tag("slipway:run"))
        self._audit(now, "create", instance)
        return instance.id

    def terminate(self, ids: list[str], now: float) -> list[dict[str, Any]]:
        chosen = [self.instances.get(each) for each in ids]
        if not all(each is not None and self.status(each, now) != "terminated" for each in chosen):
            raise Refused(404, "global/object-does-not-exist", "Specified instance does not exist.")
        for each in chosen:
            if each is not None and each.terminating is None:
                each.terminating = now
                self.settings.capacity[each.body["instance_type_name"]][each.body["region_name"]] += 1
                self.note(now, "terminated", id=each.id, run=each.tag("slipway:run"))
                self._audit(now, "terminate", each)
        return [self.show(each, now) for each in chosen if each is not None]

    def healthy(self, instance: Instance, now: float) -> float | None:
        """When it passed its first health check, by the admin clock; billing begins then."""
        at = instance.launched + instance.boot
        early = instance.terminating is not None and instance.terminating < at
        return None if instance.failing or early or now < at else at

    def moment(self, at: float) -> str:
        return datetime.fromtimestamp(self.epoch + at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _audit(self, now: float, action: str, instance: Instance) -> None:
        event = {
            "service_name": "public-cloud",
            "resource_name": "instance",
            "action": action,
            "catalog_version": "1.0",
            "event_id": uuid.uuid4().hex,
            "event_time": self.moment(now),
            "actor_lrn": "lrn:account:user:" + "1" * 32,
            "resource_lrns": [f"lrn:public-cloud:instance:{instance.id}"],
            "resource_owner_lrn": "lrn:account:account:" + "2" * 32,
            "request_api_key_lrn": "lrn:account:api-key:" + "3" * 32,
            "additional_details": {},
        }
        self.events.append((now, event))

    def audit(self, query: dict[str, str], now: float) -> dict[str, Any]:
        """A page of the audit log, the oldest event first."""
        if self.settings.audit_refused:
            raise Refused(403, "global/insufficient-permissions", "The key may not read audit events.")
        start, end = (datetime.fromisoformat(query[name]) if name in query else None for name in ("start", "end"))
        shown = [
            event
            for at, event in self.events
            if at + self.settings.audit_lag <= now
            and query.get("resource_type", "instance") == "instance"
            and (start is None or datetime.fromisoformat(event["event_time"]) >= start)
            and (end is None or datetime.fromisoformat(event["event_time"]) <= end)
        ]
        first = int(query.get("page_token") or 0)
        last = first + self.settings.audit_page
        return {"events": shown[first:last], "page_token": str(last) if last < len(shown) else None}

    def types(self) -> dict[str, Any]:
        return {
            name: {
                "instance_type": self._type(name),
                "regions_with_capacity_available": [
                    {"name": region, "description": region}
                    for region, left in self.settings.capacity.get(name, {}).items()
                    if left > 0
                ],
            }
            for name in TYPES
        }

    def show(self, instance: Instance, now: float) -> dict[str, Any]:
        body, status = instance.body, self.status(instance, now)
        action = {"available": status == "active"}
        shown: dict[str, Any] = {
            "id": instance.id,
            "name": body.get("name", ""),
            "status": status,
            "ssh_key_names": body["ssh_key_names"],
            "file_system_names": body.get("file_system_names", []),
            "region": {"name": body["region_name"], "description": body["region_name"]},
            "instance_type": self._type(body["instance_type_name"]),
            "hostname": body.get("hostname", ""),
            "jupyter_token": instance.jupyter_token,
            "jupyter_url": f"https://jupyter.test/?token={instance.jupyter_token}",
            "actions": dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot", "terminate"), action),
            "tags": body.get("tags", []),
            "first_healthy": None if (at := self.healthy(instance, now)) is None else self.moment(at),
        }
        if not self.settings.tells_health:
            del shown["first_healthy"]
        if status != "booting":
            shown |= {"ip": f"198.51.100.{instance.number % 250}", "private_ip": f"10.0.2.{instance.number % 250}"}
        return shown

    def file_system(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        """With the fields of `FileSystem` in the published document."""
        region = fields.get("region", "us-east-1")
        return {
            "id": uuid.uuid5(uuid.NAMESPACE_DNS, name).hex,
            "name": name,
            "mount_point": f"/lambda/nfs/{name}",
            "created": self.moment(0.0),
            "created_by": {"id": "0" * 32, "email": "a@b.c", "status": "active"},
            "is_in_use": fields.get("is_in_use", False),
            "region": {"name": region, "description": "somewhere"},
            **({"bytes_used": fields["bytes_used"]} if "bytes_used" in fields else {}),
        }

    def _type(self, name: str) -> dict[str, Any]:
        gpus, vcpus, memory, price = TYPES[name]
        return {
            "name": name,
            "description": name,
            "gpu_description": name,
            "price_cents_per_hour": price,
            "specs": {"vcpus": vcpus, "memory_gib": memory, "storage_gib": 512, "gpus": gpus},
        }

    def _validate(self, body: dict[str, Any]) -> None:
        def wrong(message: str) -> Refused:
            return Refused(400, "global/invalid-parameters", message)

        if unknown := set(body) - LAUNCH_FIELDS:
            raise wrong(f"unknown fields: {', '.join(sorted(unknown))}")
        for name in ("region_name", "instance_type_name", "ssh_key_names"):
            if not body.get(name):
                raise wrong(f"{name} is required")
        if len(body["ssh_key_names"]) != 1 or len(body.get("file_system_names", [])) > 1:
            raise wrong("exactly one SSH key, at most one file system")
        if body["instance_type_name"] not in TYPES:
            raise Refused(404, "global/object-does-not-exist", "Instance type does not exist.")
        if len(body.get("name", "")) > 64 or len(body.get("user_data", "").encode()) > 1_000_000:
            raise wrong("name or user_data is too long")
        if body.get("hostname") and not re.fullmatch(r"[a-z0-9][0-9a-z-]{0,62}", body["hostname"]):
            raise wrong("hostname")
        for tag in body.get("tags", ()):
            if not re.fullmatch(r"[a-z][a-z0-9-:]+", tag["key"]) or len(tag["key"]) > 55 or len(tag["value"]) > 128:
                raise wrong(f"tag {tag['key']}")
