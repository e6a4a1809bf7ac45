"""What is rendered for Lambda, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.backends.lambda_labs import access, render
from launcher.errors import BadInput
from launcher.spec.model import Image, Limits, ResolvedJob, Resources, Role
from tests.support.jobs import job

GOLDEN = Path(__file__).parent / "golden"
ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hf-AbCdEf"
BLOCK = {"instance_types": ["gpu_1x_h100_pcie"], "ssh_key": "laptop"}
IMAGE = Image(reference="registry.test/slipway/unsloth-sft:1", digest=f"sha256:{'a' * 64}")


def given(name: str, options: dict[str, Any] | None = None, **changes: Any) -> ResolvedJob:
    role = Role(("python", "-m", "training.sft"), image=IMAGE, leader=True, resources=Resources(gpus=1, shm=1 << 30))
    fields = {
        "store": "s3://bucket/runs",
        "backend": "lambda",
        "options": {**BLOCK, **(options or {})},
        "roles": {"main": role},
        "limits": Limits(deadline=3600.0),
        "config": {"model": "a'b $(c) `d`"},
    }
    return job(name, **{**fields, **changes})


JOBS = {
    "one-gpu": given("one-gpu"),
    "renewed": given(
        "renewed",
        {"renew": "arn:aws:ssm:us-east-1:123456789012:parameter/slipway"},
        limits=Limits(deadline=60 * 3600.0),
    ),
    "environment": given(
        "environment",
        {"venv": {"lock": "requirements.lock", "python": "3.12"}},
        roles={"main": Role(("python", "train.py"), image=Image(environment=f"sha256:{'b' * 64}"), leader=True)},
    ),
    "environment-renewed": given(
        "environment-renewed",
        {
            "venv": {"lock": "requirements.lock", "python": "3.12"},
            "renew": "arn:aws:ssm:us-east-1:123456789012:parameter/slipway",
        },
        limits=Limits(deadline=60 * 3600.0),
        roles={"main": Role(("python", "train.py"), image=Image(environment=f"sha256:{'b' * 64}"), leader=True)},
    ),
    "two-nodes": given(
        "two-nodes",
        {"file_systems": ["data"], "regions": ["us-east-1"], "image_family": "lambda-stack-24-04", "account": "lab"},
        roles={"main": Role(("torchrun", "train.py"), image=IMAGE, leader=True, replicas=2)},
    ),
}


def texts() -> dict[Path, str]:
    """The golden files, for `make golden`."""
    return {GOLDEN / f"{name}.yaml": next(iter(render.render([one]).documents.values())) for name, one in JOBS.items()}


@pytest.mark.parametrize("name", sorted(JOBS))
def test_golden(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    assert texts()[path] == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"options": {"instance_types": []}}, "lambda.instance_types: is missing; allowed: a list such as"),
        ({"options": {"ssh_key": ""}}, "lambda.ssh_key: is missing; allowed: the name of"),
        ({"options": {"file_systems": ["a", "b"]}}, "lambda.file_systems: Lambda mounts one"),
        ({"limits": Limits()}, "limits.deadline: is missing: lambda bills until a run ends"),
        (
            {"secrets": {"HF_TOKEN": "my-secret/HF_TOKEN"}},
            "secrets: `HF_TOKEN` is kept in `my-secret/HF_TOKEN`: a machine of Lambda keeps no secrets",
        ),
        (
            {"secrets": {"HF_TOKEN": ARN}, "store": "file:///lambda/nfs/data/x"},
            "secrets: `HF_TOKEN`: only a run whose store is s3:// has credentials of AWS",
        ),
        ({"store_access": True}, "store_access: the credentials are the runtime's alone on lambda"),
        ({"store": f"s3://bucket/{'x' * 128}"}, "store: its URL is a tag of the machine; allowed: at most 128"),
        ({"roles": {"a" * 20: Role(("x",), leader=True, replicas=1000)}}, "the name of a machine is run, role and"),
    ],
)
def test_a_refused_field_has_its_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        render.render([given("a-name-of-twenty-seven-char", **changes)])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"store": "gs://bucket/x"}, "there are no short-lived credentials for gs:// yet; allowed: s3://"),
        ({"store": "file:///home/me/store"}, "a machine of Lambda does not see file:///home/me/store"),
        (
            {"limits": Limits(deadline=40 * 3600.0)},
            "its credentials at most 36 h, and nothing renews them; allowed: a deadline up to",
        ),
        (
            {"limits": Limits(deadline=12 * 3600.0), "options": {"role": "arn:aws:iam::1:role/x"}},
            "its credentials at most 12 h",
        ),
    ],
)
def test_a_store_that_machines_cannot_use_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        access.check([given("one", **changes)], ())
    assert said in str(refused.value)


def test_a_folder_below_a_mounted_file_system_is_a_store() -> None:
    one = given("one", {"file_systems": ["data"]}, store="file:///lambda/nfs/data/store")
    access.check([one], ())
    assert access.access(one) == {}
