"""examples/desktop/job.yaml with a model that knows, in the place of one that needs a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.engine import ROOT

DESKTOPS, TASKS = 2, 4
MODEL = Path(__file__).with_name("known_model.py").read_text(encoding="utf-8")


def example(image: str, **changes: Any) -> dict[str, Any]:
    """The job, smaller, with `image` for all roles."""
    job: dict[str, Any] = yaml.safe_load(Path(ROOT, "examples/desktop/job.yaml").read_text())
    job |= {"image": image, "resources": {"cpus": 0.2, "memory": "512Mi"}, **changes}
    job["roles"]["desktop"] |= {"replicas": DESKTOPS, "resources": {"cpus": 0.5, "memory": "1Gi"}}
    job["roles"]["model"] = {
        "command": ["python", "-c", MODEL],
        "ports": {"http": 8000},
        "ready": {"http": "/health"},
    }
    job["config"]["tasks"]["count"] = TASKS
    job["config"]["limits"] = {"concurrency": DESKTOPS, "attempts": 1}
    return job
