"""What a pool costs: before it is made, while it runs, and in the end; and what is refused because of that."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from launcher.backends.azureml import names, pool
from launcher.backends.azureml.backend import AzureBackend
from launcher.backends.azureml.pool import PoolInstance, record
from launcher.cli import main
from launcher.protocol.read import read_run
from launcher.results.run_cost import bill, machine_times
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.prices.rates import PricedRun
from launcher.store.layout import RunKeys
from launcher.store.opening import make_store
from tests.integration.azureml.conftest import PLACE, Tenant
from tests.support.waiting import until

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow
PRICE = "prices: {azureml/Standard_D8_v3: 0.40 USD}\n"
DIGEST = "0" * 64


@pytest.fixture(autouse=True)
def laptop(tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "laptop"
    folder.mkdir()
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    make_store(tenant.store)
    monkeypatch.setenv("SLIPWAY_STORE", tenant.store.url)
    (folder / "slipway.yaml").write_text(f"backend: azureml\nazureml: {json.dumps(PLACE)}\n{PRICE}")
    monkeypatch.chdir(folder)
    tenant.azure.admin("made", making=20.0, changing=10.0)


def written(pool: str, limits: str = "{deadline: 1h}", replicas: int = 2) -> str:
    """The name of a job's file; its pool stands in line 9."""
    Path("waa.yaml").write_text(
        f"name: waa\nroles:\n  agent:\n    replicas: {replicas}\n    image: registry.test/waa@sha256:{DIGEST}\n"
        f"    command: [run]\nlimits: {limits}\nazureml:\n  pool: {pool}\n"
    )
    return "waa.yaml"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "{size: Standard_NC4as_T4_v3, instances: 2}",
            "waa.yaml:9:16: azureml.pool.size: Azure does not say that `Standard_NC4as_T4_v3` has nested virtualisation"
            "; allowed: Intel's D and E of v3 to v5, F of v2: Standard_D8_v3, Standard_E8ds_v5",
        ),
        ("{size: Standard_D8as_v5, instances: 2}", "does not say that `Standard_D8as_v5` has nested virtualisation"),
        ("{size: Standard_D8ps_v5, instances: 2}", "does not say that `Standard_D8ps_v5` has nested virtualisation"),
        ("{size: Standard_DS3_v2, instances: 2}", "does not say that `Standard_DS3_v2` has nested virtualisation"),
        (
            "{size: Standard_D8_v3, instances: 2, idle: 5m}",
            "waa.yaml:9:52: azureml.pool.idle: Azure cannot stop an instance after 300 s; allowed: 15m to 3d, in whole",
        ),
        ("{size: Standard_D8_v3}", "azureml.pool.instances: is missing"),
        ("{size: Standard_D8_v3, instances: 1}", "azureml.pool.instances: 1 for 2 ranks, each of which needs one"),
    ],
)
def test_what_is_refused_is_said_with_its_line(tenant: Tenant, capsys: Capture, given: str, said: str) -> None:
    assert main(["render", written(given)]) == 2
    assert said in capsys.readouterr().err
    assert tenant.made() == []


@pytest.mark.parametrize(
    "size",
    ["Standard_D8_v3", "Standard_D8s_v3", "Standard_E4_v3", "Standard_D8ds_v4", "Standard_E8s_v5", "Standard_F16s_v2"],
)
def test_sizes_with_nested_virtualisation(size: str, capsys: Capture) -> None:
    assert main(["render", written(f"{{size: {size}, instances: 2}}")]) == 0
    assert f"size: {size}\n" in capsys.readouterr().out


def test_submit_says_and_refuses_what_a_pool_may_cost(
    tenant: Tenant, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 instances at .40 USD: an hour costs .80. With 15 min until a run counts as dead, 2 x 30 s of grace,
    an hour to load and end and twice half an hour of idleness it is 11,760 s, 2.6133 USD."""
    monkeypatch.setattr(AzureBackend, "check", lambda self, jobs: None)  # the store is a folder
    name = written("{size: Standard_D8_v3, instances: 2}")
    assert main(["submit", name, "--dry-run"]) == 0
    assert (
        "cost: at most 2.61 USD: 0.80 USD per hour, 1 h of limits.deadline and 2.27 h that" in capsys.readouterr().err
    )
    for budget, code in (("2.61 USD", 2), ("2.62 USD", 0)):
        name = written("{size: Standard_D8_v3, instances: 2}", f"{{deadline: 1h, budget: {budget}}}")
        assert main(["submit", name, "--dry-run"]) == code
    Path("slipway.yaml").write_text(f"backend: azureml\nazureml: {json.dumps(PLACE)}\n")
    assert main(["submit", written("{size: Standard_D8_v3, instances: 2}"), "--dry-run"]) == 2
    assert "azureml.pool.size: no price of azureml's `Standard_D8_v3` is known" in capsys.readouterr().err
    assert tenant.made() == []


def ask(capsys: Capture) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["status", "--paid", "-o", "json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_a_person_knows_the_cost_before_a_submit_waits_for_instances_and_what_it_waits_for(
    tenant: Tenant, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AzureBackend, "check", lambda self, jobs: None)  # the store is a folder
    monkeypatch.setattr("launcher.backends.azureml.backend.POLL", 0.02)
    name = written("{size: Standard_D8_v3, instances: 2}")
    assert main(["submit", name]) == 0
    cost, wait, *others = (line for line in capsys.readouterr().err.splitlines() if line)
    assert "cost: at most 2.61 USD" in cost
    assert "waits for its instances, some minutes: 0 of 2 run" in wait
    assert not [line for line in others if "cost: " in line]
    tenant.azure.admin("made", changing=400.0)  # two seconds here: on a busy machine, too, a look sees them there
    assert main(["cancel", "waa"]) == 0
    assert ", some minutes: 2 left" in capsys.readouterr().err.partition("Azure has deleted the instances of waa-")[2]


def test_paid_lists_a_pool_with_its_run_until_it_is_gone(tenant: Tenant, capsys: Capture) -> None:
    """2 x .40 USD an hour while it runs; stopped by Azure, each is told apart, because its disk is billed."""
    one = tenant.pooled("waa")
    run = tenant.submit(one)
    (item,) = ask(capsys)
    assert (item["run"], item["hourly"]) == (run, 0.8)
    made = sorted(tenant.instances())
    # what Azure lists is what the run's events name: none counts twice
    (seen,) = tenant.backend().mine()
    assert {each.key for each in seen.machines} == {each.id for each in machine_times(read_run(tenant.store, run))}
    assert all(f"STANDARD_D8_V3 {name}" in str(item["what"]) for name in made)
    for name in (run, f"{run}_main-1"):
        tenant.azure.admin("set", name=name, status="Completed")
    (item,) = ask(capsys)
    assert (item["run"], item["hourly"]) == (run, 0.8)
    tenant.azure.admin("clock", add=1900.0)
    until(lambda: set(tenant.instances().values()) == {"Stopped"}, tenant.instances)
    items = ask(capsys)
    assert [item["run"] for item in items] == [None, None]
    assert sorted(str(item["what"]).partition(",")[0] for item in items) == [
        f"compute instance {each}" for each in made
    ]


def instance(tenant: Tenant, run: str, member: str, **fields: object) -> PoolInstance:
    tags = {names.TAG: run, names.OWNER: tenant.store.url, names.MEMBER: member}
    given = {"state": "Running", "made": 1_000_000.0, "since": 1_000_000.0, "changed": 1_000_000.0, **fields}
    base = {"id": "x", "name": f"slipway-{member}", "member": member, "size": "STANDARD_D8_V3", "region": "westeurope"}
    return PoolInstance(**base, tags=tags, **given)  # type: ignore[arg-type]


def test_the_bill_of_a_pool_by_hand(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made at 1,000,000 s, .36 USD an hour. main-0 was deleted after 2 h: .72. Azure stopped main-1 after 1 h, and it
    was deleted after 2 h: .36. main-2 was deleted after 1 h, made again after 2 h, and deleted 30 min later: .54."""
    one = tenant.pooled("waa", 3)
    run = run_id(one)
    tenant.store.create(RunKeys(run).job, encode_job(one))

    def at(seconds: float, wrote: str, member: str, **fields: object) -> None:
        monkeypatch.setattr(pool, "time", SimpleNamespace(time=lambda: 1_000_000.0 + seconds))
        for _ in range(2):  # a reaper that was killed in between does it again
            record(tenant.store, instance(tenant, run, member, **fields), wrote)

    for member in ("main-0", "main-1", "main-2"):
        at(300.0, "launched", member)
    at(3600.0, "ending", "main-2")
    at(7200.0, "ending", "main-0")
    at(7200.0, "ending", "main-1", state="Stopped", changed=1_003_600.0)
    at(7500.0, "launched", "main-2", made=1_007_200.0)
    at(9000.0, "ending", "main-2", made=1_007_200.0)
    monkeypatch.undo()
    machines = machine_times(read_run(tenant.store, run))
    assert sorted(machine.seconds for machine in machines) == [1800.0, 3600.0, 3600.0, 7200.0]
    prices = {"azureml/Standard_D8_v3": (0.36, "USD")}
    found = bill(PricedRun.of(one), (), machines, prices, 1_020_000.0)
    assert found.cost == Decimal("1.62")
    assert (found.currency, found.missing) == ("USD", ())


def test_submit_and_cancel_write_what_was_billed(tenant: Tenant) -> None:
    from launcher.verbs.cancel import cancel

    one = tenant.pooled("waa")
    run = tenant.submit(one)
    cancel(tenant.store, run, tenant.backend())
    machines = machine_times(read_run(tenant.store, run))
    assert len(machines) == 2
    assert all(
        machine.ended and machine.type == "STANDARD_D8_V3" and machine.backend == "azureml" for machine in machines
    )
    assert msgspec.to_builtins(machines[0])["region"] == "westeurope"
