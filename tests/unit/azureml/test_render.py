"""What is rendered for Azure ML, compared with the SDK's own objects, and what is refused."""

from __future__ import annotations

import copy
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.azureml import render, rest
from launcher.errors import BadInput
from launcher.spec.hashing import run_id
from launcher.spec.model import Budget, Limits, Resources, Role
from launcher.spec.prices.rates import PricedRun, rate
from tests.unit.azureml.jobs import BLOCK, IMAGE, JOBS, KEPT, PLACE, POOL, SERVERLESS, given

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow
GOLDEN = Path(__file__).parent / "golden"
GROUP = f"/subscriptions/{PLACE['subscription']}/resourceGroups/{PLACE['resource_group']}"
WORKSPACE = rest.workspace_id(PLACE["subscription"], PLACE["resource_group"], PLACE["workspace"])


def body(document: Mapping[str, Any]) -> dict[str, Any]:
    """Of the request that creates a job, or a compute instance in a workspace in westeurope."""
    if document["type"] == render.INSTANCE:
        return rest.instance_body(document, "westeurope", GROUP)
    return rest.body(document, WORKSPACE)


def texts() -> dict[Path, str]:
    """The golden files, for `make golden`: each job's YAML, and the bodies of the requests that create it."""
    files = {}
    for name, one in JOBS.items():
        bodies = [body(document) for document in render.documents(one)]
        (files[GOLDEN / f"{name}.yaml"],) = render.render([one]).documents.values()
        files[GOLDEN / f"{name}.json"] = json.dumps(bodies, indent=1, sort_keys=True) + "\n"
    return files


@pytest.mark.parametrize("path", sorted(texts()), ids=lambda path: path.name)
def test_golden(path: Path) -> None:
    assert texts()[path] == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(JOBS))
def test_the_sdk_makes_the_same_body_of_our_yaml(name: str) -> None:
    """The oracle is azure-ai-ml: what it reads of the YAML, and what it would send. Before it asks the service it names
    the compute only, and has the environment itself, with the version that it will register."""
    (text,) = render.render([JOBS[name]]).documents.values()
    for document in render.parse(text, name):
        if document["type"] == render.INSTANCE:
            assert rest.instance_body(document, "westeurope", GROUP) == sdk_instance(yaml.safe_dump(document))
            continue
        theirs = sdk_body(yaml.safe_dump(document))
        ours = copy.deepcopy(rest.body(document, WORKSPACE))
        environment = theirs["properties"].pop("environmentId")
        assert environment.image == f"{IMAGE.reference.removesuffix(':1')}@{IMAGE.digest}"
        registered = f"{WORKSPACE}/environments/{environment.name}/versions/{environment.version}"
        assert ours["properties"].pop("environmentId") == registered
        if "computeId" in ours["properties"]:
            assert (
                ours["properties"].pop("computeId") == f"{WORKSPACE}/computes/{theirs['properties'].pop('computeId')}"
            )
        assert ours == theirs


def sdk_body(text: str) -> dict[str, Any]:
    from azure.ai.ml import load_job

    loaded = load_job(io.StringIO(text))
    made: dict[str, Any] = loaded._to_job()._to_rest_object().as_dict()
    return made


def sdk_instance(text: str) -> dict[str, Any]:
    """What the SDK sends after it has asked for the workspace's region."""
    from azure.ai.ml import load_compute

    loaded = load_compute(io.StringIO(text))
    loaded.location = "westeurope"
    loaded._set_full_subnet_name(PLACE["subscription"], PLACE["resource_group"])
    made: dict[str, Any] = json.loads(json.dumps(loaded._to_rest_object().as_dict()))
    return made


@pytest.mark.parametrize("seconds", [1, 59, 60, 3600, 3661, 86399, 86400, 90061, 30 * 86400])
def test_a_duration_is_written_as_the_sdk_writes_it(seconds: int) -> None:
    from azure.ai.ml._utils.utils import to_iso_duration_format

    assert rest.duration(seconds) == to_iso_duration_format(seconds)


def test_the_same_bytes_whatever_the_order_of_the_roles() -> None:
    one = JOBS["roles"]
    turned = given("roles", one.options, roles=dict(reversed(one.roles.items())))
    assert render.render([one]).documents == render.render([turned]).documents


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"options": {**BLOCK, "workspace": ""}}, "azureml.workspace: is missing; allowed: that of the workspace"),
        ({"options": PLACE | {"identity": {"kind": "managed"}}}, "azureml.compute: is missing; allowed: a cluster, or"),
        ({"options": {**SERVERLESS, "compute": "gpu"}}, "azureml.compute: not with instance_type; allowed"),
        ({"options": {**BLOCK, "tier": "spot"}}, "azureml.tier: is of serverless compute only"),
        ({"options": {**SERVERLESS, "vm_size": "Standard_D2"}}, "azureml.vm_size: is of a cluster only; allowed"),
        (
            {"options": {**SERVERLESS, "tier": "spot"}, "roles": JOBS["roles"].roles},
            "azureml.tier: spot takes back the node of one role alone; allowed: spot with one role",
        ),
        ({"options": {**BLOCK, "locations": ["westus"]}}, "azureml.locations: is of serverless compute only"),
        ({"options": {**PLACE, "compute": "gpu"}}, "azureml.identity: is missing: the run opens its store with it"),
        ({"options": {**BLOCK, "pool": POOL["pool"]}}, "azureml.compute: not with pool; allowed: one of compute,"),
        (
            {"options": POOL, "roles": {"main": Role(("x",), IMAGE, leader=True, replicas=4)}},
            "azureml.pool.instances: 3 for 4 ranks, each of which needs one; allowed: 4 or more, or fewer replicas",
        ),
        (
            {"options": {**POOL, "identity": {"kind": "managed"}}},
            "azureml.identity.client_id: is missing: a new instance has no identity of its own that may read the store",
        ),
        (
            {"options": {**POOL, "pool": {"size": "Standard_D8_v3", "instances": 1}}},
            "azureml.pool.identity: is missing: a new instance has no identity",
        ),
        (
            # 2 USD an hour; 3600 s of deadline, 2 x 30 s of grace, 30 s until it counts as dead, an hour to load and
            # end, twice half an hour of idleness: 10890 s cost 6.05 USD
            {"options": POOL, "limits": Limits(deadline=3600.0, budget=Budget(6.04, hourly=2.0))},
            "limits.budget: 1 instance may cost 6.05 USD in 3.02 h (limits.deadline, 2.02 h to load, end and be idle), "
            "which is more than 6.04; allowed: a larger budget, a shorter deadline, fewer ranks",
        ),
        ({"limits": Limits()}, "limits.deadline: is missing: azureml bills until a run ends"),
        (
            {"secrets": {"HF_TOKEN": "team/hf"}},
            "secrets: `HF_TOKEN` is kept in `team/hf`: a job of Azure ML keeps no secrets, it asks Key Vault; allowed: "
            "https://VAULT.vault.azure.net/secrets/NAME",
        ),
        (
            {"secrets": {"HF_TOKEN": f"{KEPT}/hf"}, "options": {**PLACE, "compute": "gpu"}, "store": "file:///x"},
            "azureml.identity: is missing: the run asks Key Vault with it; allowed: {kind: managed}",
        ),
        (
            {"store": "s3://bucket/x"},
            "azureml.store_secrets: `AWS_ACCESS_KEY_ID` is missing, with which a node opens s3://; allowed: the",
        ),
        (
            {"store": "gs://bucket/x", "options": {**BLOCK, "store_secrets": {"AWS_ACCESS_KEY_ID": f"{KEPT}/k"}}},
            "`AWS_ACCESS_KEY_ID` opens no such store; allowed with gs://: GOOGLE_SERVICE_ACCOUNT_KEY",
        ),
        (
            {"options": {**BLOCK, "store_secrets": {"AZURE_STORAGE_KEY": f"{KEPT}/k"}}},
            "azureml.store_secrets: `AZURE_STORAGE_KEY` opens no such store; allowed with az://: none",
        ),
        ({"store": "az://runs/x"}, "store: a node does not know the storage account; allowed: az://CONTAINER"),
        (
            {"store": f"az://runs/{'x' * 300}?account=a"},
            "store: its URL is a property of the job; allowed: at most 256",
        ),
        (
            {"roles": {"main": Role(("x",), IMAGE, leader=True, resources=Resources(shm=4096))}},
            "roles.main.resources.shm: docker takes no less than 1Mi",
        ),
        (
            {"roles": {"main": Role(("x",), IMAGE, leader=True, replicas=2, restarts=1)}},
            "roles.main.restarts: not for the leading role of several nodes",
        ),
    ],
)
def test_what_azure_ml_cannot_run_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        render.render([given("one", **changes)])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("options", "unit"),
    [
        ({**BLOCK, "vm_size": "Standard_NC24ads_A100_v4"}, "azureml/Standard_NC24ads_A100_v4"),
        (BLOCK, "azureml/gpu"),
        (POOL, "azureml/Standard_D8_v3"),
        (JOBS["two-nodes-spot"].options, "azureml/westeurope/Standard_NC40ads_H100_v5 spot"),
    ],
)
def test_the_machines_have_prices(options: dict[str, Any], unit: str) -> None:
    assert rate(PricedRun.of(given("one", options)), {}).missing[0] == unit


def test_a_pool_whose_worst_case_the_budget_pays_for_is_rendered() -> None:
    render.render([given("one", POOL, limits=Limits(deadline=3600.0, budget=Budget(6.05, hourly=2.0)))])


def test_each_rank_of_a_pool_has_an_instance_of_its_own() -> None:
    """Three ranks: three instances and three jobs, each on its instance, the leader's last and under the run's id."""
    one = JOBS["pool"]
    documents = render.documents(one)
    instances = [each for each in documents if each["type"] == render.INSTANCE]
    jobs = [each for each in documents if each["type"] == render.COMMAND]
    assert len({each["name"] for each in instances}) == len(jobs) == 3
    assert [f"azureml:{each['name']}" for each in instances] == [each["compute"] for each in jobs]
    run = run_id(one)
    assert [each["name"] for each in jobs] == [f"{run}_agent-1", f"{run}_judge-0", run]
    assert {each["resources"]["instance_count"] for each in jobs} == {1}
    assert {each["resources"]["docker_args"] for each in jobs} == {"--device=/dev/kvm --cap-add=NET_ADMIN"}
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{2,23}", each["name"]) for each in instances)  # Azure's rule
    assert ['export SLIPWAY_RANK="1"' in each["command"] for each in jobs] == [True, False, False]
    other = given("waa", {**one.options, "workspace": "lab2"}, roles=one.roles)
    assert not {each["name"] for each in instances} & {each["name"] for each in render.documents(other)}


def test_ranks_of_a_pool_without_a_subnet_are_warned_of() -> None:
    pool = {name: value for name, value in POOL["pool"].items() if name != "subnet"}
    role = {"main": Role(("x",), IMAGE, leader=True, replicas=2)}
    (warning,) = render.render([given("one", {**POOL, "pool": pool}, roles=role)]).warnings
    assert warning == "one: its ranks do not reach each other without azureml.pool.subnet"
    assert render.render([given("one", {**POOL, "pool": pool})]).warnings == ()


def test_roles_warn_of_their_network_and_their_price() -> None:
    (warning,) = render.render([JOBS["roles"]]).warnings
    assert "reach each other only in one virtual network, and one is billed while another waits" in warning
