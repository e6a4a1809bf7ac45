"""What the tests of k8s/ share: the folders, and kustomize's output for each, built once per process."""

from __future__ import annotations

import copy
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.needs import lacking

ROOT = Path(__file__).parents[3]
TREE = ROOT / "k8s"
OVERLAYS = sorted(path.name for path in (TREE / "overlays").iterdir())
COMPONENTS = sorted(path.name for path in (TREE / "components").iterdir())
# every folder that somebody applies
FOLDERS = (
    "base",
    *(f"overlays/{name}" for name in OVERLAYS),
    "reaper",
    *(f"overlays/{name}/reaper" for name in OVERLAYS if name != "kind-queues"),
    "machines",
    "serve",
    "gitops/argocd",
    "gitops/argocd/health",
    "gitops/flux",
)


OWN_KUBECTL = ROOT / ".tools" / "bin" / "kubectl"


def kubectl() -> str:
    """The cluster tests' own, or the machine's: both bring kustomize. Some of the latter, as Google's, ask for the
    server's version before they do anything."""
    found = str(OWN_KUBECTL) if OWN_KUBECTL.is_file() else shutil.which("kubectl")
    if found is None:
        lacking("kubectl")
    return found


@cache
def text(folder: str) -> str:
    """What `kubectl apply -k k8s/FOLDER` would send."""
    done = subprocess.run([kubectl(), "kustomize", str(TREE / folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # kustomize warns of what it is going to refuse one day
    assert not done.stderr, done.stderr
    return done.stdout


@cache
def _parsed(folder: str) -> tuple[dict[str, Any], ...]:
    found = tuple(yaml.load_all(text(folder), yaml.CSafeLoader))
    assert found
    return found


def objects(folder: str) -> tuple[dict[str, Any], ...]:
    """What a folder builds, the caller's own to change: the next one gets it as it was built."""
    return copy.deepcopy(_parsed(folder))


def pods(one: dict[str, Any]) -> dict[str, Any] | None:
    """The pod template of an object that has one."""
    if one["kind"] == "CronJob":
        one = one["spec"]["jobTemplate"]
    template: dict[str, Any] | None = one.get("spec", {}).get("template") if one.get("spec") else None
    return template


def name(one: dict[str, Any]) -> str:
    return f"{one['kind']}/{one['metadata'].get('namespace', '')}/{one['metadata']['name']}"


def of_kind(folder: str, kind: str) -> list[dict[str, Any]]:
    """The objects of one kind that a folder builds."""
    return [one for one in objects(folder) if one["kind"] == kind]
