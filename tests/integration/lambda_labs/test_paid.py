"""`launcher status --paid` on a stand-in for Lambda Cloud: what costs money now, seen from any machine."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
from pathlib import Path

import msgspec
import pytest

from launcher.backends.lambda_labs import api
from launcher.cli import main
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.store.layout import RunKeys
from launcher.store.opening import make_store, open_store
from launcher.verbs import paid
from tests.integration.lambda_labs.conftest import Account, at_laptop
from tests.support.waiting import until

Capture = pytest.CaptureFixture[str]
UNKNOWN = "disk unknown, us-east-1, size not known"
PROFILE = "backend: lambda\nlambda: {ssh_key: laptop, instance_types: [gpu_1x_a10]}\n"


@pytest.fixture(autouse=True)
def laptop(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that knows the store and the account, and has submitted nothing."""
    at_laptop(account, tmp_path / "laptop", PROFILE, monkeypatch)


def ask(capsys: Capture, code: int = 0) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["status", "--paid", "-o", "json"]) == code
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_a_machine_is_listed_with_its_price_and_deadline(account: Account, capsys: Capture) -> None:
    """The stand-in asks 75 cents for an A10; the job's deadline is 600 s, and nothing of it has run."""
    assert ask(capsys) == []
    made = account.job("train", labels={"team": "a"})
    machine = account.submit(made)
    (item,) = ask(capsys)
    assert (item["run"], item["backend"], item["what"]) == (run_id(made), "lambda", f"gpu_1x_a10 {machine}")
    assert (item["hourly"], item["currency"], item["deadline_left_s"]) == (0.75, "USD", 600.0)
    assert main(["status", "--paid", "-l", "team=a"]) == 0
    assert "1 run: 0.75 USD per hour" in capsys.readouterr().out
    assert main(["status", "--paid", "-l", "team=b"]) == 0
    assert run_id(made) not in capsys.readouterr().out


def test_a_machine_of_which_lambda_does_not_say_since_when_it_is_billed_is_not_free(
    account: Account, capsys: Capture
) -> None:
    """The public client has no `first_healthy`: two hours of an active machine cost 0.00."""
    account.cloud.admin("settings", tells_health=False)
    made = account.job("train")

    machine = account.submit(made)

    until(lambda: account.cloud.bodies()[0]["status"] == "active")
    (item,) = ask(capsys)
    assert (item["run"], item["hourly"]) == (run_id(made), 0.75)
    assert item["since"] is not None
    assert isinstance(item["cost"], float)
    assert item["cost"] > 0
    backend = account.backend()
    handle = backend.find([run_id(made)])[run_id(made)]
    backend.cancel([handle])
    assert main(["cost", "-o", "json"]) == 0
    (cost,) = json.loads(capsys.readouterr().out)
    assert (cost["bound"], cost["cost"] > 0) == (True, True)
    assert main(["cost"]) == 0
    assert "at most 0.0" in capsys.readouterr().out
    assert machine


def test_the_profiles_price_comes_first(account: Account, capsys: Capture) -> None:
    account.submit(account.job("train"))
    Path("slipway.yaml").write_text(PROFILE + "prices: {lambda/gpu_1x_a10: 0.60 EUR}\n")
    (item,) = ask(capsys)
    assert (item["hourly"], item["currency"]) == (0.6, "EUR")


def test_a_machine_that_outlives_its_run_is_listed_with_what_ends_it(account: Account, capsys: Capture) -> None:
    made = account.job("train")
    account.submit(made)
    result = Result("failed", 0, Reason.LOST, "", 0.0, "n")
    account.store.create(RunKeys(run_id(made)).result, msgspec.json.encode(result))
    (item,) = ask(capsys)
    ends = "`launcher reap --backend lambda` ends it, 5 min after the run's end at the earliest"
    assert item["why"] == f"the run has failed: {ends}"
    stored = Path(account.store.url.removeprefix("file://")) / RunKeys(run_id(made)).result
    os.utime(stored, (1_780_000_000, 1_780_000_000))  # reap gives a run's last processes five minutes to end
    assert main(str(item["why"]).split("`")[1].split()[1:]) == 0
    assert ask(capsys) == []


def test_a_machine_that_outlives_its_run_is_counted_until_now(account: Account, capsys: Capture) -> None:
    """A run that failed at once, an hour ago, and nobody ended its machine since: 61 minutes, in full ones, at 75 cents
    an hour. The run's own record ends with it, before Lambda's first health check."""
    made = account.job("train")
    machine = account.submit(made)
    result = Result("failed", 0, Reason.CONFIG_ERROR, "", 0.0, "n")
    account.store.create(RunKeys(run_id(made)).result, msgspec.json.encode(result))
    account.cloud.admin("instance", id=machine, launched=-3610.0, boot=0.0)
    (item,) = ask(capsys)
    assert item["cost"] == pytest.approx(0.75 * 61 / 60, abs=1e-6)


def test_a_machine_of_another_store_is_listed_too(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    account.submit(account.job("train"))
    other = (tmp_path / "other").as_uri()
    make_store(open_store(other))
    monkeypatch.setenv("SLIPWAY_STORE", other)
    (item,) = ask(capsys)
    assert (item["why"], item["hourly"]) == ("its run is not in this store", 0.75)


def test_a_backend_that_does_not_answer_is_named(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(paid, "PATIENCE", 1.5)
    monkeypatch.setattr(api, "PATIENCE", 3.0)
    account.submit(account.job("train"))
    account.cloud.close()
    assert ask(capsys, code=4) == []
    assert main(["status", "--paid"]) == 4
    assert "lambda does not answer, what it has is not listed" in capsys.readouterr().err
    for thread in threading.enumerate():
        if thread.name.startswith("paid "):  # in the command line it ends with the process; here with the next test
            thread.join()


def test_where_nothing_can_cost_money_nobody_is_asked(account: Account, capsys: Capture) -> None:
    account.cloud.close()
    Path("slipway.yaml").write_text("backend: local\n")
    assert main(["status", "--paid"]) == 0
    assert "no backend of the profile costs money" in capsys.readouterr().err


def test_disks_are_listed_with_what_they_cost(account: Account, capsys: Capture) -> None:
    """200 GiB at .20 USD a month: 40 USD in 730 hours. A disk without bytes costs nothing."""
    account.cloud.admin(
        "settings",
        disks={
            "idle": {"bytes_used": 200 << 30},
            "data": {"bytes_used": 1 << 30, "is_in_use": True, "region": "us-west-1"},
            "empty": {"bytes_used": 0},
            "unknown": {},
        },
    )
    items = {item["what"]: item for item in ask(capsys)}
    assert [item["hourly"] for item in items.values()] == [None] * 3
    Path("slipway.yaml").write_text(PROFILE + "prices: {lambda/disk: 0.20 USD, lambda/us-west-1/disk: 0.73 USD}\n")
    items = {item["what"]: item for item in ask(capsys)}
    assert list(items) == ["disk idle, us-east-1, 200.0 GiB", "disk data, us-west-1, 1.0 GiB", UNKNOWN]
    assert [item["hourly"] for item in items.values()] == [pytest.approx(40 / 730, abs=1e-6), 0.001, None]
    assert [item["run"] for item in items.values()] == [None] * 3
    assert items[UNKNOWN]["why"] == "no machine uses it: who made it can delete it"
    capsys.readouterr()
    assert main(["status", "--paid"]) == 0
    assert "0 runs and 3 disks: 0.06 USD per hour, 1 without a known price" in capsys.readouterr().out


def test_a_machine_that_somebody_started_by_hand_is_listed(account: Account, capsys: Capture) -> None:
    body = {"instance_type_name": "gpu_1x_a10", "region_name": "us-east-1", "ssh_key_names": ["laptop"], "name": "mine"}
    request = urllib.request.Request(
        f"{account.cloud.address}/api/v1/instance-operations/launch",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {os.environ['LAMBDA_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        (other,) = json.load(answer)["data"]["instance_ids"]
    machine = account.submit(account.job("train"))
    ours, theirs = ask(capsys)
    assert (ours["what"], ours["run"] is not None) == (f"gpu_1x_a10 {machine}", True)
    assert (theirs["what"], theirs["run"]) == (f"machine mine {other}, gpu_1x_a10, us-east-1", None)
    assert (theirs["hourly"], theirs["currency"]) == (0.75, "USD")
    assert main(["status", "--paid"]) == 0
    assert "1 run and 1 machine without a run: 1.50 USD per hour" in capsys.readouterr().out


def test_disks_that_cannot_be_listed_hide_no_machine(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    machine = account.submit(account.job("train"))
    account.cloud.admin("settings", faults=[{"on": "disks", "kind": "unknown", "times": 100_000}])
    monkeypatch.setattr(api, "PATIENCE", 1.0)
    (item,) = ask(capsys, code=4)
    assert item["what"] == f"gpu_1x_a10 {machine}"


def test_the_storage_that_is_paid_has_the_disks_that_nobody_uses(
    account: Account, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 GiB at .20 USD are 40 USD a month."""
    account.cloud.admin("settings", disks={"idle": {"bytes_used": 200 << 30}, "unknown": {"is_in_use": True}})
    Path("slipway.yaml").write_text(PROFILE + "prices: {lambda/disk: 0.20 USD}\n")
    capsys.readouterr()
    assert main(["cost", "--storage", "-o", "json"]) == 0
    disks = {each["disk"]: each for each in json.loads(capsys.readouterr().out) if each["disk"]}
    assert list(disks) == ["lambda, idle, us-east-1", "lambda, unknown, us-east-1"]
    assert [(each["monthly"], each["currency"], each["used"], each["run"]) for each in disks.values()] == [
        (40.0, "USD", False, None),
        (None, None, True, None),
    ]
    assert main(["cost", "--storage"]) == 0
    assert "40.00 USD" in capsys.readouterr().out
    account.cloud.admin("settings", faults=[{"on": "disks", "kind": "unknown", "times": 100_000}])
    monkeypatch.setattr(api, "PATIENCE", 1.0)
    assert main(["cost", "--storage"]) == 4
    assert "launcher cost: lambda does not tell which disks it has" in capsys.readouterr().err
