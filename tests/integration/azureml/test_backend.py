"""What the backend does when answers are lost, logins are wrong, and others have jobs: the unmodified SDK against the
stand-in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from launcher.backends.azureml import names, rest
from launcher.backends.azureml.diagnosis import diagnose
from launcher.backends.azureml.render import documents
from launcher.backends.azureml.workspace import Workspace
from launcher.errors import BadInput, Conflict, Unreachable
from launcher.protocol.records import Placement, Result
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob, Role
from launcher.spec.profile import LocalSettings, Profile
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.cancel import cancel
from launcher.verbs.leftovers import Reaped
from launcher.verbs.reap import reap
from tests.fakes.azureml import cloud
from tests.integration.azureml.conftest import IMAGE, PLACE, Tenant
from tests.support.needs import need
from tests.support.stepping import Killed
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow
ELSEWHERE = "99999999-2222-3333-4444-555555555555"


KINDS = ("drop_before", "drop_after", "500", "after_503", "429")


@pytest.mark.parametrize(
    ("call", "kind", "times"),
    [*((call, kind, 1) for call in ("create", "environment", "get") for kind in KINDS)]
    + [("create", kind, 4) for kind in KINDS],
)
def test_a_lost_answer_makes_no_second_job(tenant: Tenant, call: str, kind: str, times: int) -> None:
    one = tenant.job("one")
    tenant.fault(call, kind, times)
    try:
        tenant.submit(one)
    except Unreachable:  # as many faults as the SDK and the backend have patience for
        tenant.fault(call, kind, 0)
        tenant.submit(one)
    assert tenant.created() == [run_id(one)]
    assert tenant.azure.admin("refused") == []  # the SDK asked nobody else


def test_the_sdk_sends_a_create_again_whose_answer_was_lost(tenant: Tenant) -> None:
    """azure-core's retry policy repeats a PUT by itself, below what the backend sees: the workspace gets it twice, and
    has one job."""
    one = tenant.job("one")
    before = len(tenant.azure.calls())
    tenant.fault("create", "drop_after")
    run = tenant.submit(one)
    assert [call for call in tenant.azure.calls()[before:] if call == "create"] == ["create", "create"]
    assert tenant.created() == [run]


def test_a_run_of_several_roles_is_there_when_its_leader_is(tenant: Tenant) -> None:
    roles = {"agent": Role(("x",), IMAGE, leader=True), "desk": Role(("x",), IMAGE, replicas=2)}
    one = tenant.job("one", roles=roles)
    run = run_id(one)
    tenant.azure.admin("settings", faults=[{"on": "create", "kind": "drop_after", "times": 1}])
    tenant.submit(one)
    assert tenant.created() == [f"{run}_desk", run]
    seen = tenant.backend().look_up(run)
    assert seen is not None
    tenant.backend().cancel([seen.handle])
    assert {tenant.status(name) for name in tenant.created()} == {"Canceled"}


def test_the_same_request_from_any_folder(tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK adds the Git state of the folder that it runs in."""
    need("git")
    repository = tmp_path / "repository"
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.test"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    commit = ["-C", str(repository), *identity, "commit", "-qm", "x", "--allow-empty"]
    subprocess.run(["git", *commit], check=True)
    monkeypatch.chdir(repository)
    one = tenant.job("one")
    run = tenant.submit(one)
    (document,) = documents(one)
    assert tenant.azure.bodies()[run]["properties"] == rest.body(document, cloud.ID)["properties"]


@pytest.mark.parametrize("field", ["command", "environmentVariables", "environmentId", "computeId"])
def test_a_job_of_our_name_that_runs_something_else_is_a_conflict(tenant: Tenant, field: str) -> None:
    one = tenant.job("one")
    (document,) = documents(one)
    body = rest.body(document, cloud.ID)
    changed = {
        "command": "python mine.py",
        "environmentVariables": {**document["environment_variables"], "SLIPWAY_STORE": "az://mine/x"},
        "environmentId": f"{cloud.ID}/environments/{rest.ANONYMOUS}/versions/{'0' * 64}",
        "computeId": f"{cloud.ID}/computes/cpu",
    }
    body["properties"][field] = changed[field]
    tenant.azure.admin("add", name=run_id(one), body={"properties": body["properties"]})
    with pytest.raises(Conflict, match="does not run what its job says"):
        tenant.submit(one)


def test_a_strangers_job_of_our_name_is_a_conflict(tenant: Tenant) -> None:
    one = tenant.job("one")
    body = rest.body(documents(one)[0], cloud.ID)
    body["properties"]["properties"] = {}
    tenant.azure.admin("add", name=run_id(one), body={"properties": body["properties"]})
    with pytest.raises(Conflict, match="the workspace has another job under the name"):
        tenant.submit(one)
    assert tenant.backend().look_up(run_id(one)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"subscription": ELSEWHERE}, f"does not see the workspace {ELSEWHERE}/ml/lab"),
        ({"resource_group": "other"}, "Resource group 'other' could not be found"),
        ({"workspace": "other"}, "does not see the workspace"),
    ],
)
def test_a_login_to_another_place_is_not_an_absent_job(tenant: Tenant, change: dict[str, str], said: str) -> None:
    run = tenant.submit(tenant.job("one"))
    backend = tenant.backend(**change)
    for ask in (lambda: backend.look_up(run), lambda: list(backend.mine()), lambda: backend.check([tenant.job("two")])):
        with pytest.raises(Unreachable):
            ask()
    with pytest.raises(Unreachable) as refused:
        backend.look_up(run)
    assert said in str(refused.value)
    assert "az account set --subscription" in str(refused.value)
    assert [row.did for row in reaped(tenant, backend)] == ["unreachable"]
    assert tenant.azure.ledger("cancelled") == []


def reaped(tenant: Tenant, backend: object) -> list[Reaped]:
    cache = Cache(tenant.path / "cache.sqlite")
    rows = reap(tenant.store, lambda job: backend, {"azureml": backend}, cache=cache)  # type: ignore[dict-item, arg-type, return-value]
    return [row for row in rows if row.run == "azureml" or row.did in ("stopped", "ended")]


def test_no_login_and_no_rights_are_said(tenant: Tenant) -> None:
    tenant.azure.admin("settings", rights=False)
    with pytest.raises(Unreachable, match="this login may not do that in"):
        tenant.backend().look_up("one-0123456789ab")
    tenant.azure.admin("settings", rights=True, token=False)
    environ = {**tenant.azure.environ, "AZURE_CLIENT_ID": "55555555-5555-5555-5555-555555555555"}
    code = "from launcher.backends.azureml.workspace import Workspace; import json, sys; "
    code += "Workspace(json.loads(sys.argv[1]), 0.0).get('x')"
    command = [sys.executable, "-c", code, json.dumps(PLACE)]
    done = subprocess.run(command, env={**environ, "PATH": "/usr/bin"}, capture_output=True, text=True, check=False)
    error = done.stderr.splitlines()[-1]
    assert "Azure gives this machine no login: EnvironmentCredential: Authentication failed" in error
    assert error.endswith("or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET")


def test_without_the_sdk_the_way_to_it_is_said(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = tenant.backend(workspace="new")
    monkeypatch.setitem(sys.modules, "azure.ai.ml", None)
    with pytest.raises(BadInput, match=r"the extra `azure` \(missing: azure.ai.ml\).* install .*azure-ai-ml==1.35.2"):
        backend.look_up("one-0123456789ab")


def test_nothing_is_printed_by_the_sdk(tenant: Tenant) -> None:
    code = (
        "import json, sys; from launcher.backends.azureml.workspace import Workspace\n"
        "space = Workspace(json.loads(sys.argv[1])); space.get('nothing'); space.create(json.loads(sys.argv[2]))\n"
        "space.cancel(json.loads(sys.argv[2])['name'])"
    )
    command = [sys.executable, "-c", code, json.dumps(PLACE), json.dumps(documents(tenant.job("one"))[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_compute_that_is_missing_or_too_small_is_refused_before_anything_is_written(tenant: Tenant) -> None:
    missing = tenant.job("one", options={**PLACE, "compute": "none"})
    roles = {"main": Role(("x",), IMAGE, leader=True, replicas=9)}
    with pytest.raises(BadInput, match=r"azureml.compute: there is no cluster `none`; allowed: a cluster of .*/ml/lab"):
        tenant.backend().check([missing])
    with pytest.raises(BadInput, match="replicas: `gpu` has at most 8 nodes; allowed: 8 or fewer"):
        tenant.backend().check([tenant.job("one", roles=roles)])
    with pytest.raises(BadInput, match="a node does not see file:///elsewhere"):
        tenant.backend().check([tenant.job("one", store="file:///elsewhere/store")])
    tenant.backend().check([tenant.job("one")])


@pytest.mark.parametrize("kind", ["drop_before", "drop_after", "500", "after_503"])
def test_a_cancel_whose_answer_is_lost_is_asked_again(tenant: Tenant, kind: str) -> None:
    run = tenant.submit(tenant.job("one"))
    seen = tenant.backend().look_up(run)
    assert seen is not None
    tenant.fault("cancel", kind, 2)
    tenant.backend().cancel([seen.handle])
    assert tenant.status(run) == "Canceled"
    tenant.backend().cancel([seen.handle])


def test_a_preempted_job_starts_again_under_its_name(tenant: Tenant) -> None:
    run = tenant.submit(tenant.job("one"))
    until(lambda: tenant.status(run) == "Running")
    tenant.azure.admin("settings", stuck=True)
    tenant.azure.admin("preempt", name=run)
    seen = tenant.backend().look_up(run)
    assert seen is not None
    assert (seen.active, seen.phase) == (True, "queued")
    tenant.azure.admin("settings", stuck=False)
    until(lambda: len(tenant.azure.ledger("started")) == 2)
    assert tenant.created() == [run]


def test_a_status_that_nobody_knows_is_active_and_an_end_has_its_page(tenant: Tenant) -> None:
    run = tenant.submit(tenant.job("one"))
    backend = tenant.backend()
    placement = Placement(names.KIND, f"{backend.workspace.name}/{run}")
    for status, active, phase in (("Hibernating", True, "starting"), ("NotResponding", True, "starting")):
        tenant.azure.admin("set", name=run, status=status)  # the stand-in leaves it so
        seen = backend.look_up(run)
        assert seen is not None
        assert (seen.active, seen.phase, backend.dead(placement, seen)) == (active, phase, False)
    tenant.azure.admin("set", name=run, status="Failed")
    seen = backend.look_up(run)
    assert seen is not None
    assert (seen.active, seen.reason, backend.dead(placement, seen)) == (False, Reason.INFRASTRUCTURE, True)
    assert seen.evidence.startswith("Azure ML says Failed: https://ml.azure.com/runs/")
    assert not tenant.backend(workspace="other").here(placement, seen)


def test_mine_reads_every_page(tenant: Tenant) -> None:
    runs = {tenant.submit(tenant.job(f"j{number}")) for number in range(2 * cloud.PAGE + 1)}
    tenant.azure.admin(
        "add", name="strangers", body={"properties": {"jobType": "Command", "tags": {}, "resources": {}}}
    )
    assert {seen.handle.run for seen in tenant.backend().mine()} == runs


def result(tenant: Tenant, run: str) -> None:
    record = {"outcome": "succeeded", "attempt": 1, "reason": "succeeded", "message": "", "time": 0, "nonce": "n"}
    tenant.store.create(RunKeys(run).result, msgspec.json.encode(record))


def test_reap_cancels_what_outlived_its_run_and_only_reports_strangers(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, going = tenant.submit(tenant.job("over")), tenant.submit(tenant.job("going"))
    backend = tenant.backend()
    unknown = tenant.job("unknown")
    backend.submit(backend.render([unknown]), [unknown])  # its record was never written, or is in another store
    result(tenant, over)
    monkeypatch.setattr("launcher.verbs.leftovers.LEAVING", -5.0)
    cache = Cache(tenant.path / "cache.sqlite")
    rows = reap(tenant.store, lambda job: backend, {"azureml": backend}, cache=cache)
    assert {(row.run, row.did) for row in rows} == {(over, "stopped"), (run_id(unknown), "unknown")}
    assert tenant.status(over) == "Canceled"
    assert tenant.status(going) in ("NotStarted", "Queued", "Running")
    assert reap(tenant.store, lambda job: backend, {"azureml": backend}, cache=cache, plan=True) == [
        row for row in rows if row.did == "unknown"
    ]


def test_reap_cancels_a_job_whose_nodes_are_silent_by_two_witnesses(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tenant.submit(tenant.job("one"))
    until(lambda: tenant.status(run) == "Running")
    keys = RunKeys(run).attempt(1)
    where = f"{tenant.backend().workspace.name}/{run}"
    claim = {"placement": {"kind": names.KIND, "where": where}, "nonce": "n", "time": 0}
    tenant.store.create(keys.claim("main-0"), msgspec.json.encode(claim))
    tenant.azure.admin("set", name=run, status="NotResponding")
    (seen,) = tenant.backend().mine()
    assert seen.overdue == ""  # it has sent a heartbeat a moment ago
    monkeypatch.setattr("launcher.backends.azureml.unused.SILENT", -3600.0)
    (seen,) = tenant.backend().mine()
    assert seen.overdue.startswith("Azure ML says that its nodes do not respond, and they have been silent for")
    # a spot node was taken back: the job waited, and runs since a moment ago
    for status in ("Queued", "Running"):
        tenant.azure.admin("set", name=run, status=status)
        (seen,) = tenant.backend().mine()
        assert seen.overdue == ""


@pytest.fixture
def lone(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> ResolvedJob:
    """A job of two roles whose launcher died between their jobs: `desk` was sent, and waits for the leading one."""
    roles = {
        "main": Role(("python", "-c", "pass"), image=IMAGE, leader=True),
        "desk": Role(("python", "-c", "pass"), image=IMAGE),
    }
    one = tenant.job("one", roles=roles)
    run, desk = run_id(one), f"{run_id(one)}_desk"
    create = Workspace.create

    def dies(workspace: Workspace, document: Mapping[str, Any]) -> None:
        if document["name"] == run:
            raise Killed
        create(workspace, document)

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "create", dies)
        with pytest.raises(Killed):
            tenant.submit(one)
    assert tenant.created() == [desk]
    until(lambda: tenant.status(desk) == "Running")
    return one


def test_reap_cancels_a_job_that_waits_for_one_that_nobody_sent(
    tenant: Tenant, lone: ResolvedJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody submits again: the first job waits, and is billed."""
    run, desk = run_id(lone), f"{run_id(lone)}_desk"

    def reaped() -> list[Reaped]:
        backend = tenant.backend()
        cache = Cache(tmp_path / "cache")
        return reap(tenant.store, lambda job: backend, {"azureml": backend}, cache=cache)

    where = f"{tenant.backend().workspace.name}/{run}"
    claim = {"placement": {"kind": names.KIND, "where": where}, "nonce": "n", "time": 0}
    tenant.store.create(RunKeys(run).attempt(1).claim("desk-0"), msgspec.json.encode(claim))
    assert [row for row in reaped() if row.did == "stopped"] == []  # a launcher may be about to send it
    with monkeypatch.context() as patched:
        patched.setattr("launcher.backends.azureml.unused.UNSENT", -1.0)
        (row,) = [row for row in reaped() if row.did == "stopped"]
    assert f"{run} was never sent, and the others have waited for it for 0 min" in row.detail
    assert tenant.status(desk) in ("CancelRequested", "Canceled")
    tenant.azure.admin("set", name=desk, status="Running")
    tenant.submit(lone)
    assert [row for row in reaped() if row.did == "stopped"] == []  # it was only late


def test_a_run_of_which_a_job_has_ended_before_the_other_was_sent_is_not_sent_again(
    tenant: Tenant, lone: ResolvedJob
) -> None:
    """The storm's seed 7046: the second job waited two hours for the first, whose name is used up."""
    run, desk = run_id(lone), f"{run_id(lone)}_desk"
    tenant.azure.admin("set", name=desk, status="Canceled")
    with pytest.raises(Conflict, match=f"its job {desk} has ended before {run} was sent, so it cannot begin any more"):
        tenant.submit(lone)
    assert tenant.created() == [desk]
    cancel(tenant.store, run, tenant.backend())  # as the message says
    assert tenant.store.head(RunKeys(run).result) is not None


def test_a_job_that_has_waited_too_long_for_the_other_is_not_joined_by_it(
    tenant: Tenant, lone: ResolvedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storm's seed 31018: the second job was sent 15 minutes before the limit of the first, and waited alone for
    two hours, billed."""
    run, desk = run_id(lone), f"{run_id(lone)}_desk"
    claim = {"placement": {"kind": names.KIND, "where": f"{tenant.backend().workspace.name}/{run}"}, "nonce": "n"}
    key = RunKeys(run).attempt(1).claim("desk-0")
    tenant.store.create(key, msgspec.json.encode({**claim, "time": 0}))
    monkeypatch.setattr("launcher.backends.azureml.unused.UNSENT", -1.0)
    with pytest.raises(Conflict, match=rf"{run} was never sent, .* for 0 min, .* `launcher cancel {run}`"):
        tenant.submit(lone)
    assert tenant.created() == [desk]
    tenant.store.delete([key])  # it waits in a queue: that costs nothing, and ends nowhere
    tenant.submit(lone)
    assert sorted(tenant.created()) == [run, desk]


def test_reap_ends_a_run_of_which_a_job_has_ended_before_the_other_was_sent(
    tenant: Tenant, lone: ResolvedJob, tmp_path: Path
) -> None:
    """The storm's seed 16162: submit refused it for good, and reap said that it should be submitted again."""
    run, desk = run_id(lone), f"{run_id(lone)}_desk"
    backend = tenant.backend()

    def reaped() -> list[tuple[str, str]]:
        rows = reap(tenant.store, lambda job: backend, {"azureml": backend}, cache=Cache(tmp_path / "cache"))
        return [(row.run, row.did) for row in rows]

    assert reaped() == [(run, "unsubmitted")]  # it waits, and the leading one may still be sent
    tenant.azure.admin("set", name=desk, status="Failed")
    tenant.fault("get", "403", 100)  # nobody who is not answered concludes anything
    assert (run, "ended") not in reaped()
    tenant.fault("get", "403", 0)
    assert tenant.store.head(RunKeys(run).result) is None
    assert reaped() == [(run, "ended")]
    result = msgspec.json.decode(tenant.store.get(RunKeys(run).result), type=Result)
    assert (result.outcome, result.reason) == ("failed", Reason.INFRASTRUCTURE)
    assert f"{desk} has ended (Failed) before {run} was sent" in result.message
    assert reaped() == []
    assert tenant.created() == [desk]


@pytest.mark.parametrize("claimed", [False, True])
def test_cancel_ends_the_job_of_a_run_whose_leading_one_was_never_sent(
    tenant: Tenant, lone: ResolvedJob, claimed: bool
) -> None:
    """It waited, and was billed, until `reap` looked; without a reaper until its limit."""
    run, desk = run_id(lone), f"{run_id(lone)}_desk"
    if claimed:
        where = f"{tenant.backend().workspace.name}/{run}"
        claim = {"placement": {"kind": names.KIND, "where": where}, "nonce": "n", "time": 0}
        tenant.store.create(RunKeys(run).attempt(1).claim("desk-0"), msgspec.json.encode(claim))
    tenant.fault("get", "403", 100)
    with pytest.raises(Unreachable):
        cancel(tenant.store, run, tenant.backend())
    assert tenant.store.head(RunKeys(run).result) is None
    tenant.fault("get", "403", 0)
    assert cancel(tenant.store, run, tenant.backend()).state == "cancelled"
    assert tenant.status(desk) == "Canceled"
    result = msgspec.json.decode(tenant.store.get(RunKeys(run).result), type=Result)
    assert (result.outcome, result.reason) == ("cancelled", Reason.CANCELLED)


def test_cancel_leaves_a_strangers_job_of_our_name(tenant: Tenant, lone: ResolvedJob) -> None:
    desk = f"{run_id(lone)}_desk"
    body = rest.body(documents(lone)[0], cloud.ID)
    body["properties"]["properties"] = {}
    tenant.azure.admin("reset")
    tenant.azure.admin("add", name=desk, body={"properties": body["properties"]})
    tenant.azure.admin("set", name=desk, status="Running")
    cancel(tenant.store, run_id(lone), tenant.backend())
    assert tenant.status(desk) == "Running"


def profile(**block: str) -> Profile:
    return Profile("file:///x", LocalSettings(Path("/x")), blocks={"azureml": block} if block else {})


def test_doctor_says_which_subscription_is_meant(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = diagnose(profile())
    assert (line.state, "not set up" in line.detail) == ("ok", True)
    (line,) = diagnose(profile(**PLACE))
    assert (line.state, line.detail) == ("ok", f"this login sees the workspace {PLACE['subscription']}/ml/lab")
    (tenant.path / "az").mkdir()
    known = {"subscriptions": [{"id": ELSEWHERE, "isDefault": True}, {"id": PLACE["subscription"], "isDefault": False}]}
    (tenant.path / "az" / "azureProfile.json").write_text(json.dumps(known), encoding="utf-8-sig")
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", ELSEWHERE)
    states = [(line.state, line.detail.partition(" is ")[0]) for line in diagnose(profile(**PLACE))][1:]
    assert states == [("warning", "AZURE_SUBSCRIPTION_ID"), ("warning", "the subscription of `az`")]
    (line,) = diagnose(profile(**{**PLACE, "subscription": ELSEWHERE}))
    assert (line.state, line.code) == ("failed", 4)


def test_a_rendered_file_of_another_run_is_a_conflict(tenant: Tenant) -> None:
    one, two = tenant.job("one"), tenant.job("two")
    backend = tenant.backend()
    rendered = backend.render([one])
    text = rendered.documents[f"{run_id(one)}.yaml"]
    forged = replace(rendered, documents={"x.yaml": text}, objects={run_id(two): "x.yaml"})
    with pytest.raises(Conflict, match="does not carry"):
        backend.submit(forged, [two])
    assert tenant.created() == []
