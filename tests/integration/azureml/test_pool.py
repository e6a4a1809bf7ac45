"""Runs on a pool: the compute instances that a submit makes, one for each rank, and who deletes them. The SDK's own
pipeline against the stand-in, whose ledger says what was made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from launcher.backends.azureml import backend, names, unused
from launcher.backends.azureml.pool import ours
from launcher.backends.azureml.render import INSTANCE, documents
from launcher.backends.azureml.workspace import Workspace
from launcher.errors import Conflict, NotMadeYet, Unreachable
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.model import ResolvedJob
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs import leftovers
from launcher.verbs.cancel import cancel
from launcher.verbs.leftovers import Reaped
from launcher.verbs.reap import reap
from tests.integration.azureml.conftest import PLACE, Tenant
from tests.support.stepping import Killed
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow
PLACED = f"{PLACE['subscription']}/ml/lab"


@pytest.fixture(autouse=True)
def quick(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the stand-in's time, of which 200 s are one here. The SDK starts git five times for each job."""
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    tenant.azure.admin("made", making=20.0, changing=10.0)


def expected(one: ResolvedJob) -> list[str]:
    return [names.instance_name(PLACED, run_id(one), member) for member in (*one.members()[1:], one.members()[0])]


def finish(tenant: Tenant, run: str) -> None:
    for name in tenant.azure.admin("status"):
        tenant.azure.admin("set", name=name, status="Completed")
    result = Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n", "w")
    tenant.store.create(RunKeys(run).result, msgspec.json.encode(result))


def reaped(tenant: Tenant, *, plan: bool = False) -> list[Reaped]:
    backend = tenant.backend()
    cache = Cache(tenant.path / "cache.sqlite")
    return reap(tenant.store, lambda job: backend, {"azureml": backend}, cache=cache, plan=plan)


def test_each_rank_gets_an_instance_and_a_job_on_it(tenant: Tenant) -> None:
    one = tenant.pooled("waa", 3, subnet="lab/workers")
    run = tenant.submit(one)
    assert sorted(tenant.made()) == sorted(expected(one))
    assert set(tenant.instances().values()) == {"Running"}
    for body in tenant.azure.admin("made")["bodies"]:
        inner = body["properties"]["properties"]
        assert (inner["vmSize"], inner["idleTimeBeforeShutdown"]) == ("Standard_D8_v3", "PT30M")
        assert inner["subnet"]["id"].endswith("/virtualNetworks/lab/subnets/workers")
        assert body["tags"]["slipway-run"] == run
        assert body["tags"]["slipway-store"] == tenant.store.url
    jobs = tenant.azure.bodies()
    assert tenant.created() == [f"{run}_main-1", f"{run}_main-2", run]
    on = [jobs[name]["properties"]["computeId"].rpartition("/")[2] for name in tenant.created()]
    assert on == expected(one)
    tenant.submit(one)  # again
    assert len(tenant.made()) == len(tenant.created()) == 3
    assert tenant.azure.admin("refused") == []


def test_the_sdk_itself_reads_what_was_made(tenant: Tenant) -> None:
    one = tenant.pooled("waa", 1)
    tenant.submit(one)
    found = tenant.backend().workspace._client().compute.get(expected(one)[0])
    assert (found.type, found.size, found.state) == ("computeinstance", "STANDARD_D8_V3", "Running")
    assert (found.idle_time_before_shutdown_minutes, found.tags["slipway-member"]) == (30, "main-0")


KINDS = ("drop_before", "drop_after", "500", "after_503", "429")


@pytest.mark.parametrize(
    ("call", "kind"),
    [*(("create instance", kind) for kind in KINDS), ("get resource", "drop_after"), ("create", "after_503")],
)
def test_a_lost_answer_makes_no_second_instance(tenant: Tenant, call: str, kind: str) -> None:
    one = tenant.pooled("waa")
    tenant.fault(call, kind, 4)
    try:
        tenant.submit(one)
    except Unreachable:
        tenant.fault(call, kind, 0)
        tenant.submit(one)
    assert sorted(tenant.made()) == sorted(expected(one))
    assert len(tenant.created()) == 2
    assert tenant.azure.admin("made")["most"] == 2


def killing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says at which request, before or after it takes effect, this process dies; 0: at none."""
    call, left = Workspace._call, 0

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

    def at(number: int) -> None:
        nonlocal left
        left = number

    monkeypatch.setattr(Workspace, "_call", counted)
    return at


@pytest.mark.parametrize("numbers", [range(3, 35, 8), pytest.param(range(1, 60), marks=pytest.mark.nightly)])
def test_launchers_that_are_killed_between_any_two_requests(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, numbers: range
) -> None:
    """What the next launcher, or a cancel, finds: never a third instance, none left, no second job."""
    at = killing(monkeypatch)
    kills = 0
    for number in numbers:
        tenant.azure.admin("reset")
        tenant.azure.admin("made", making=5.0, changing=2.0)
        one = tenant.pooled(f"waa{number}")
        at(number)
        try:
            tenant.submit(one)
        except Killed:
            kills += 1
        at(0)
        if number % 2:
            tenant.submit(one)
            assert len(set(tenant.created())) == len(tenant.created()) == 2
            assert sorted(tenant.made()) == sorted(expected(one))
        cancel(tenant.store, run_id(one), tenant.backend())
        assert tenant.instances() == {}
        assert tenant.azure.admin("made")["most"] <= 2
        assert not {"Queued", "Running", "NotStarted"} & set(tenant.azure.admin("status").values())
    assert kills >= 3


@pytest.mark.parametrize("numbers", [[9], pytest.param(None, marks=pytest.mark.nightly)])
def test_a_launcher_that_is_killed_at_any_request_and_never_returns(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, numbers: list[int] | None
) -> None:
    """Nobody cancels and nobody submits again: Azure stops what idles, and reap leaves nothing. `numbers`: of requests,
    each counted before and after it; None: all, until a submit outlives them."""
    at = killing(monkeypatch)
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    monkeypatch.setattr(unused, "GRACE", 0.0)
    number = kills = 0
    while numbers is None or kills < len(numbers):
        number = number + 1 if numbers is None else numbers[kills]
        tenant.azure.admin("reset")
        tenant.azure.admin("made", making=5.0, changing=2.0)
        one = tenant.pooled(f"waa{number}")
        at(number)
        try:
            tenant.submit(one)
        except Killed:
            kills += 1
        else:
            assert number > 20, "a submit of two ranks asks more than ten times"
            break
        finally:
            at(0)
        for name in tenant.azure.admin("status"):
            tenant.azure.admin("set", name=name, status="Failed")
        until(lambda: "Creating" not in tenant.instances().values(), tenant.instances)
        tenant.azure.admin("clock", add=1900.0)
        until(lambda: "Running" not in tenant.instances().values(), tenant.instances)
        for _ in range(3):
            reaped(tenant)
        until(lambda: tenant.instances() == {}, tenant.instances)
        assert tenant.azure.admin("made")["most"] <= 2
        assert len(set(tenant.made())) == len(tenant.made())


def test_an_instance_that_azure_stopped_is_started(tenant: Tenant) -> None:
    """A launcher died before the jobs; half an hour later Azure stops what is idle."""
    one = tenant.pooled("waa")
    with pytest.raises(NotMadeYet, match="does not run: submit again, nothing is made twice"):
        tenant.submit(one, tenant.backend(waiting=0.0))
    tenant.azure.admin("clock", add=1900.0)
    until(lambda: set(tenant.instances().values()) == {"Stopped"}, tenant.instances)
    tenant.submit(one)
    assert set(tenant.instances().values()) == {"Running"}
    assert len(tenant.made()) == len(tenant.created()) == 2


def test_quota_that_is_too_small(tenant: Tenant) -> None:
    """One of two is made, and is ended by `launcher cancel`."""
    one = tenant.pooled("waa")
    tenant.azure.admin("made", quota=1)
    with pytest.raises(Unreachable) as refused:
        tenant.submit(one)
    assert f"Azure makes no instance {expected(one)[1]}: " in str(refused.value)
    assert "(QuotaExceeded)" in str(refused.value)
    assert tenant.created() == []
    cancel(tenant.store, run_id(one), tenant.backend())
    assert tenant.instances() == {}


def test_an_instance_that_azure_cannot_make(tenant: Tenant) -> None:
    one = tenant.pooled("waa")
    tenant.azure.admin("made", failing=1)
    for _ in range(2):  # it is not made again under the same name
        with pytest.raises(Unreachable) as refused:
            tenant.submit(one)
    assert str(refused.value).startswith(
        f"Azure could not make {expected(one)[0]}: Requested 8 vCPUs of the family Standard DSv3; 0 are left. "
        f"(ClusterCoreQuotaReached). End it, and the others of its run, with `launcher cancel {run_id(one)}`"
    )
    assert tenant.created() == []
    cancel(tenant.store, run_id(one), tenant.backend())
    assert tenant.instances() == {}


@pytest.mark.parametrize("change", [{"slipway-run": "mine"}, {"slipway-store": "az://theirs/x?account=a"}, {}])
def test_a_strangers_instance_of_our_name_is_a_conflict(tenant: Tenant, change: dict[str, str]) -> None:
    one = tenant.pooled("waa", 1)
    (document,) = [each for each in documents(one) if each["type"] == INSTANCE]
    tags = {**document["tags"], **change} if change else {}
    inner = {"vmSize": "STANDARD_D8_V3", "state": "Running", "tags": tags}
    tenant.azure.admin("settings", instances={document["name"]: inner})
    with pytest.raises(Conflict, match="the workspace has another compute instance under the name slipway-"):
        tenant.submit(one)
    cancel(tenant.store, run_id(one), tenant.backend())
    assert tenant.azure.ledger("deleted") == []


def test_an_instance_that_is_deleted_while_it_is_made_is_not_made_again(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `cancel` on another machine."""
    one = tenant.pooled("waa", 1)
    tenant.azure.admin("made", making=4000.0)
    seen: list[str] = []
    real = Workspace.instance

    def look(workspace: Workspace, name: str) -> Any:
        found = real(workspace, name)
        if found is not None and not seen:
            seen.append(name)
            monkeypatch.setattr(Workspace, "instance", real)
            cancel(tenant.store, run_id(one), tenant.backend())
        return found

    monkeypatch.setattr(Workspace, "instance", look)
    with pytest.raises(Unreachable, match="was deleted while it was made"):
        tenant.submit(one)
    assert len(tenant.made()) == 1
    assert tenant.instances() == {}


def test_cancel_ends_jobs_and_instances(tenant: Tenant) -> None:
    one, other = tenant.pooled("waa"), tenant.pooled("other", 1)
    run = tenant.submit(one)
    tenant.submit(other)
    cancel(tenant.store, run, tenant.backend())
    assert {tenant.status(name) for name in (run, f"{run}_main-1")} == {"Canceled"}
    assert tenant.instances() == {expected(other)[0]: "Running"}


def test_cancel_deletes_the_instances_of_a_run_that_wrote_its_result_first(tenant: Tenant) -> None:
    """Its nodes saw cancel.json before Azure was asked; or the launcher of the first cancel died."""
    one = tenant.pooled("waa")
    run = tenant.submit(one)
    for name in (run, f"{run}_main-1"):
        tenant.azure.admin("set", name=name, status="Completed")
    result = Result("cancelled", 1, Reason.CANCELLED, "", 0.0, "n", "w")
    tenant.store.create(RunKeys(run).result, msgspec.json.encode(result))
    assert cancel(tenant.store, run, tenant.backend()).state == "cancelled"
    assert tenant.instances() == {}


def test_a_job_that_does_not_end_keeps_no_instance(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tenant.pooled("waa")
    run = tenant.submit(one)
    monkeypatch.setattr(backend, "ENDING", -1.0)
    monkeypatch.setattr(Workspace, "cancel", lambda self, name: None)
    with pytest.raises(Unreachable, match="has not ended"):
        cancel(tenant.store, run, tenant.backend())
    assert tenant.instances() == {}


# reap


def test_reap_deletes_the_instances_of_runs_that_are_over(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    over, living = tenant.pooled("over"), tenant.pooled("living")
    run = tenant.submit(over)
    tenant.submit(living)
    assert reaped(tenant) == []
    tenant.azure.admin("set", name=run, status="Completed")
    tenant.azure.admin("set", name=f"{run}_main-1", status="Completed")
    result = Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n", "w")
    tenant.store.create(RunKeys(run).result, msgspec.json.encode(result))
    assert reaped(tenant) == []  # five minutes are its processes' to end
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    (planned,) = reaped(tenant, plan=True)
    assert len(tenant.instances()) == 4
    assert reaped(tenant) == [planned]
    assert (planned.run, planned.did) == (run, "stopped")
    assert sorted(tenant.instances()) == sorted(expected(living))
    assert reaped(tenant) == []


def test_reap_deletes_what_a_cancelled_launcher_made_afterwards(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    one = tenant.pooled("waa", 1)
    tenant.store.create(RunKeys(run_id(one)).job, encode_job(one))
    cancel(tenant.store, run_id(one), tenant.backend())
    tenant.submit(one)  # it had looked for the cancel before
    reaped(tenant)
    assert tenant.instances() == {}
    assert tenant.status(run_id(one)) == "Canceled"


def test_reap_only_reports_the_instances_of_others(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another store's run; of somebody who copied our tags; of somebody whose name begins as ours do."""
    monkeypatch.setattr(unused, "GRACE", 0.0)
    monkeypatch.setattr(unused, "LEAVING", -1.0)
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    theirs, over = tenant.pooled("theirs", 1), tenant.pooled("over", 1)
    finish_unsent(tenant, over)
    (document,) = [each for each in documents(theirs) if each["type"] == INSTANCE]
    tags = {**document["tags"], "slipway-store": "az://theirs/x?account=a"}
    copied = {**documents(over)[0]["tags"], "slipway-store": "az://x/y"}
    inner = {"vmSize": "STANDARD_D8_V3", "state": "Running"}
    instances = {
        document["name"]: {**inner, "tags": tags},
        "mine": {**inner, "tags": copied},
        "slipway-0000000000000000": inner,
    }
    tenant.azure.admin("settings", instances=instances)
    rows = [*reaped(tenant), *reaped(tenant)]
    assert {(row.run, row.did) for row in rows} == {(run_id(theirs), "unknown")}
    assert tenant.azure.ledger("deleted") == []


def finish_unsent(tenant: Tenant, one: ResolvedJob) -> None:
    tenant.store.create(RunKeys(run_id(one)).job, encode_job(one))
    result = Result("failed", 1, Reason.INFRASTRUCTURE, "", 0.0, "n", "w")
    tenant.store.create(RunKeys(run_id(one)).result, msgspec.json.encode(result))


def test_what_a_dead_launcher_left_is_stopped_by_azure_and_deleted_by_reap(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run lives: who submits it again needs them. Azure stops them after half an hour; an hour later they go."""
    one = tenant.pooled("waa")
    with pytest.raises(NotMadeYet):
        tenant.submit(one, tenant.backend(waiting=0.0))
    assert [row.did for row in reaped(tenant)] == ["unsubmitted"]
    assert len(tenant.instances()) == 2
    tenant.azure.admin("clock", add=1900.0)
    until(lambda: set(tenant.instances().values()) == {"Stopped"}, tenant.instances)
    reaped(tenant)
    monkeypatch.setattr(unused, "GRACE", 0.0)
    assert [row.did for row in reaped(tenant)] == ["stopped", "stopped", "unsubmitted"]
    until(lambda: tenant.instances() == {}, tenant.instances)
    tenant.submit(one)  # it can begin all the same
    assert len(tenant.created()) == 2


def test_an_instance_that_runs_longer_than_it_may_is_ended(tenant: Tenant) -> None:
    """Whatever kept its processor busy so that Azure did not stop it. 600 s of deadline, 30 s until it counts as dead,
    2 x 2 s of grace, an hour to load and end, twice half an hour idle: 7834 s."""
    one = tenant.pooled("waa", 1)
    tenant.store.create(RunKeys(run_id(one)).job, encode_job(one))
    (document,) = [each for each in documents(one) if each["type"] == INSTANCE]
    assert document["tags"]["slipway-seconds"] == "7834"
    (made,) = expected(one)

    def since(seconds: float, **last: Any) -> dict[str, Any]:
        began = (
            (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "0Z")
        )  # 7 digits, as Azure
        inner = {"vmSize": "STANDARD_D8_V3", "state": "Running", "lastOperation": last}
        given = {"computeType": "ComputeInstance", "createdOn": began, "properties": inner}
        return {"id": "x", "name": made, "location": "eastus", "tags": document["tags"], "properties": given}

    def overdue(body: dict[str, Any]) -> str:
        found = ours(body, PLACED)
        assert found is not None
        return found.overdue

    assert overdue(since(7800)) == ""
    assert overdue(since(7900)) == f"{made} has run for 2.2 h, and may for 2.2 h"
    started = {"operationName": "Start", "operationTime": datetime.now(UTC).isoformat()}
    assert overdue(since(7900, **started)) == ""
    assert overdue(since(7900, operationName="Start", operationTime="")) == ""  # nobody knows since when


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("delete resource", "500"),
        ("delete resource", "drop_after"),
        ("delete resource", "403"),
        ("get resource", "500"),
        ("get resource", "drop_after"),
        ("computes", "500"),
        ("computes", "403"),
    ],
)
def test_a_fault_of_a_reaper_leaves_nothing_for_ever(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, call: str, kind: str
) -> None:
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    monkeypatch.setattr("launcher.backends.azureml.workspace.REPEATS", 0)
    one = tenant.pooled("waa")
    run = tenant.submit(one)
    finish(tenant, run)
    tenant.fault(call, kind, 1)
    assert [row.did for row in reaped(tenant)] != []
    reaped(tenant)
    until(lambda: tenant.instances() == {}, tenant.instances)
    assert reaped(tenant) == []


@pytest.mark.parametrize("numbers", [range(4, 25, 8), pytest.param(range(1, 50), marks=pytest.mark.nightly)])
def test_reapers_that_are_killed_between_any_two_requests(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, numbers: range
) -> None:
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    at = killing(monkeypatch)
    kills = 0
    for number in numbers:
        tenant.azure.admin("reset")
        tenant.azure.admin("made", making=5.0, changing=2.0)
        one = tenant.pooled(f"waa{number}")
        at(0)
        finish(tenant, tenant.submit(one))
        at(number)
        try:
            reaped(tenant)
        except Killed:
            kills += 1
        at(0)
        reaped(tenant)
        assert tenant.instances() == {}
    assert kills >= 2
