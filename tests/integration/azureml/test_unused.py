"""`launcher reap` and what is billed in a workspace although nobody uses it: the SDK's own pipeline against the
stand-in, whose ledger says what was deleted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.backends.azureml import unused
from launcher.backends.azureml.workspace import Workspace
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job, run_id
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.reap import reap
from tests.integration.azureml.conftest import Tenant
from tests.support.stepping import Killed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow
DISKS, ADDRESSES = "Microsoft.Compute/disks", "Microsoft.Network/publicIPAddresses"
STOPPED = {"operationName": "Stop", "operationTime": "2026-11-26T08:00:00Z", "operationStatus": "Succeeded"}
MACHINE = "/subscriptions/s/resourceGroups/ml/providers/Microsoft.Compute/virtualMachines/vm"


def instance(tenant: Tenant, state: str, store: str | None = None, run: str = "", **more: Any) -> dict[str, Any]:
    tags = {"slipway-store": tenant.store.url if store is None else store, "slipway-run": run}
    given = {name: value for name, value in tags.items() if value}
    return {"vmSize": "STANDARD_D8_V3", "state": state, "lastOperation": STOPPED, "tags": given, **more}


def disk(tenant: Tenant, name: str, *, ours: bool = True, used: str = "") -> dict[str, Any]:
    state = {"diskState": "Attached" if used else "Unattached", "LastOwnershipUpdateTime": "2026-11-26T08:00:00Z"}
    body = {"name": name, "tags": {"slipway-store": tenant.store.url} if ours else {}, "properties": state}
    return {**body, "managedBy": used} if used else body


def address(tenant: Tenant, name: str, *, ours: bool = True, used: str = "", etag: str = "1") -> dict[str, Any]:
    tags = {"slipway-store": tenant.store.url} if ours else {}
    return {"name": name, "etag": etag, "tags": tags, "properties": {"ipConfiguration": {"id": used}} if used else {}}


def end(tenant: Tenant, *, plan: bool = False) -> list[tuple[str, str]]:
    return list(tenant.backend().end_unused(tenant.store, plan=plan))


def deleted(tenant: Tenant) -> list[str]:
    return sorted(entry["name"] for entry in tenant.azure.ledger("deleted"))


def finish(tenant: Tenant, name: str) -> str:
    """A run that has succeeded."""
    one = tenant.job(name)
    run = run_id(one)
    tenant.store.create(RunKeys(run).job, encode_job(one))
    result = Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n", "w")
    tenant.store.create(RunKeys(run).result, msgspec.json.encode(result))
    return run


@pytest.fixture
def left(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Things of every kind; the names of those that may be deleted."""
    monkeypatch.setattr(unused, "LEAVING", -1.0)
    over, living = finish(tenant, "over"), tenant.job("living")
    tenant.store.create(RunKeys(run_id(living)).job, encode_job(living))
    tenant.azure.admin(
        "settings",
        instances={
            "ours-stopped": instance(tenant, "Stopped"),
            "ours-over": instance(tenant, "Running", run=over),
            "ours-works": instance(tenant, "Running", run=run_id(living)),
            "ours-no-run": instance(tenant, "Running"),
            "ours-starts": instance(tenant, "Stopped", lastOperation={**STOPPED, "operationStatus": "InProgress"}),
            "strangers": {**instance(tenant, "Stopped"), "tags": {"slipway-run": over}},
            "other-store": instance(tenant, "Stopped", store="az://theirs/x?account=a"),
            "no-time": instance(tenant, "Stopped", lastOperation=None),
        },
        resources={
            DISKS: [
                *(disk(tenant, f"used-{n}", used=MACHINE) for n in range(4)),  # more than a page
                disk(tenant, "disk-left"),
                disk(tenant, "disk-strangers", ours=False),
            ],
            ADDRESSES: [
                address(tenant, "ip-left"),
                address(tenant, "ip-used", used="nic"),
                address(tenant, "ip-strangers", ours=False),
                address(tenant, "ip-no-etag", etag=""),
            ],
        },
    )
    return sorted(["ours-stopped", "ours-over", "disk-left", "ip-left"])


def test_what_nobody_uses_is_deleted_at_the_second_look(
    tenant: Tenant, left: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reported = {"instance other-store": "another store", "no-time": "since when", "ip-no-etag": "since when"}
    for plan in (True, False, False):  # an hour has to lie between two looks
        rows = end(tenant, plan=plan)
        assert [did for did, _ in rows] == ["unknown"] * 3
        assert all(any(name in text and why in text for _, text in rows) for name, why in reported.items())
    assert deleted(tenant) == []
    monkeypatch.setattr(unused, "GRACE", 0.0)
    planned = end(tenant, plan=True)
    assert deleted(tenant) == []
    backend = tenant.backend()
    rows = reap(tenant.store, lambda job: backend, {"azureml": backend}, cache=Cache(tmp_path / "cache"))
    told = [(row.did, row.detail) for row in rows if row.run == "azureml"]
    assert [did for did, _ in told] == [did for did, _ in planned]
    assert {text.partition(" deleted")[0] for did, text in told if did == "stopped"} == {
        "compute instance ours-stopped",
        "compute instance ours-over",
        "disk disk-left",
        "address ip-left",
    }
    assert deleted(tenant) == left
    assert [did for did, _ in end(tenant)] == ["unknown"] * 3
    assert list(tenant.store.scan("reapers/")) == []
    assert tenant.azure.admin("refused") == []  # nobody else was asked


def test_what_was_used_meanwhile_is_left(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the looks an instance was started and stopped; between list and deletion a disk was attached."""
    resources = {DISKS: [disk(tenant, "d")]}
    tenant.azure.admin("settings", instances={"i": instance(tenant, "Stopped")}, resources=resources)
    assert end(tenant) == []
    monkeypatch.setattr(unused, "GRACE", 0.0)
    later = instance(tenant, "Stopped", lastOperation={**STOPPED, "operationTime": "2026-11-26T09:00:00Z"})
    tenant.azure.admin("settings", instances={"i": later})
    look = Workspace.resource

    def attached(workspace: Workspace, path: str, kind: tuple[str, str]) -> Any:
        tenant.azure.admin("settings", resources={DISKS: [disk(tenant, "d", used=MACHINE)]})
        return look(workspace, path, kind)

    monkeypatch.setattr(Workspace, "resource", attached)
    assert end(tenant) == []
    assert deleted(tenant) == []
    assert [did for did, _ in end(tenant)] == ["stopped"]  # the instance, found twice by now
    assert deleted(tenant) == ["i"]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        *(("delete resource", kind) for kind in ("500", "after_503", "drop_before", "drop_after", "403")),
        ("get resource", "500"),
        ("resources", "drop_before"),
        ("resources", "403"),
        ("computes", "500"),
    ],
)
def test_a_fault_ends_nothing_twice_and_hides_nothing(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, call: str, kind: str
) -> None:
    resources = {ADDRESSES: [address(tenant, "a")]}
    tenant.azure.admin("settings", instances={"i": instance(tenant, "Stopped")}, resources=resources)
    assert end(tenant) == []
    monkeypatch.setattr(unused, "GRACE", 0.0)
    monkeypatch.setattr("launcher.backends.azureml.workspace.REPEATS", 0)
    tenant.fault(call, kind, 1)
    rows = end(tenant)
    assert "unreachable" in [did for did, _ in rows]
    assert "stopped" in [did for did, _ in rows]  # the other one
    end(tenant)
    assert deleted(tenant) == ["a", "i"]
    assert end(tenant) == []


def test_what_somebody_keeps_is_left(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the guide says: the tag is taken off, or a lock is put on."""
    resources = {DISKS: [disk(tenant, "d")], ADDRESSES: [address(tenant, "a")]}
    tenant.azure.admin("settings", instances={"i": instance(tenant, "Stopped")}, resources=resources, locked=["i"])
    end(tenant)
    monkeypatch.setattr(unused, "GRACE", 0.0)
    tenant.azure.admin("settings", resources={DISKS: [disk(tenant, "d", ours=False)], ADDRESSES: []})
    ((did, text),) = end(tenant)
    assert did == "unreachable"
    assert "compute instance i: Azure ML refuses: " in text
    assert "ScopeLocked" in text
    assert deleted(tenant) == []


def test_a_list_that_still_shows_what_was_deleted(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    resources = {DISKS: [disk(tenant, "d")]}
    tenant.azure.admin("settings", lag=True, instances={"i": instance(tenant, "Stopped")}, resources=resources)
    end(tenant)
    monkeypatch.setattr(unused, "GRACE", 0.0)
    assert [did for did, _ in end(tenant)] == ["stopped", "stopped"]
    assert end(tenant) == []
    assert deleted(tenant) == ["d", "i"]


@pytest.mark.parametrize("numbers", [range(1, 22, 4), pytest.param(range(1, 22), marks=pytest.mark.nightly)])
def test_reapers_that_are_killed_between_any_two_requests(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, numbers: range
) -> None:
    """Each request of a look may be the last one of its reaper, before or after it took effect."""
    monkeypatch.setattr(unused, "GRACE", 0.0)
    call = Workspace._call
    resources = {DISKS: [disk(tenant, "d")], ADDRESSES: [address(tenant, "a")]}
    left, kills = 0, 0

    def counted(workspace: Workspace, act: Callable[[Any], Any]) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        answer = call(workspace, act)
        left -= 1
        if left == 0:
            raise Killed
        return answer

    monkeypatch.setattr(Workspace, "_call", counted)
    for number in numbers:
        tenant.azure.admin("reset")
        tenant.azure.admin("settings", instances={"i": instance(tenant, "Stopped")}, resources=resources)
        left = 0
        assert end(tenant) == []
        left = number
        try:
            end(tenant)
        except Killed:
            kills += 1
        left = 0
        end(tenant)
        assert deleted(tenant) == ["a", "d", "i"]
        assert end(tenant) == []
    # the workspace, three lists, three looks and three deletions, before and after each
    assert kills == len([number for number in numbers if number <= 20])


def test_two_reapers_at_once(tenant: Tenant, left: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(4) as threads:
        looks = list(threads.map(lambda _: end(tenant), range(4)))
        monkeypatch.setattr(unused, "GRACE", 0.0)
        looks += threads.map(lambda _: end(tenant), range(4))
    assert [did for rows in looks for did, _ in rows if did == "unreachable"] == []
    assert sorted(set(deleted(tenant))) == left
    assert [did for did, _ in end(tenant)] == ["unknown"] * 3
