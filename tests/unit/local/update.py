"""The golden files of the local queue: a job's entry for each backend that has this queue, and docker's container."""

from __future__ import annotations

import json
from pathlib import Path

from launcher.backends.docker.container import ContainerSettings, settings
from launcher.backends.local.entry import render
from launcher.spec.hashing import run_id
from launcher.spec.model import Image, Input, Limits, ResolvedJob, Resources
from tests.support.jobs import OUT, job

GOLDEN = Path(__file__).parent / "golden"
PLACE = ContainerSettings("1234:100", Path("/state/work"), Path("/state/private.json"), ("2",))


def given(backend: str) -> ResolvedJob:
    role = {
        "command": ("python", "-m", "training.sft", "it's", "é"),
        "image": Image("registry.test/slipway/unsloth-sft:1", f"sha256:{'a' * 64}"),
        "resources": Resources(cpus=2.5, memory=1 << 30, gpus=1, shm=1 << 20),
        "env": {"LOG_LEVEL": "0777"},
    }
    return job(
        "given",
        store="s3://bucket/runs",
        backend=backend,
        config={"lr": 1e-5, "on": "off"},
        inputs={"data": Input(url="file:///data")},
        outputs=OUT,
        secrets={"HF_TOKEN": "local"},
        limits=Limits(deadline=3600.0, retries=1),
        role=role,
    )


def texts() -> dict[Path, str]:
    files = {}
    for backend in ("local", "docker"):
        (files[GOLDEN / f"{backend}.yaml"],) = render([given(backend)]).documents.values()
    one = given("docker")
    made = settings(one, run_id(one), "main-0", 1, f"queue:{run_id(one)}:main-0", PLACE, {})
    files[GOLDEN / "container.json"] = json.dumps(made, indent=1, sort_keys=True) + "\n"
    return files
