"""Nothing is billed for ever: cancel and reap, judged by the stand-in for Lambda Cloud."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.backends.lambda_labs import ending, names
from launcher.backends.lambda_labs.api import LambdaApi
from launcher.errors import Unreachable
from launcher.protocol.records import Beat, Cancel, Claim, Placement, Result
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs import leftovers, reap
from launcher.verbs.cancel import cancel
from tests.integration.lambda_labs.conftest import SPEED, Account
from tests.support.stepping import Killed


def statuses(account: Account) -> list[str]:
    return [each["status"] for each in account.cloud.bodies()]


def reaped(account: Account, tmp_path: Path) -> list[leftovers.Reaped]:
    backend = account.backend()
    return reap.reap(account.store, lambda job: backend, {"lambda": backend}, cache=Cache(tmp_path / "cache"))


def test_cancel_ends_the_machine_of_a_run_that_wrote_its_result_first(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime saw cancel.json before Lambda was asked: nothing runs there any more, and the machine is billed."""
    one = account.job("one")
    account.submit(one)
    backend = account.backend()
    look = backend.look_up

    def late(run: str) -> object:
        result = Result("cancelled", 1, Reason.CANCELLED, "", 0.0, "n", "runtime")
        account.store.create(RunKeys(run).result, msgspec.json.encode(result))
        return look(run)

    monkeypatch.setattr(backend, "look_up", late)
    assert cancel(account.store, run_id(one), backend).state in ("stopping", "cancelled")
    assert set(statuses(account)) <= {"terminating", "terminated"}


def test_cancel_again_ends_what_the_first_could_not(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    one = account.job("one")
    account.submit(one)
    with monkeypatch.context() as deaf:
        deaf.setattr(ending, "PATIENCE", 0)
        with pytest.raises(Unreachable, match="still lives"):
            cancel(account.store, run_id(one), account.backend())
    result = Result("cancelled", 1, Reason.CANCELLED, "", 0.0, "n", "runtime")
    account.store.create(RunKeys(run_id(one)).result, msgspec.json.encode(result))
    assert cancel(account.store, run_id(one), account.backend()).state == "cancelled"
    assert set(statuses(account)) <= {"terminating", "terminated"}


@pytest.mark.parametrize("kind", ["", "drop_before", "drop_after", "unknown", "unknown_after", "500"])
def test_cancel_returns_when_the_machine_was_seen_gone(
    account: Account, settings: Callable[..., object], kind: str
) -> None:
    """SkyPilot 3410, dstack 1551: the answer to `terminate` says nothing; the next looks do."""
    one = account.job("one")
    account.submit(one)
    settings(faults=[{"on": "terminate", "kind": kind, "times": 1}] if kind else [])
    backend = account.backend()
    seen = backend.look_up(run_id(one))
    assert seen is not None
    backend.cancel([seen.handle])
    assert set(statuses(account)) <= {"terminating", "terminated"}
    backend.cancel([seen.handle])
    gone = account.backend().look_up(run_id(one))
    assert gone is not None
    assert (gone.active, gone.phase, gone.billed) == (False, "gone", False)


def test_terminate_that_is_refused_again_and_again(account: Account, settings: Callable[..., object]) -> None:
    """SkyPilot 3410: `global/unknown` to every request for a while. Nothing is given up, and the machine is gone at the
    end."""
    one = account.job("one")
    account.submit(one)
    settings(faults=[{"on": "terminate", "kind": "unknown", "times": 5}])
    backend = account.backend()
    seen = backend.look_up(run_id(one))
    assert seen is not None
    backend.cancel([seen.handle])
    assert set(statuses(account)) <= {"terminating", "terminated"}


def test_a_termination_that_never_takes_effect_is_told_and_tried_again_by_the_next(
    account: Account, settings: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """dstack 1551: an end that nobody verified. The machine is named, and the next reaper or cancel goes on."""
    monkeypatch.setattr(ending, "PATIENCE", 20)
    one = account.job("one")
    machine = account.submit(one)
    settings(faults=[{"on": "terminate", "kind": "500", "times": 1000}])
    backend = account.backend()
    seen = backend.look_up(run_id(one))
    assert seen is not None
    with pytest.raises(
        Unreachable, match=f"machine {machine} still lives, and is billed, after 20 looks: Lambda fails"
    ):
        backend.cancel([seen.handle])
    settings(faults=[])
    account.backend().cancel([seen.handle])
    assert set(statuses(account)) <= {"terminating", "terminated"}


@pytest.mark.parametrize("nodes", [1, 2])
def test_cancel_ends_a_machine_that_no_list_shows_yet_and_whose_launcher_was_killed(
    account: Account, settings: Callable[..., object], monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    """Nothing names its id, and it would be billed until `reap` finds it. One of two machines may be there already."""
    settings(list_lag=0.6 * SPEED)
    one = account.nodes("one", nodes)
    backend = account.backend(timeout=1.0, settle=0.5)
    once, asked = backend.api._once, []

    def cut(*arguments: Any) -> bytes:
        answer: bytes = once(*arguments)
        if arguments[0] == "POST":
            asked.append(answer)
            if len(asked) == nodes:
                raise Killed
        return answer

    monkeypatch.setattr(backend.api, "_once", cut)
    with pytest.raises(Killed):
        account.submit(one, backend)
    assert len(account.launches()) == nodes
    cancel(account.store, run_id(one), account.backend(timeout=1.0, settle=0.5))
    assert len(statuses(account)) == nodes
    assert set(statuses(account)) <= {"terminating", "terminated"}
    if nodes == 1:  # of two, one was seen, and might have a process that writes it
        assert account.store.head(RunKeys(run_id(one)).result) is not None


def test_a_list_that_shows_what_was_terminated_for_an_hour_bills_and_ends_nothing_again(
    account: Account, settings: Callable[..., object], tmp_path: Path
) -> None:
    one = account.job("one")
    account.submit(one)
    settings(terminating=3600.0)
    cancel(account.store, run_id(one), account.backend())
    asked = len(account.cloud.ledger("terminated"))
    assert statuses(account) == ["terminating"]
    assert [row.did for row in reaped(account, tmp_path) if row.did == "stopped"] == []
    seen = account.backend().look_up(run_id(one))
    assert seen is None or not seen.billed
    assert len(account.cloud.ledger("terminated")) == asked


def untagged(monkeypatch: pytest.MonkeyPatch, edited: str) -> None:
    """As if a person had taken off a tag, or all."""
    send = LambdaApi._send

    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(each) for each in value]
        if isinstance(value, dict):
            kept = {key: without(each) for key, each in value.items()}
            if isinstance(tags := kept.get("tags"), list):
                kept["tags"] = [each for each in tags if edited not in (each["key"], "all")]
            return kept
        return value

    def changed(api: LambdaApi, method: str, path: str, body: Any = None) -> bytes:
        return msgspec.json.encode(without(msgspec.json.decode(send(api, method, path, body))))

    monkeypatch.setattr(LambdaApi, "_send", changed)


@pytest.mark.parametrize("edited", ["slipway:run", "slipway:store", "all"])
def test_tags_that_somebody_edited_hide_no_machine_from_cancel(
    account: Account, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    """Anybody with the account's login can. The store knows the machine by its id."""
    one = account.job("one")
    account.submit(one)
    untagged(monkeypatch, edited)
    cancel(account.store, run_id(one), account.backend())
    assert set(statuses(account)) <= {"terminating", "terminated"}


def test_reap_ends_the_machine_of_a_finished_run_and_reports_strangers(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    done, other = account.job("done"), account.job("other")
    account.submit(done)
    account.submit(other)
    body = msgspec.json.encode(Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n"))
    account.store.create(RunKeys(run_id(done)).result, body)
    account.store.delete([RunKeys(run_id(other)).job])  # as if of another store
    rows = {row.run: row for row in reaped(account, tmp_path) if row.did in ("stopped", "unknown")}
    assert (rows[run_id(done)].did, rows[run_id(other)].did) == ("stopped", "unknown")
    by_run = {each["body"]["name"]: each["status"] for each in account.cloud.bodies()}
    assert by_run[f"{run_id(done)}-main-0"].startswith("terminat")
    assert not by_run[f"{run_id(other)}-main-0"].startswith("terminat")


def test_reap_asks_for_the_end_of_all_before_it_waits_for_any_and_one_that_stays_hides_no_other(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    monkeypatch.setattr(ending, "PATIENCE", 5)
    jobs = [account.job(name) for name in ("one", "two", "three")]
    machines = [account.submit(job) for job in jobs]
    body = msgspec.json.encode(Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n"))
    for job in jobs:
        account.store.create(RunKeys(run_id(job)).result, body)
    asked: list[str] = []
    terminate, look = LambdaApi.terminate, LambdaApi.instance

    def stubborn(api: LambdaApi, ids: list[str]) -> None:
        asked.extend(f"end {each}" for each in ids)
        if ids != [machines[1]]:
            terminate(api, ids)

    def looked(api: LambdaApi, instance_id: str) -> Any:
        asked.append(f"look {instance_id}")
        return look(api, instance_id)

    monkeypatch.setattr(LambdaApi, "terminate", stubborn)
    monkeypatch.setattr(LambdaApi, "instance", looked)
    rows = {row.run: row for row in reaped(account, tmp_path)}
    first, last = asked.index(f"end {min(machines)}"), asked.index(f"end {max(machines)}")
    assert not [each for each in asked[first:last] if each.startswith("look")]
    assert [rows[run_id(job)].did for job in jobs] == ["stopped", "unreachable", "stopped"]
    assert f"machine {machines[1]} still lives" in rows[run_id(jobs[1])].detail
    assert [each["status"].startswith("terminat") for each in account.cloud.bodies()] == [True, False, True]


@pytest.mark.parametrize("edited", ["slipway:run", "slipway:account", "all"])
@pytest.mark.parametrize("over", ["finished", "cancelled", "expired", "living", "not ours"])
def test_a_machine_that_lost_its_tags_is_ended_by_its_records_alone(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str, over: str
) -> None:
    """Its name says the run, and the run's record has exactly its id: two witnesses."""
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    one = account.job("one")
    keys, machine = RunKeys(run_id(one)), account.submit(one)
    if over in ("finished", "not ours"):
        account.store.create(keys.result, msgspec.json.encode(Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n")))
    elif over == "cancelled":
        account.store.create(keys.cancel, msgspec.json.encode(Cancel("me", 0.0, "n")))
    elif over == "expired":
        monkeypatch.setattr(ending, "LATE", -10000.0)
    if over == "not ours":  # somebody's machine of the same name: no record has its id
        account.store.delete([meta.key for meta in account.store.scan(keys.events)])
    untagged(monkeypatch, edited)
    backend = account.backend()
    strange = [each.what for each in backend.others()]
    assert (machine in "".join(strange)) == (over == "not ours")
    told = reap.reap(
        account.store, lambda job: backend, {"lambda": backend}, cache=Cache(tmp_path / "planned"), plan=True
    )
    assert statuses(account)[0] in ("booting", "active")
    stopped = [row for row in reaped(account, tmp_path) if row.did == "stopped"]
    assert [row.run for row in told if row.did == "stopped"] == [row.run for row in stopped]
    if over in ("living", "not ours"):
        assert stopped == []
        assert statuses(account)[0] in ("booting", "active")
        return
    assert [row.run for row in stopped] == [run_id(one)]
    assert statuses(account)[0].startswith("terminat")


def test_a_wrong_key_is_told_once(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "wrong")
    (row,) = reaped(account, tmp_path)
    assert (row.run, row.did) == ("lambda", "unreachable")
    assert "API key was invalid" in row.detail


def claim(account: Account, run: str, member: str = "main-0", launch: str = "m") -> None:
    keys = RunKeys(run).attempt(1)
    placement = Placement(names.KIND, f"default/{run}", host="10.0.2.1", boot="b", container=launch)
    account.store.create(keys.claim(member), msgspec.json.encode(Claim(placement, "n", 0.0)))
    account.store.put(keys.beat(member), msgspec.json.encode(Beat(1, "running")))


@pytest.mark.parametrize(
    ("limits", "claimed", "why"),
    [
        ({"LATE": -10000.0}, True, "past its deadline"),
        ({"UNCLAIMED": -1.0}, False, "has started no runtime"),
        ({"SILENT": -1000.0, "UNCLAIMED": -1000.0}, True, "silent for"),
        ({}, True, ""),
        ({}, False, ""),
    ],
)
def test_reap_ends_what_is_expired_unclaimed_or_silent_and_nothing_else(
    account: Account,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    claimed: bool,
    why: str,
) -> None:
    one = account.job("one")
    account.submit(one)
    if claimed:
        claim(account, run_id(one))
    for name, value in limits.items():
        monkeypatch.setattr(ending, name, value)
    rows = reaped(account, tmp_path)
    stopped = [row for row in rows if row.did == "stopped"]
    if not why:
        assert stopped == []
        assert statuses(account)[0] in ("booting", "active")
        return
    assert stopped, rows
    assert why in stopped[0].detail
    assert statuses(account)[0].startswith("terminat")
    if not claimed:  # no process will ever write its end: the reaper does
        assert [row.did for row in rows] == ["stopped", "ended"]
    assert reaped(account, tmp_path) == []


def tag(body: dict[str, Any], key: str) -> str:
    return next(str(tag["value"]) for tag in body["tags"] if tag["key"] == key)


def test_a_second_machine_of_a_member_is_ended_early_and_the_one_that_works_is_left(
    account: Account, tmp_path: Path, settings: Callable[..., object]
) -> None:
    """A list that lags for longer than a launcher waits: two machines. Which of them works says the runtime's claim."""
    one = account.job("one")
    settings(list_lag=1e6, faults=[{"on": "launch", "kind": "drop_after", "times": 1}])
    account.submit(one)
    settings(list_lag=0.0)
    first, second = account.cloud.bodies()
    account.cloud.admin("instance", id=first["id"], visible=0.0)
    account.cloud.admin("instance", id=second["id"], visible=0.0)
    assert [row for row in reaped(account, tmp_path) if row.did == "stopped"] == []  # nobody has claimed yet
    claim(account, run_id(one), launch=tag(second["body"], names.LAUNCH))
    rows = [row for row in reaped(account, tmp_path) if row.did == "stopped"]
    assert [row.run for row in rows] == [run_id(one)]
    assert f"machine {first['id']} did no work: another one of main-0 does" in rows[0].detail
    ended = {each["id"]: each["status"].startswith("terminat") for each in account.cloud.bodies()}
    assert ended == {first["id"]: True, second["id"]: False}
    assert [row for row in reaped(account, tmp_path) if row.did == "stopped"] == []


def test_the_audit_events_are_a_second_witness(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Callable[..., object]
) -> None:
    """A machine that no list shows is ended at its deadline all the same, also where there are many events."""
    settings(list_lag=1e6, audit_page=2)
    for name in ("a", "b", "c"):
        account.submit(account.job(name))
    monkeypatch.setattr(ending, "LATE", -10000.0)
    settings(audit_refused=True)
    assert [row for row in reaped(account, tmp_path) if row.did == "stopped"] == []  # one witness only
    settings(audit_refused=False)
    account.cloud.admin("clock", add=60)
    assert len([row for row in reaped(account, tmp_path) if row.did == "stopped"]) == 3
    assert all(status.startswith("terminat") for status in statuses(account))


def test_a_run_whose_second_machine_never_came_is_ended(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Callable[..., object]
) -> None:
    """A submit that died between two launches: the first machine would wait, and be billed, until its deadline."""
    two = account.nodes("two", 2)
    settings(quota=1)
    with pytest.raises(Unreachable, match="quota-exceeded"):
        account.submit(two)
    claim(account, run_id(two), "main-0")
    assert [row for row in reaped(account, tmp_path) if row.did == "stopped"] == []
    monkeypatch.setattr(ending, "UNCLAIMED", -1.0)
    rows = reaped(account, tmp_path)
    assert [row.did for row in rows] == ["stopped", "ended"]
    assert "main-1 has had no machine for" in rows[0].detail
    assert reaped(account, tmp_path) == []


def test_a_run_whose_leader_never_came_is_ended(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed set-up of the leader's machine: the other member has claimed, and waits."""
    two = account.nodes("two", 2)
    account.submit(two)
    claim(account, run_id(two), "main-1")
    monkeypatch.setattr(ending, "UNCLAIMED", -1.0)
    rows = reaped(account, tmp_path)
    assert [row.did for row in rows] == ["stopped", "ended"]
    assert "main-0 has started no runtime for" in rows[0].detail
    assert reaped(account, tmp_path) == []
    assert all(status.startswith("terminat") for status in statuses(account))


def test_since_when_a_machine_was_billed_is_kept(account: Account, settings: Callable[..., object]) -> None:
    """Billing begins with the first passed health check; after the end nobody can ask Lambda any more."""
    settings(boot=10.0)
    one = account.job("one")
    machine = account.submit(one)
    account.cloud.admin("clock", add=60)
    backend = account.backend()
    seen = backend.look_up(run_id(one))
    assert seen is not None
    (billed,) = seen.machines
    assert (billed.id, billed.member, billed.type, billed.cents) == (machine, "main-0", "gpu_1x_a10", 75)
    (body,) = account.cloud.bodies()
    assert billed.since == pytest.approx(body["healthy"], abs=1)
    backend.cancel([seen.handle])
    backend.cancel([seen.handle])
    events = [
        msgspec.json.decode(account.store.get(meta.key)) for meta in account.store.scan(RunKeys(run_id(one)).events)
    ]
    (end,) = [event["fields"] for event in events if event["fields"]["state"] == "ending"]
    assert end["instance"] == machine
    assert (end["type"], end["region"], end["cents_per_hour"]) == ("gpu_1x_a10", "us-east-1", "75")
    assert float(end["first_healthy"]) == pytest.approx(billed.since, abs=1)
    assert float(end["at"]) == pytest.approx(account.store.now(), abs=60)
