"""Argo CD's Lua interpreter (lua/main.go), built once per pin, and our health checks run by it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.integration.k8s_tree.building import ROOT, objects
from tests.support.needs import lacking

SOURCE = Path(__file__).parent / "lua"
JOB, JOBSET, WORKLOAD = "batch_Job", "jobset.x-k8s.io_JobSet", "kueue.x-k8s.io_Workload"


def script(kind: str) -> str:
    """As Argo CD gets it: from the ConfigMap that kustomize makes."""
    (config,) = objects("gitops/argocd/health")
    found: str = config["data"][f"resource.customizations.health.{kind}"]
    return found


def program() -> Path:
    """The interpreter; needs Go, as CI has it."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        lacking("go", "to build the Lua interpreter of Argo CD")
    pin = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()))).hexdigest()[:12]
    made = ROOT / ".tools" / "lua" / f"lua-{pin}"
    made.parent.mkdir(parents=True, exist_ok=True)
    with (made.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            command = [go, "build", "-buildvcs=false", "-mod=readonly", "-o", str(made), "."]
            environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}
            # the limit ends what hangs: on a busy machine a build takes many minutes
            done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=1800)
            assert done.returncode == 0, done.stderr
    return made


def health(lua: Path, folder: Path, kind: str, *found: Any) -> list[dict[str, str]]:
    """What the check of a kind says of each object. `folder`: a place for the script."""
    path = folder / f"{kind}.lua"
    path.write_text(script(kind))
    asked = subprocess.run([str(lua), str(path)], input=json.dumps(found), capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr
    said: list[dict[str, str]] = json.loads(asked.stdout)
    return said
