"""`launcher status --paid` on a stand-in for Azure: what costs money in a workspace beside our jobs."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from launcher.backends.azureml import backend
from launcher.cli import main
from launcher.spec.hashing import run_id
from launcher.spec.profile import load_profile
from launcher.store.opening import make_store
from launcher.userdata.cache import Cache
from launcher.verbs import paid
from tests.integration.azureml.conftest import PLACE, Tenant

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow
RUNNING = {"vmSize": "STANDARD_NC6S_V3", "state": "Running"}


@pytest.fixture(autouse=True)
def laptop(tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that knows the store and the workspace, and has submitted nothing."""
    folder = tmp_path / "laptop"
    folder.mkdir()
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    make_store(tenant.store)
    monkeypatch.setenv("SLIPWAY_STORE", tenant.store.url)
    block = json.dumps({**PLACE, "compute": "gpu"})
    (folder / "slipway.yaml").write_text(f"backend: azureml\nazureml: {block}\n")
    monkeypatch.chdir(folder)


def ask(capsys: Capture, code: int = 0) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["status", "--paid", "-o", "json"]) == code
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_what_nobody_uses_is_listed_with_what_ends_it(tenant: Tenant, capsys: Capture) -> None:
    """Azure's list price of a Standard_NC6s_v3 in eastus is 3.06 USD; it writes the size in capitals."""
    assert ask(capsys) == []
    tenant.azure.admin(
        "settings",
        least={"gpu": 2},
        instances={
            "forgotten": RUNNING,
            "careful": {**RUNNING, "idleTimeBeforeShutdown": "PT30M"},
            "left": {**RUNNING, "state": "Stopped"},
        },
    )
    items = {str(item["what"]): item for item in ask(capsys)}
    assert [(what.partition(",")[0], item["hourly"], item["run"]) for what, item in items.items()] == [
        ("cluster gpu", None, None),
        ("compute instance forgotten", 3.06, None),
        ("compute instance careful", 3.06, None),
        ("compute instance left", None, None),
    ]
    why = {what.partition(",")[0].rpartition(" ")[2]: str(item["why"]) for what, item in items.items()}
    place = f"--resource-group {PLACE['resource_group']} -w {PLACE['workspace']}"
    assert f"`az ml compute update --min-instances 0 --name gpu {place}`" in why["gpu"]
    assert why["forgotten"] == f"Running; nothing stops it: `az ml compute stop --name forgotten {place}`"
    assert why["careful"] == "Running; stops when it was idle for PT30M"
    assert why["left"].endswith(f"`az ml compute delete --name left {place}`")
    assert "2 x STANDARD_NC40ADS_H100_V5" in next(iter(items))
    assert main(["status", "--paid"]) == 0
    assert "0 runs and 4 machines without a run: 6.12 USD per hour, 2 without a known price" in capsys.readouterr().out


def test_computes_that_cannot_be_listed_hide_no_job(tenant: Tenant, capsys: Capture) -> None:
    made = tenant.job("train")
    tenant.submit(made)
    tenant.fault("computes", "403", 100)
    (item,) = ask(capsys, code=4)
    assert item["run"] == run_id(made)


def test_disks_and_addresses_that_machines_left_are_listed(tenant: Tenant, capsys: Capture) -> None:
    """256 GiB at .10 USD a month are 25.60 USD a month, 0.0351 an hour; lists have several pages."""
    used = "/subscriptions/s/resourceGroups/ml/providers/Microsoft.Compute/virtualMachines/vm"
    disks = [{"name": f"small-{n}", "properties": {"diskSizeGB": 4}, "managedBy": used} for n in range(4)]
    addresses = [
        {"name": "taken", "properties": {"ipConfiguration": {"id": "nic"}}},
        {"name": "forgotten-ip", "properties": {"ipAddress": "20.0.0.1"}},
    ]
    left = {"name": "left", "properties": {"diskSizeGB": 256, "diskState": "Unattached"}}
    tenant.azure.admin(
        "settings",
        resources={"Microsoft.Compute/disks": [*disks, left], "Microsoft.Network/publicIPAddresses": addresses},
    )
    with Path("slipway.yaml").open("a") as profile:
        profile.write("prices: {azureml/disk: 0.10 USD}\n")
    items = {str(item["what"]).partition(",")[0]: item for item in ask(capsys)}
    assert set(items) == {*(f"disk small-{n}" for n in range(4)), "disk left", "address forgotten-ip"}
    assert items["disk left"]["hourly"] == pytest.approx(0.0351, abs=0.0001)
    assert items["disk left"]["why"] == "no machine uses it: who made it can delete it"
    assert items["disk small-0"]["why"] == "a machine uses it"
    why = str(items["address forgotten-ip"]["why"])
    assert why.startswith("no machine has it: `az network public-ip delete --ids /subscriptions/")
    assert tenant.azure.admin("refused") == []


@pytest.mark.parametrize("kind", ["403", "drop_before"])
def test_disks_that_cannot_be_listed_are_said(
    tenant: Tenant, capsys: Capture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(backend, "PATIENCE", 0.0)
    made = tenant.job("train")
    tenant.submit(made)
    tenant.fault("resources", kind, 100)
    (item,) = ask(capsys, code=4)
    assert item["run"] == run_id(made)


@pytest.mark.parametrize("slow", ["others", "disks"])
def test_what_is_told_in_time_is_listed_although_the_rest_is_not(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slow: str
) -> None:
    """Azure is asked again for a minute where it does not answer, which is as long as the whole listing waits."""
    made = tenant.job("train")
    tenant.submit(made)
    asked = tenant.backend()
    list(asked.mine())  # logs in, which takes seconds on a busy machine
    over = threading.Event()
    monkeypatch.setattr(asked, slow, lambda: over.wait(60) or ())
    monkeypatch.setattr(paid, "PATIENCE", 3.0)
    profile = load_profile(Path.cwd(), None, {"HOME": str(tmp_path)})
    found = paid.paid(tenant.store, profile, Cache(tmp_path / "cache"), open_backend={"azureml": asked})
    over.set()
    assert found.silent == {"azureml": "no answer within 3 s"}
    assert [item.run for item in found.items] == [run_id(made)]
