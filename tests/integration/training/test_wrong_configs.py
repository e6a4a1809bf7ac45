"""A configuration that cannot work is one line on stderr and exit code 78, in every trainer, wherever it is noticed.

Each case ended in a traceback, or in a training that silently did something else. What is refused before torch is
loaded is in tests/unit/training/test_sft_config.py.
"""

from __future__ import annotations

import importlib
import math
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.integration.training import preference
from tests.support.made_once import made_once
from tests.support.refusing import refused

pytestmark = [
    pytest.mark.ml,
    # TRL asks peft's model by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
SHARED: list[tuple[dict[str, Any], str]] = [
    ({"max_pixels": 1}, "max_pixels: 1 is less than the 256 pixels of one token; allowed: 256 up"),
    ({"lora": {"targets": ["nothing"]}}, "lora.targets: no layer is called 'nothing'; among them are"),
    ({"lora": {"targets": "("}}, "lora.targets: '(' is no regular expression"),
    ({"lora": {"targets": ["norm"]}}, "a LoRA lies on linear layers"),
    ({"lora": {"targets": ["qkv"]}, "freeze_vision": True}, "lora.targets: no layer is called 'qkv'"),
    ({"model": "$BAD/torn-weights"}, "its weights cannot be read"),
    ({"model": "$BAD/no-processor"}, "its processor cannot be read"),
    ({"model": "$BAD/torn-config"}, "is not a valid JSON file"),
    ({"model": "hf://a/b/c/d"}, "Repo id must be in the form"),
]
OWN: dict[str, list[tuple[dict[str, Any], str]]] = {
    "sft": [
        ({"lora": {"targets": ["lm_head"]}}, "lora.targets: lm_head is the head; the losses multiply by its weights"),
        (
            {"episodes": None, "data": [{"path": "$EPISODES", "weight": 1e-300}, {"path": "$EPISODES"}]},
            "data: a mixture of more than",
        ),
        ({"evaluation": {"episodes": "$EPISODES", "minimum": math.nan}}, "evaluation.minimum is not a finite number"),
    ],
    "dpo": [
        ({"weights": [math.inf, 1]}, "weights[0] is not a finite number"),
    ],
    "reward": [
        ({"lora": {"targets": ["score"]}}, "score is the head"),
        ({"centring": math.inf}, "centring is not a finite number"),
    ],
    "grpo": [
        ({"lora": {"targets": ".*lm_head"}}, "lora.targets: lm_head is the head"),
        ({"rewards": [{"name": "format", "weight": math.nan}]}, "rewards[0].weight is not a finite number"),
    ],
}
CASES = [
    (method, change, says)
    for method in OWN
    for change, says in [*OWN[method], *(SHARED if method == "sft" else SHARED[:3])]
]


@pytest.fixture(scope="module")
def made() -> Path:
    """episodes, pairs, model, and models whose files are broken."""
    return made_once("wrong-configs", spoil, preference.material())


def spoil(root: Path, material: Path) -> None:
    shutil.copytree(material, root, dirs_exist_ok=True)
    for name in ("torn-weights", "no-processor", "torn-config"):
        shutil.copytree(root / "model", root / "bad" / name)
    weights = root / "bad" / "torn-weights" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    for file in (root / "bad" / "no-processor").iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            file.unlink()
    (root / "bad" / "torn-config" / "config.json").write_text("{")


def good(method: str, root: Path) -> dict[str, Any]:
    prompt = msgspec.to_builtins(preference.PROMPT)
    values: dict[str, Any] = {"model": str(root / "model"), "steps": 1, "batch_size": 2, "warmup_steps": 0}
    match method:
        case "sft":
            return {**values, "prompt": prompt, "episodes": str(root / "episodes")}
        case "grpo":
            rewards = [{"name": "format"}]
            return {**values, "prompt": prompt, "data": str(root / "episodes"), "rewards": rewards,
                    "num_generations": 2}  # fmt: skip
        case "dpo":
            return {**values, "prompt": prompt, "pairs": str(root / "pairs")}
        case _:
            return {**values, "pairs": str(root / "pairs")}


def filled(value: Any, root: Path) -> Any:
    if isinstance(value, dict):
        return {key: filled(inner, root) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, root) for inner in value]
    if isinstance(value, str):
        return value.replace("$BAD", str(root / "bad")).replace("$EPISODES", str(root / "episodes"))
    return value


@pytest.mark.parametrize(
    ("method", "change", "says"),
    CASES,
    ids=[f"{method}-{'-'.join(change)}-{i}" for i, (method, change, _) in enumerate(CASES)],
)
def test_it_is_one_line(
    method: str, change: dict[str, Any], says: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = importlib.import_module(f"training.{method}.train").main
    values = {**good(method, made), **filled(change, made)}
    assert says in refused(main, {name: value for name, value in values.items() if value is not None}, tmp_path, capsys)


def test_a_warm_up_longer_than_the_epochs_is_one_line(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {**good("sft", made), "epochs": 0.5, "warmup_steps": 1000}
    del values["steps"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    main = importlib.import_module("training.sft.train").main
    assert main(["--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "out")]) == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert "the learning rate would never be reached" in line
    assert not list(tmp_path.glob("out/checkpoints/checkpoint-*"))
