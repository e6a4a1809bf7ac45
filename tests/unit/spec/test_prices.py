"""What a run costs per hour: the expected amounts are multiplied by hand, as the comments say."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from launcher.backends.azureml.traits import machines
from launcher.errors import BadInput
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import Budget, ResolvedJob
from launcher.spec.prices import rates
from launcher.spec.prices.rates import PricedRole, PricedRun, Prices, Rate
from launcher.spec.profile import Profile
from tests.unit.spec.support import PROFILE, group

DIGEST = "sha256:" + "1" * 64
HEAD = f"name: a\ncommand: [x]\nimage: r/x@{DIGEST}\n"
LAMBDA = HEAD + "backend: lambda\nlambda: {ssh_key: k, instance_types: [%s]}\nlimits: {deadline: 2h%s}\n"


def job(text: str, folder: Path, profile: Profile = PROFILE) -> ResolvedJob:
    (made,) = group(text, folder, profile=profile).runs
    return made


def rate(made: ResolvedJob, prices: Prices) -> Rate:
    return rates.rate(PricedRun.of(made), prices)


def test_a_local_run_is_free_unless_the_profile_prices_it(tmp_path: Path) -> None:
    made = job("name: a\ncommand: [x]\nresources: {cpus: 3}\n", tmp_path)
    assert rate(made, {}).free
    assert rate(made, {"H100": (3.0, "USD")}).free  # it has no GPU
    # 3 cores x .1: exact, where floats give .30000000000000004
    assert rate(made, {"cpu": (0.1, "USD")}).high == Decimal("0.3")
    assert rate(made, {"node": (1.25, "EUR")})[:3] == (Decimal("1.25"), Decimal("1.25"), "EUR")


def test_gpus_are_priced_by_name_then_as_gpu_and_first_for_their_backend(tmp_path: Path) -> None:
    text = HEAD + "backend: kubernetes\nresources: {gpu: H100, gpus: 2, nodes: 4}\nlimits: {deadline: 1h}\n"
    made = job(text, tmp_path)
    # 2 GPUs x 4 nodes x 2.99 = 23.92
    assert rate(made, {"H100": (2.99, "USD"), "gpu": (1.0, "USD")}).high == Decimal("23.92")
    assert rate(made, {"gpu": (1.0, "USD")}).high == 8
    both = {"H100": (2.99, "USD"), "kubernetes/H100": (2.0, "USD"), "docker/H100": (9.0, "USD")}
    assert rate(made, both).high == 16
    assert rate(made, {"L4": (1.0, "USD")}).missing == ("H100",)  # forgotten, not free
    assert rate(made, {"lambda/gpu_1x_a10": (1.0, "USD"), "cpu": (1.0, "USD")}).missing == ("H100",)
    assert rate(made, {}).missing == ("H100",)  # a backend that bills: nobody says that they cost nothing
    assert rate(made, {"H100": (0.0, "")}).free
    assert rate(made, {"kubernetes/H100": (0.0, ""), "H100": (2.0, "USD")}).free
    for backend in ("local", "docker"):
        assert rate(job(text.replace("kubernetes", backend).replace(", nodes: 4", ""), tmp_path), {}).free


def test_a_role_without_a_price_makes_the_whole_unknown(tmp_path: Path) -> None:
    roles = "roles: {agent: {leader: true, command: [x], resources: {gpu: L4}}, desktop: {replicas: 2, command: [y]}}\n"
    made = job(f"name: a\n{roles}", tmp_path)
    assert rate(made, {"L4": (1.0, "USD")}).missing == ("cpu",)
    # 1 GPU x .71 + 2 desktops x 1 core x .05 = .81
    assert rate(made, {"L4": (0.71, "USD"), "cpu": (0.05, "USD")}).high == Decimal("0.81")
    mixed = rate(made, {"L4": (0.71, "USD"), "cpu": (0.05, "EUR")})
    assert mixed.missing == ("one currency for all: these prices are in EUR and USD",)


def test_machines_of_lambda_have_list_prices(tmp_path: Path) -> None:
    """The prices of SkyPilot's catalog (catalogs/v9/lambda/vms.csv): an A10 1.29, an H100 with PCIe 3.29."""
    made = job(LAMBDA % ("gpu_1x_a10, gpu_1x_h100_pcie", ""), tmp_path)
    found = rate(made, {})
    assert (found.low, found.high, found.currency, found.increment) == (Decimal("1.29"), Decimal("3.29"), "USD", 60)
    assert found.origin == "list price read on 2026-11-23"
    two = job((LAMBDA % ("gpu_1x_h100_pcie", "")) + "resources: {nodes: 2}\n", tmp_path)
    assert rate(two, {}).high == Decimal("6.58")


def test_the_profile_overrides_list_prices_the_most_specific_first(tmp_path: Path) -> None:
    text = LAMBDA.replace("ssh_key: k,", "ssh_key: k, regions: [us-east-1, us-west-1],") % ("gpu_1x_a10", "")
    made = job(text, tmp_path)
    prices = {
        "lambda/us-east-1/gpu_1x_a10": (0.5, "USD"),
        "lambda/gpu_1x_a10": (0.7, "USD"),
        "gpu_1x_a10": (9.0, "USD"),
    }
    assert rate(made, prices)[:2] == (Decimal("0.5"), Decimal("0.7"))


def test_an_unknown_type_is_never_guessed(tmp_path: Path) -> None:
    made = job(LAMBDA % ("gpu_1x_a10, gpu_1x_z9000", ""), tmp_path)
    assert rate(made, {}).missing == ("lambda/gpu_1x_z9000",)
    assert rate(made, {"gpu_1x_z9000": (7.0, "USD")}).high == 7


def test_spot_machines_have_prices_of_their_own() -> None:
    prices = {"azureml/eastus/Standard_NC24ads_A100_v4 spot": (0.9, "USD")}
    kind = "Standard_NC24ads_A100_v4"
    spot = rates.machine_price("azureml", "eastus", kind, True, prices)
    assert spot is not None
    assert spot.amount == Decimal("0.9")
    assert rates.machine_price("azureml", "westus2", kind, True, prices) is None
    listed = rates.machine_price("azureml", "eastus", kind, False, prices)
    assert listed is not None
    assert (listed.amount, listed.currency) == (Decimal("3.673"), "USD")
    # a region that the table does not list may cost more than any that it lists
    assert rates.machine_price("azureml", "", kind, False, {}) is None
    assert rates.machine_price("azureml", "norwayeast", kind, False, {}) is None


def test_every_list_price_has_a_source_a_day_and_a_positive_amount() -> None:
    for backend, listed in rates._table().items():
        assert listed["source"], backend
        assert str(listed["read"]) >= "2026-11-23"
        for entry in listed["types"].values():
            amounts = entry.values() if isinstance(entry, dict) else [entry]
            assert all(amount > 0 for amount in amounts)


def test_a_budget_keeps_the_price_of_the_day_without_naming_the_run(tmp_path: Path) -> None:
    """A newer table must not make another, billed run of the same job."""
    made = job(LAMBDA % ("gpu_1x_a10, gpu_1x_h100_pcie", ", budget: 40 USD"), tmp_path)
    assert made.limits.budget == Budget(40.0, "USD", 0.0, 3.29)  # of the dearest machine
    dearer = replace(made, limits=replace(made.limits, budget=Budget(40.0, "USD", 0.0, 5.0)))
    assert run_id(dearer) == run_id(made)
    own = replace(made, limits=replace(made.limits, budget=Budget(40.0, "USD", 5.0)))
    assert run_hash(own) != run_hash(made)
    # 40 / 3.29 h, less twice the 30 s of grace and a minute
    assert made.limits.paid_seconds == pytest.approx(40 / 3.29 * 3600 - 120)
    assert rate(made, {"gpu_1x_a10": (0.1, "USD")}).high == Decimal("3.29")


def test_a_price_of_the_profile_names_the_run(tmp_path: Path) -> None:
    profile = replace(PROFILE, prices={"lambda/gpu_1x_a10": (1.0, "USD")})
    made = job(LAMBDA % ("gpu_1x_a10", ", budget: 40 USD"), tmp_path, profile)
    assert made.limits.budget == Budget(40.0, "USD", 1.0)


@pytest.mark.parametrize(
    ("budget", "types", "message"),
    [
        ("40 USD", "gpu_1x_z9000", "no price of lambda's `gpu_1x_z9000` is known"),
        ("40 EUR", "gpu_1x_a10", "the price of the run is in USD, the budget in EUR"),
        # 3.29 USD per hour: .1 USD pays for 109.4 s, of which 2 x 30 s and a minute are kept
        ("0.1 USD", "gpu_1x_h100_pcie", "pays for 109 s of this run, at 3.29 USD per hour; allowed: more than 120 s"),
    ],
)
def test_a_budget_that_cannot_hold_is_refused(tmp_path: Path, budget: str, types: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        job(LAMBDA % (types, f", budget: {budget}"), tmp_path)


def test_the_worst_case_is_the_deadline_or_the_budget(tmp_path: Path) -> None:
    """2 h, 15 min until a run counts as dead, 2 x 30 s of grace and an hour to boot and load, x 3.29 = 10.75: so long a
    machine may live. A budget of 5 is less, one of 40 is not."""
    types = "gpu_1x_a10, gpu_1x_h100_pcie"
    for budget, worst in (("", "10.75"), (", budget: 5 USD", "5.00"), (", budget: 40 USD", "10.75")):
        made = job(LAMBDA % (types, budget), tmp_path)
        assert f"{rates.worst_case(rate(made, {}), made.limits):.2f}" == worst
    free = job("name: a\ncommand: [x]\n", tmp_path)
    assert rates.worst_case(rate(free, {}), free.limits) == 0
    assert rates.worst_case(rate(free, {"cpu": (1.0, "USD")}), free.limits) is None  # nothing bounds it


def test_machines_of_azure_are_priced_by_type_region_and_tier() -> None:
    def found(prices: Prices, **options: object) -> Rate:
        return rates.rate(PricedRun("azureml", (PricedRole(),), True, *machines(options)), prices)

    kind = "Standard_NC24ads_A100_v4"
    assert found({}, instance_type=kind, locations=["eastus"]).high == Decimal("3.673")
    assert found({}, instance_type="Standard_D8s_v5", locations=["eastus", "westus"]).high == Decimal("0.448")
    assert found({}, instance_type=kind).missing == (f"azureml/{kind}",)  # the workspace's region is not known here
    assert found({}, instance_type=kind, locations=["eastus"], tier="spot").missing == (f"azureml/eastus/{kind} spot",)
    assert found({}, compute="a100-cluster").missing == ("azureml/a100-cluster",)
    assert found({"azureml/a100-cluster": (3.0, "EUR")}, compute="a100-cluster").high == 3
