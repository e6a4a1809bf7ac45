"""A training that is evaluated on a split of the data set it learns from, before its first step and at its last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from eval.agents.config import TransformersConfig
from eval.environments.registry import TasksConfig
from eval.prompts import PromptConfig
from eval.steps import StepsConfig, evaluate
from tests.unit.training.material import SIZES
from training.common.measuring.in_training import EvaluationConfig
from training.data.__main__ import main as data
from training.make_episodes import MakeEpisodesConfig, make
from training.sft.train import SftConfig, train
from training.tiny import TinyConfig, build

pytestmark = pytest.mark.ml
PROMPT = PromptConfig(decimals=2, system="", history=0)


@pytest.mark.ci
def test_the_values_before_and_after_a_training_are_those_of_eval_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(
        MakeEpisodesConfig(
            environment="click",
            tasks=TasksConfig(count=24, seed=0),
            options={"size": 64, "grid": 4, "split": "train"},
            prompt=PROMPT,
        ),
        tmp_path,
    )
    packing = {"episodes": [str(tmp_path / "episodes")], "split": {"validation": 0.3}}
    (tmp_path / "pack.yaml").write_text(yaml.safe_dump(packing))
    assert data(["pack", "--config", str(tmp_path / "pack.yaml"), "--out", str(tmp_path / "dataset")]) == 0
    build(TinyConfig(episodes=str(tmp_path / "episodes"), prompt=PROMPT, **SIZES), tmp_path / "model")  # type: ignore[arg-type]
    metrics = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("SLIPWAY_METRICS", str(metrics))
    evaluation = EvaluationConfig(episodes=str(tmp_path / "dataset"), every=20, count=1000, at_start=True, keep="last")
    config = SftConfig(
        data=str(tmp_path / "dataset"), model=str(tmp_path / "model"), prompt=PROMPT, evaluation=evaluation,
        steps=20, batch_size=8, learning_rate=5e-3, warmup_steps=0, save_every=100, predictions=0, max_new_tokens=24,
    )  # fmt: skip
    assert train(config, tmp_path / "out", None)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    told = {(line["name"], line["step"]): line["value"] for line in lines if line["name"].startswith("eval/")}
    monkeypatch.delenv("SLIPWAY_METRICS")
    for step, model in ((0, tmp_path / "model"), (20, tmp_path / "out" / "model")):
        agent = TransformersConfig(model=str(model), max_new_tokens=24)
        steps = StepsConfig(data=str(tmp_path / "dataset"), split="validation", agent=agent, prompt=PROMPT)
        values = {row.metric: row.value for row in evaluate(steps, tmp_path / f"at-{step}")}
        assert {name: values[name] for name in ("matches", "exact", "click_in_box", "with_box")} == {
            name: told[f"eval/{name}", step] for name in ("matches", "exact", "click_in_box", "with_box")
        }
    summary = json.loads((tmp_path / "out" / "results" / "summary.json").read_text())
    first = [row for row in summary if row["split"] == "before the first step"]
    assert [(row["metric"], row["value"]) for row in first] == [("matches", told["eval/matches", 0])]
