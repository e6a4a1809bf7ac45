"""A price that nobody knows is refused at the line that names what has none, with what to write into slipway.yaml; who
writes just that is no longer refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from launcher import api
from launcher.errors import BadInput
from launcher.spec.prices.rates import machine_price
from launcher.verbs.estimate import check_price, plan_ceiling

HEAD = f"name: a\nimage: r/x@sha256:{'1' * 64}\ncommand: [x]\n"
LIMITS = "limits: {deadline: 2h}\n"
H100 = "Standard_NC40ads_H100_v5"
LAMBDA = f"{HEAD}{LIMITS}backend: lambda\nlambda:\n  ssh_key: k\n  instance_types:\n  - gpu_1x_a10\n  - gpu_1x_new\n"
PLACE = "subscription: 00000000-0000-0000-0000-000000000000, resource_group: ml, workspace: lab"
AZURE = f"{HEAD}{LIMITS}backend: azureml\nazureml:\n  {PLACE.replace(', ', chr(10) + '  ')}\n"
POOL = "  pool:\n    instances: 1\n    size: Standard_D16_v3\n"
GPU = f"{HEAD}{LIMITS}backend: kubernetes\nresources: {{gpus: 1, gpu: L4}}\n"
IN_ROLE = (
    f"name: a\nbackend: kubernetes\n{LIMITS}roles:\n  main:\n    leader: true\n    image: r/x@sha256:{'1' * 64}\n"
    "    command: [x]\n    resources:\n      gpus: 2\n"
)
ELSEWHERE = LAMBDA.replace("backend: lambda", "backend: [kubernetes, lambda]")


def load(tmp_path: Path, text: str, profile: str = "", **more: Any) -> api.Jobs:
    (tmp_path / "job.yaml").write_text(text)
    (tmp_path / "slipway.yaml").write_text(f"store: s3://b/r\n{profile}")
    return api.load("job.yaml", cwd=tmp_path, **more)


def refused(jobs: api.Jobs, budget: str | None = None, *, without_price: bool = False) -> str:
    try:
        check_price(jobs.group, jobs.profile.prices, budget, without_price=without_price)
    except BadInput as error:
        return str(error)
    return ""


CASES = [
    (LAMBDA, "job.yaml:10:5: lambda.instance_types[1]: no price of lambda's `gpu_1x_new` is known"),
    (
        f"{LAMBDA}  regions: [us-east-1]\n",
        "job.yaml:10:5: lambda.instance_types[1]: no price of lambda's `gpu_1x_new` in us-east-1 is known",
    ),
    (ELSEWHERE, "job.yaml:10:5: lambda.instance_types[1]: no price of lambda's `gpu_1x_new` is known"),
    (f"{AZURE}  compute: gpu\n", "job.yaml:10:12: azureml.compute: no price of azureml's `gpu` is known"),
    (
        f"{AZURE}  compute: gpu\n  vm_size: {H100}\n",
        f"job.yaml:11:12: azureml.vm_size: no price of azureml's `{H100}` is known (list prices are "
        "of centralus, eastus, eastus2, southcentralus, westus3 only)",
    ),
    (
        f"{AZURE}  instance_type: {H100}\n  locations: [eastus, westeurope]\n",
        f"job.yaml:10:18: azureml.instance_type: no price of azureml's `{H100}` in westeurope is known",
    ),
    (
        f"{AZURE}  instance_type: {H100}\n  locations: [eastus]\n  tier: spot\n",
        f"job.yaml:10:18: azureml.instance_type: no price of azureml's spot machine `{H100}` in eastus",
    ),
    (f"{AZURE}{POOL}", "job.yaml:12:11: azureml.pool.size: no price of azureml's `Standard_D16_v3` is known"),
]
KEYS = [
    "lambda/gpu_1x_new",
    "lambda/us-east-1/gpu_1x_new",
    "lambda/gpu_1x_new",
    "azureml/gpu",
    "azureml/Standard_NC40ads_H100_v5",
    "azureml/westeurope/Standard_NC40ads_H100_v5",
    "azureml/eastus/Standard_NC40ads_H100_v5 spot",
    "azureml/Standard_D16_v3",
]


@pytest.mark.parametrize(("text", "message", "key"), [(*case, key) for case, key in zip(CASES, KEYS, strict=True)])
def test_a_machine_without_a_price_is_refused_at_its_line_and_taken_with_what_the_message_says(
    tmp_path: Path, text: str, message: str, key: str
) -> None:
    said = refused(load(tmp_path, text))
    assert said.startswith(message), said
    assert said.endswith(", or --without-price")
    assert "\n" not in said
    typed = re.search(r"allowed: `(prices: \{.*\})` in slipway\.yaml", said)
    assert typed is not None, said
    assert f"{key}: 1.50 USD" in typed[1]
    assert refused(load(tmp_path, text, typed[1])) == ""
    assert refused(load(tmp_path, text), without_price=True) == ""


@pytest.mark.parametrize(("text", "message"), CASES)
def test_a_budget_of_the_job_needs_the_price_too(tmp_path: Path, text: str, message: str) -> None:
    budgeted = text.replace("deadline: 2h", "deadline: 2h, budget: 90 EUR")
    with pytest.raises(BadInput) as caught:
        load(tmp_path, budgeted)
    said = str(caught.value)
    assert said.startswith("job.yaml:4:32: limits.budget: no price of "), said
    typed = re.search(r"allowed: `(prices: \{.* EUR\})` in slipway\.yaml", said)
    assert typed is not None, said
    # the other type of the list is in the table, in USD
    both = typed[1].replace(
        "}", ", lambda/gpu_1x_a10: 1 EUR, azureml/eastus/Standard_NC40ads_H100_v5: 1 EUR, L4: 1 EUR}"
    )
    load(tmp_path, budgeted, both.replace("{", "{cpu: 0.01 EUR, "))


@pytest.mark.parametrize("option", ["budget", "ceiling"])
@pytest.mark.parametrize(
    ("text", "profile", "message"),
    [
        (LAMBDA, "", "job.yaml:10:5: lambda.instance_types[1]: no price of lambda's `gpu_1x_new` is known"),
        (GPU, "prices: {H100: 2 EUR}\n", "job.yaml:6:27: resources.gpu: no price of `L4` is known"),
        (IN_ROLE, "prices: {H100: 2 EUR}\n", "job.yaml:10:13: roles.main.resources.gpus: no price of `gpu` is known"),
    ],
)
def test_a_bound_of_several_runs_needs_the_price_in_its_currency(
    tmp_path: Path, option: str, text: str, profile: str, message: str
) -> None:
    def said(jobs: api.Jobs) -> str:
        if option == "budget":
            return refused(jobs, "90 EUR", without_price=True)
        try:
            plan_ceiling(jobs.group, jobs.profile.prices, "90 EUR")
        except BadInput as error:
            return str(error)
        return ""

    told = said(load(tmp_path, text, profile))
    assert told.startswith(message), told
    assert f"which --{option} needs" in told
    typed = re.search(r"allowed: `(prices: \{.* EUR\})` in slipway\.yaml", told)
    assert typed is not None
    known = typed[1].replace("}", ", lambda/gpu_1x_a10: 1 EUR}")
    assert said(load(tmp_path, text, known)) == ""


def test_what_bounds_no_run_is_named_at_its_line(tmp_path: Path) -> None:
    text = GPU.replace(LIMITS, "").replace("kubernetes", "docker")
    told = refused(load(tmp_path, text, "prices: {L4: 1 USD}\n"), "9 USD")
    assert told == (
        "job.yaml:4:1: limits.deadline: neither limits.deadline nor limits.budget bounds what it costs, which --budget "
        "needs; allowed: a duration: 6h"
    )


def test_a_type_of_the_profile_is_refused_at_its_line_there(tmp_path: Path) -> None:
    text = f"{HEAD}{LIMITS}backend: lambda\n"
    block = "lambda:\n  ssh_key: k\n  instance_types: [gpu_1x_new]\n"
    told = refused(load(tmp_path, text, block))
    assert told.startswith("slipway.yaml:4: lambda.instance_types[0]: no price of lambda's `gpu_1x_new`"), told


def test_set_and_a_matrix_are_named_where_they_name_the_type(tmp_path: Path) -> None:
    told = refused(load(tmp_path, LAMBDA, overrides=["lambda.instance_types=[gpu_8x_new]"]))
    assert told.startswith("--set lambda.instance_types: lambda.instance_types[0]: no price of lambda's `gpu_8x_new`")
    types = "  lambda.instance_types:\n  - [gpu_1x_a10]\n  - [gpu_2x_new]\n"
    matrix = f"{LAMBDA}matrix:\n{types}  +config.seed: [1, 2]\nconfig: {{}}\n"
    told = refused(load(tmp_path, matrix))
    assert told.count("\n") == 0, told  # once for both seeds
    assert told.startswith("job.yaml:14:5: lambda.instance_types[0]: no price of lambda's `gpu_2x_new`"), told


def test_many_regions_are_priced_by_one_line(tmp_path: Path) -> None:
    told = refused(load(tmp_path, f"{LAMBDA}  regions: [a-1, b-1, c-1, d-1]\n"))
    assert "`prices: {lambda/gpu_1x_new: 1.50 USD}`" in told


def test_a_job_that_names_no_machine_is_not_told_to_price_a_sentence(tmp_path: Path) -> None:
    told = refused(load(tmp_path, AZURE))
    assert told.startswith("job.yaml:5:1: no price is known: the job names no type of machine of azureml"), told
    assert "prices: {" not in told


def test_a_cluster_is_not_priced_as_a_gpu_of_its_name() -> None:
    """`gpu` is the price of one GPU on a backend without machines; a cluster of that name may have eight in a node."""
    prices = {"gpu": (1.0, "USD"), "cpu": (0.04, "USD"), "H100": (2.1, "USD")}
    for name in ("gpu", "cpu", "h100", "H100"):
        assert machine_price("azureml", "", name, False, prices) is None
    assert machine_price("azureml", "", "gpu", False, {"azureml/gpu": (8.0, "USD")}) is not None
    bare = machine_price("lambda", "", "gpu_1x_new", False, {"gpu_1x_new": (8.0, "USD")})
    assert bare is not None


@pytest.mark.parametrize(
    ("text", "profile", "messages"),
    [
        (
            f"{AZURE}{POOL}  identity: {{kind: user}}\n".replace("2h", "2h, budget: 4.2 USD"),
            "prices: {azureml/Standard_D16_v3: 1 USD}\nstore: az://c/p?account=a\n",
            ["job.yaml:4:32: limits.budget: 1 instance may cost 4.27 USD in 4.27 h"],
        ),
        (
            f"{HEAD}{LIMITS}backend: azureml\n",
            f"azureml: {{{PLACE}, vm_size: {H100}}}\nstore: az://c/p?account=a\n",
            [
                "job.yaml:5:1: azureml.compute: is missing; allowed: a cluster, or `instance_type` for serverless",
                "slipway.yaml:1: azureml.vm_size: is of a cluster only; allowed: with compute",
                "job.yaml:5:1: azureml.identity: is missing",
            ],
        ),
        (
            LAMBDA.replace("  ssh_key: k\n", "  file_systems: [a, b]\n"),
            "",
            [
                "job.yaml:6:1: lambda.ssh_key: is missing; allowed: the name of an SSH key",
                "job.yaml:7:17: lambda.file_systems: Lambda mounts one; allowed: one name",
            ],
        ),
    ],
)
def test_what_a_cloud_refuses_is_told_at_its_line(tmp_path: Path, text: str, profile: str, messages: list[str]) -> None:
    (tmp_path / "job.yaml").write_text(text)
    (tmp_path / "slipway.yaml").write_text(profile or "store: s3://b/r\n")
    jobs = api.load("job.yaml", cwd=tmp_path)
    with pytest.raises(BadInput) as caught:
        api.render(jobs)
    lines = str(caught.value).split("\n")
    for line, message in zip(lines, messages, strict=True):
        assert line.startswith(message), line
