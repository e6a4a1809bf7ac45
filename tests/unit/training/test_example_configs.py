"""Every configuration in examples/configs is a job that the launcher takes, and fits the card it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from launcher.spec.read.load import load as load_jobs
from training.memory import plan
from training.memory.estimate import GIB
from training.memory.workload import Shape

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "configs"
FILES = sorted(FOLDER.glob("*.yaml"))
NAMED = {"16gb": ("A4000", 1), "24gb": ("L4", 1), "80gb": ("H100", 1), "8x80gb": ("H100", 8)}


def peak(path: Path) -> float:
    """GiB of one device."""
    config, method, gpu, gpus = plan.load(path, None)
    assert gpu is not None
    return plan.needed(config, method, Shape(), gpus, plan.parse_size(gpu)) / GIB


def test_there_is_one_for_each_method_and_each_machine() -> None:
    kinds = {(path.stem.split("-")[0], path.stem.split("-")[-1]) for path in FILES}
    assert {method for method, _ in kinds} == {"sft", "reward", "dpo", "grpo", "rl"}
    assert {card for _, card in kinds} == set(NAMED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_launcher_takes_it_and_it_fits_its_card(path: Path) -> None:
    (job,) = load_jobs([str(path)], cwd=ROOT).jobs
    assert job.name == path.stem
    data = yaml.safe_load(path.read_text())
    card, gpus = NAMED[path.stem.split("-")[-1]]
    of_trainer = data["resources"]["gpus"]
    others = [
        (role["resources"], role.get("replicas", 1)) for role in data.get("roles", {}).values() if "image" in role
    ]
    assert of_trainer + sum(each["gpus"] * ranks for each, ranks in others) == gpus
    assert {data["resources"]["gpu"], *(each["gpu"] for each, _ in others if each["gpus"])} == {card}
    processes = [word for before, word in zip(data["command"], data["command"][1:], strict=False) if "nproc" in before]
    assert processes == ([str(of_trainer)] if of_trainer > 1 else [])
    assert "deadline" in data["limits"]
    assert data["outputs"]["checkpoints"]["kind"] == "checkpoints"
    config, method, _, _ = plan.load(path, None)
    assert method == path.stem.split("-")[0]
    assert ("lora" in path.stem) == (config.lora is not None)
    assert ("qlora" in path.stem) == (config.quantization is not None)
    assert (of_trainer > 1) == (config.fsdp or config.deepspeed is not None)
    assert peak(path) < plan.CARDS[card]
    plan.refuse_vllm(config, plan.describe(config, method, Shape(), of_trainer).vllm, plan.parse_size(card))
    config.check() if method == "rl" else None  # no file of its inputs is looked at


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_page_on_memory_lists_its_estimate(path: Path) -> None:
    page = (ROOT / "docs" / "explanation" / "memory.md").read_text()
    row = re.search(rf"^\| `{path.stem}`(?: \(its trainer\))? \|.*\| *([0-9.]+) \| *[0-9.]+ \|$", page, re.MULTILINE)
    assert row is not None, "run: python -m tests.bench.memory examples"
    assert float(row.group(1)) == pytest.approx(peak(path), abs=0.06)
