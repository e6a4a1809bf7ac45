"""The answers of Lambda's API, as far as the launcher reads them. Statuses and codes are texts: new ones appear. What
is not named here is dropped while it is decoded; `jupyter_token` and `jupyter_url` are secrets and are therefore not
named."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from launcher.backends.lambda_labs.names import LAUNCHED

LIVING: Final = ("booting", "active", "unhealthy")  # billed, and it may run something
ENDED: Final = ("terminated", "terminating", "preempted")


class InstanceTag(msgspec.Struct, frozen=True):
    key: str = ""
    value: str = ""


class RegionName(msgspec.Struct, frozen=True):
    name: str = ""


class MachineSpecs(msgspec.Struct, frozen=True):
    vcpus: int = 0
    memory_gib: int = 0
    storage_gib: int = 0
    gpus: int = 0


class MachineType(msgspec.Struct, frozen=True):
    name: str = ""
    price_cents_per_hour: int = 0
    specs: MachineSpecs = MachineSpecs()


class CloudInstance(msgspec.Struct, frozen=True):
    """One machine. `status`: booting | active | unhealthy | terminating | terminated | preempted | others."""

    id: str
    status: str = ""
    name: str | None = ""
    ip: str | None = None
    private_ip: str | None = None
    region: RegionName = RegionName()
    instance_type: MachineType = MachineType()
    tags: list[InstanceTag] | None = None
    first_healthy: str | float | None = None  # its first passed health check; billing begins then

    @property
    def healthy_since(self) -> float:
        """Seconds since the epoch of its first passed health check; 0: not yet, or Lambda does not say."""
        if isinstance(self.first_healthy, str):
            with suppress(ValueError):
                moment = datetime.fromisoformat(self.first_healthy)
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
            return 0.0
        return float(self.first_healthy or 0.0)

    @property
    def booting(self) -> bool:
        """It has passed no health check yet: it is not billed."""
        return self.status == "booting" and not self.healthy_since

    @property
    def launched_before_health(self) -> float:
        """When a machine of ours was launched, in seconds since the epoch, where it may have been billed since, and
        Lambda does not say; else 0."""
        launched = self.tag(LAUNCHED)
        return float(launched) if launched.isdecimal() and not self.booting and not self.healthy_since else 0.0

    def tag(self, key: str) -> str:
        return next((tag.value for tag in self.tags or () if tag.key == key), "")

    @property
    def living(self) -> bool:
        """Billed, and it may run something. An unknown status counts as living."""
        return self.status not in ENDED


class OfferedType(msgspec.Struct, frozen=True):
    instance_type: MachineType = MachineType()
    regions_with_capacity_available: list[RegionName] = []

    @property
    def regions(self) -> list[str]:
        return [region.name for region in self.regions_with_capacity_available]


class CloudFileSystem(msgspec.Struct, frozen=True):
    """A shared file system: it is billed by what it holds, whether a machine uses it or not."""

    id: str
    name: str = ""
    region: RegionName = RegionName()
    is_in_use: bool = False
    bytes_used: int | None = None


class FileSystemsAnswer(msgspec.Struct, frozen=True):
    data: list[CloudFileSystem]


class CloudSshKey(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


class SshKeysAnswer(msgspec.Struct, frozen=True):
    data: list[CloudSshKey]


class Launched(msgspec.Struct, frozen=True):
    instance_ids: list[str] = []


class ApiFault(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""
    suggestion: str | None = ""


class FaultAnswer(msgspec.Struct, frozen=True):
    error: ApiFault = ApiFault()


class AuditEvent(msgspec.Struct, frozen=True):
    """Something that was done to the account. A resource's name (LRN) ends with its id."""

    action: str = ""
    resource_name: str = ""
    event_time: str = ""
    resource_lrns: list[str] = []


class AuditPage(msgspec.Struct, frozen=True):
    events: list[AuditEvent] = []
    page_token: str | None = None


class AuditAnswer(msgspec.Struct, frozen=True):
    data: AuditPage


class InstanceAnswer(msgspec.Struct, frozen=True):
    data: CloudInstance


class InstancesAnswer(msgspec.Struct, frozen=True):
    data: list[CloudInstance]


class TypesAnswer(msgspec.Struct, frozen=True):
    data: dict[str, OfferedType]


class LaunchAnswer(msgspec.Struct, frozen=True):
    data: Launched
