"""The reaper's part of k8s/: where no submitter reaches it, pinned, and with the identity of the jobs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.k8s_tree.building import FOLDERS, OVERLAYS, TREE, kubectl, name, objects, of_kind


def test_nothing_of_the_reaper_is_where_jobs_are_submitted() -> None:
    """Whoever may create Jobs in a namespace may run them under its accounts and change its ConfigMaps."""
    for folder in FOLDERS:
        for one in objects(folder):
            if "reaper" in one["metadata"]["name"] and one["kind"] not in ("Role", "RoleBinding", "PrometheusRule"):
                assert one["metadata"]["namespace"] == "slipway-system", name(one)
            if one["kind"] == "RoleBinding" and one["metadata"]["name"] == "slipway-reaper":
                (subject,) = one["subjects"]
                assert (subject["name"], subject["namespace"]) == ("slipway-reaper", "slipway-system")
            if one["kind"] == "RoleBinding":
                assert one["metadata"]["namespace"] != "slipway-system"


@pytest.mark.parametrize("overlay", [one for one in OVERLAYS if not one.startswith("kind")])
def test_an_overlay_pins_the_reapers_image_and_gives_it_the_jobs_identity(overlay: str) -> None:
    """The reaper writes to the store that jobs write to."""
    (cron,) = of_kind(f"overlays/{overlay}/reaper", "CronJob")
    (container,) = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert re.fullmatch(r"registry\.example\.com/\S+@sha256:[0-9a-f]{64}", container["image"])

    def identity(folder: str, account: str) -> Any:
        (one,) = [one for one in of_kind(folder, "ServiceAccount") if name(one).endswith(account)]
        return one["metadata"].get("annotations")

    jobs = identity(f"overlays/{overlay}", "/slipway/slipway-run")
    assert identity(f"overlays/{overlay}/reaper", "/slipway-system/slipway-reaper") == jobs
    assert (jobs is None) is (overlay in ("on-prem", "plain"))


def test_another_namespace_leaves_the_reaper_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        f"namespace: ml\nresources: [{os.path.relpath(TREE / 'overlays/gke', tmp_path.resolve())}]\n"
    )
    built = subprocess.run([kubectl(), "kustomize", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    found = list(yaml.safe_load_all(built))
    assert {one["metadata"]["namespace"] for one in found if "namespace" in one["metadata"]} == {"ml"}
    (binding,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == ("RoleBinding", "slipway-reaper")]
    assert binding["subjects"][0]["namespace"] == "slipway-system"
