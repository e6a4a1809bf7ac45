"""`launcher status --paid` on a stand-in for Lambda Cloud: what costs money now, seen from any machine."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import msgspec
import pytest

from launcher.cli import main
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.store.layout import RunKeys
from launcher.store.opening import make_store, open_store
from launcher.verbs import paid
from tests.unit.lambda_labs.conftest import Account

Capture = pytest.CaptureFixture[str]
PROFILE = "backend: lambda\nlambda: {ssh_key: laptop, instance_types: [gpu_1x_a10]}\n"


@pytest.fixture(autouse=True)
def laptop(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that knows the store and the account, and has submitted nothing."""
    folder = tmp_path / "laptop"
    folder.mkdir()
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    make_store(account.store)
    monkeypatch.setenv("SLIPWAY_STORE", account.store.url)
    (folder / "slipway.yaml").write_text(PROFILE)
    monkeypatch.chdir(folder)


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
    assert item["why"] == "the run has failed: `launcher reap --backend lambda` ends it"
    stored = Path(account.store.url.removeprefix("file://")) / RunKeys(run_id(made)).result
    os.utime(stored, (1_780_000_000, 1_780_000_000))  # reap gives a run's last processes five minutes to end
    assert main(str(item["why"]).split("`")[1].split()[1:]) == 0
    assert ask(capsys) == []


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
