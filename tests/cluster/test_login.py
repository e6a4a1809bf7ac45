"""The examples in real pods, on a real S3 server.

`make cluster-test` takes one Job of examples/kubernetes to its result, in an image without torch; nightly takes
examples/login, short and whole, in the image slipway-cpu, through JobSet's controller, and holds its table and its
weights against those of `local`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.protocol.read import read_run
from tests.cluster.laptop import Laptop
from tests.integration.docker.test_login import CHANCE, GOAL, JOBS, SHORT
from tests.support.cluster.cluster import Cluster
from tests.support.engine import ROOT, Engine

COLUMNS = ("benchmark", "split", "agent", "metric", "value", "ci_low", "ci_high", "n", "infra_failures", "seeds")


def table(laptop: Laptop, runs: Sequence[str], *options: str) -> list[dict[str, Any]]:
    rows = json.loads(laptop.launcher("results", *runs, "-o", "json", *options))
    return [{name: row[name] for name in COLUMNS} for row in rows]


def weights(laptop: Laptop, run: str, to: str, *options: str) -> str:
    """The trained model's hash."""
    laptop.launcher("gather", run, "--to", to, *options)
    (file,) = (laptop.path / to).glob("**/model/model.safetensors")
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.cluster
def test_the_first_example_makes_its_episodes_in_a_pod(laptop: Laptop, cluster: Cluster) -> None:
    image = cluster.reaper()
    changes = [f"image={image}", "config.tasks.count=8", f"kubernetes.namespace={laptop.namespace}", "resources.cpus=1"]
    changes.append("kubernetes.store_secret=store")
    text = laptop.launcher(
        "submit",
        ROOT / "examples" / "kubernetes" / "cpu.yaml",
        "--follow",
        *(f"--set={change}" for change in changes),
        timeout=600,
    )
    print(text)
    (run,) = (one["run"] for one in json.loads(laptop.launcher("status", "-o", "json")))
    result = laptop.result(run)
    assert (result.outcome, result.attempt) == ("succeeded", 1)
    laptop.launcher("gather", run, "--to", "gathered")
    episodes = {path.parent for path in (laptop.path / "gathered").rglob("*.jsonl") if "episodes" in path.parts}
    assert len(episodes) >= 8
    pod = laptop.ended_pod(run)
    assert pod["status"]["containerStatuses"][0]["imageID"].endswith(image.partition("@")[2])


@pytest.mark.ml
@pytest.mark.nightly
@pytest.mark.cluster("jobset", "dns")
@pytest.mark.timeout(6000)
@pytest.mark.parametrize("settings", [SHORT, pytest.param((), marks=pytest.mark.alone)], ids=["short", "whole"])
def test_the_login_example_gives_on_kubernetes_what_it_gives_here(
    laptop: Laptop, cluster: Cluster, engine: Engine, cpu_image: str, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    cluster.jobset()
    cluster.dns()
    image = cluster.import_image(engine, cpu_image)
    login = ROOT / "examples" / "login"
    changes = [f"--set={change}" for change in settings]
    print(
        laptop.launcher(
            "submit", login, "--backend", "kubernetes", "--follow", f"--set=image={image}", *changes, timeout=2400
        )
    )
    runs = {one["name"]: one["run"] for one in json.loads(laptop.launcher("status", "-o", "json"))}
    assert set(runs) == set(JOBS)
    assert {len(read_run(laptop.store, run).attempts) for run in runs.values()} == {1}
    ours = table(laptop, (runs["login-before"], runs["login-after"]))
    print(laptop.launcher("results", runs["login-before"], runs["login-after"]))
    here = ("--store", (tmp_path / "here").as_uri())
    laptop.launcher("submit", login, "--backend", "local", "--follow", *here, *changes, timeout=2400)
    laptop.launcher("local", "stop", "--runs", code=None)
    assert ours == table(laptop, ("login-before", "login-after"), *here)
    assert weights(laptop, runs["login-sft"], "there") == weights(laptop, "login-sft", "here-gathered", *here)
    if not settings:
        success = {row["agent"]: row["value"] for row in ours if row["metric"] == "success"}
        assert success["trained"] >= GOAL
        assert max(success[agent] for agent in ("untrained", "commonest", "nearest")) < CHANCE
