"""A job's block over the profile's: options that exclude each other."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.spec.backends import merged

CLUSTER = {"workspace": "lab", "compute": "gpu", "vm_size": "Standard_A"}
SERVERLESS = {"workspace": "lab", "instance_type": "Standard_B", "tier": "spot", "locations": ["eastus"]}
POOL = {"size": "Standard_D8_v3", "instances": 1}


@pytest.mark.parametrize(
    ("general", "own", "together"),
    [
        (CLUSTER, {}, CLUSTER),
        (CLUSTER, {"compute": "cpu"}, {**CLUSTER, "compute": "cpu"}),
        (CLUSTER, {"vm_size": "Standard_C"}, {**CLUSTER, "vm_size": "Standard_C"}),
        (CLUSTER, {"pool": POOL}, {"workspace": "lab", "pool": POOL}),
        (CLUSTER, {"instance_type": "Standard_B"}, {"workspace": "lab", "instance_type": "Standard_B"}),
        (SERVERLESS, {"compute": "gpu"}, {"workspace": "lab", "compute": "gpu"}),
        (SERVERLESS, {"instance_type": "Standard_E"}, {**SERVERLESS, "instance_type": "Standard_E"}),
        (SERVERLESS, {"tier": "basic"}, {**SERVERLESS, "tier": "basic"}),
        (
            SERVERLESS,
            {"pool": POOL, "tier": "spot"},
            {"workspace": "lab", "pool": POOL, "tier": "spot"},
        ),  # refused later
        ({}, {"pool": POOL, "compute": "gpu"}, {"pool": POOL, "compute": "gpu"}),  # refused later, too
    ],
)
def test_what_a_job_names_takes_the_place_of_the_profiles(
    general: dict[str, Any], own: dict[str, Any], together: dict[str, Any]
) -> None:
    assert merged("azureml", general, own) == together


def test_a_backend_without_choices_keeps_all() -> None:
    assert merged("lambda", {"ssh_key": "a", "regions": ["x"]}, {"regions": ["y"]}) == {
        "ssh_key": "a",
        "regions": ["y"],
    }
