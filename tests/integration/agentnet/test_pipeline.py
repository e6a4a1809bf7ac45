"""examples/agentnet as a user runs it, on a small recording and few steps: real processes, the real backend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.agentnet.material import bench, recording
from tests.support.verbs import launcher

ROOT = Path(__file__).parents[3]
SETTINGS = {
    "agentnet-model:config.max_pixels": 16384,
    "agentnet-sft:config.steps": 20,
    "agentnet-sft:config.save_every": 20,
    "agentnet-sft:config.predictions": 3,
}


@pytest.mark.nightly
@pytest.mark.ml
def test_a_recording_is_trained_on_and_the_agent_scored(tmp_path: Path) -> None:
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state, cpus: 2}\n")
    inputs = {"inputs.recording": recording(tmp_path / "recording"), "inputs.bench": bench(tmp_path / "bench")}
    settings = [f"--set={name}={value}" for name, value in {**inputs, **SETTINGS}.items()]
    try:
        launcher(tmp_path, "submit", str(ROOT / "examples" / "agentnet"), "--backend", "local", "--follow", *settings)
        states = {run["name"]: run["state"] for run in json.loads(launcher(tmp_path, "status", "-o", "json"))}
    finally:
        launcher(tmp_path, "local", "stop")
    assert states == dict.fromkeys(
        ["agentnet-ingest", "agentnet-card", "agentnet-model", "agentnet-sft", "agentnet-before", "agentnet-after"],
        "succeeded",
    )
    outputs = {
        path.parents[2].name.rsplit("-", 1)[0]: path for path in tmp_path.glob("store/runs/*/attempts/1/outputs")
    }
    for name, agent in (("agentnet-before", "untrained"), ("agentnet-after", "trained")):
        rows = json.loads((outputs[name] / "results" / "summary.json").read_text())
        found = {(row["version"], row["metric"]): row for row in rows}
        assert {version for version, _ in found} == {"v1", "v2"}
        assert found["v1", "average"]["n"] == 4
        assert found["v1", "average"]["agent"] == agent
    losses = [
        line["value"]
        for path in sorted(tmp_path.glob("store/runs/agentnet-sft-*/attempts/1/metrics/main-0/*.jsonl"))
        for line in map(json.loads, path.read_text().splitlines())
        if line["name"] == "train/loss"
    ]
    assert losses[-1] < losses[0] / 2
