"""examples/own-recordings as a user runs it, on few recordings and steps: real processes, the real backend."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from eval.config import convert
from eval.steps import StepsConfig
from tests.support.verbs import launcher
from training.data.packed.pack import PackConfig
from training.memory import plan
from training.memory.estimate import GIB
from training.memory.workload import Shape
from training.sft.train import SftConfig

EXAMPLE = Path(__file__).parents[3] / "examples" / "own-recordings"
SETTINGS = {
    "own-model:config.max_pixels": 16384,
    "own-sft:config.steps": 6,
    "own-sft:config.warmup_steps": 2,
    "own-sft:config.predictions": 0,
    "own-sft:config.evaluation.every": 6,
}


@pytest.mark.nightly
@pytest.mark.ml
def test_recordings_are_split_trained_on_and_measured_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state, cpus: 2}\n")
    recordings = tmp_path / "recordings"
    subprocess.run([sys.executable, EXAMPLE / "example_data.py", recordings], check=True)
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    try:
        launcher(
            tmp_path,
            "submit",
            str(EXAMPLE / "cpu.yaml"),
            "--follow",
            f"--set=inputs.recordings={recordings}",
            *settings,
        )
        states = [(run["name"], run["state"]) for run in json.loads(launcher(tmp_path, "status", "-o", "json"))]
        table = launcher(tmp_path, "results", "own-before", "own-after", "-o", "csv")
        after = [
            run for run in json.loads(launcher(tmp_path, "status", "-o", "json")) if run["name"].startswith("own-a")
        ]
        compared = [launcher(tmp_path, "compare", "own-before", run["run"]) for run in after]
        launcher(tmp_path, "report", "own-before", "own-after", "--file", "report.html")
    finally:
        launcher(tmp_path, "local", "stop")
    assert {state for _, state in states} == {"succeeded"}
    assert len(states) == 8  # two trainings, each measured
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["metric"] == "matches"]
    assert sorted((row["agent"], row["n"]) for row in rows) == [
        ("trained", "16"),
        ("trained", "16"),
        ("untrained", "16"),
    ]
    assert len({row["run"] for row in rows}) == 3
    assert len(compared) == 2
    assert all("16" in text for text in compared)
    assert "matches" in (tmp_path / "report.html").read_text()
    (validation,) = {
        tuple((row["metric"], row["n"]) for row in json.loads(path.read_text()) if row["split"].startswith("before"))
        for path in tmp_path.glob("store/runs/own-sft-*/attempts/1/outputs/results/summary.json")
    }
    assert validation == (("matches", 12),)


def test_the_training_on_a_card_fits_its_card(tmp_path: Path) -> None:
    job = jobs("card-24gb.yaml")["card-sft"]
    (tmp_path / "own-sft.yaml").write_text(yaml.safe_dump(job).replace("learning_rate: 1e-4", "learning_rate: 1.0e-4"))
    config, method, card, cards = plan.load(tmp_path / "own-sft.yaml", None)
    assert (method, card, cards) == ("sft", "L4", 1)
    assert plan.needed(config, method, Shape(), cards, plan.parse_size(card)) / GIB < plan.CARDS[card]


def jobs(name: str) -> dict[str, dict[str, object]]:
    return {job["name"]: job for job in yaml.safe_load_all((EXAMPLE / name).read_text())}


@pytest.mark.parametrize("name", ["cpu.yaml", "card-24gb.yaml"])
def test_the_model_is_asked_as_it_was_taught_on_a_split_that_it_was_not_shown(name: str) -> None:
    # own-before and so on, or card-before: the two files can be submitted together
    sections = {job.partition("-")[2]: section["config"] for job, section in jobs(name).items() if "config" in section}
    sections["sft"]["learning_rate"] = 1e-3  # type: ignore[index]  # YAML 1.1 reads 1e-3 as a text
    before = convert(sections["before"], StepsConfig, "before")
    sft = convert(sections["sft"], SftConfig, "sft")
    after = convert(sections["after"], StepsConfig, "after")
    assert before.prompt == sft.prompt == after.prompt
    assert (before.data, before.split, before.count) == (after.data, after.split, after.count)
    assert sft.data == before.data  # its split `train`
    assert sft.evaluation is not None
    assert len({before.split, sft.evaluation.split, "train"}) == 3
    pack = convert(sections["pack"], PackConfig, "pack")  # too few recordings are told there, and not by later jobs
    assert set(pack.split.required) == {before.split, sft.evaluation.split}
