"""A tiny model from its first training to its figure in a report, in one process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eval.config import convert
from eval.environments.registry import TasksConfig
from eval.prompts import PromptConfig
from eval.rollout.loop import RolloutLimits
from eval.run import RunConfig, evaluate
from launcher.cli import main
from launcher.results.training_records import RlRollout, RlTurn, read_folder
from launcher.spec.model import Output
from launcher.store.base import Store
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.unit.training.material import episodes, model
from training.rl.config import RlConfig
from training.rl.train import train as rl
from training.sft.train import SftConfig
from training.sft.train import train as sft

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
PROMPT = PromptConfig(decimals=2, system="", history=2, images=2)
LEARNING: dict[str, Any] = {"prompt": PROMPT, "learning_rate": 3e-3, "warmup_steps": 0, "log_every": 1, "save_every": 1}


@pytest.mark.timeout(1200)
def test_a_model_is_taught_tries_for_itself_and_is_measured_and_reported(
    tmp_path: Path, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, so that torch is imported, and the model made, in one process only."""
    made = episodes(tmp_path, 2, PROMPT)
    start = model(tmp_path / "tiny", made, PROMPT)
    taught = taught_in_two_steps(start, made, tmp_path / "sft", monkeypatch)
    trained = rewarded_in_one_step(taught, tmp_path / "rl")
    measured(trained, tmp_path / "eval")
    reported(tmp_path / "eval", file_store, tmp_path / "report.html")


def taught_in_two_steps(start: Path, made: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SFT with all samples in each batch: the second loss is that of the same samples, and lower."""
    monkeypatch.setenv("SLIPWAY_METRICS", str(metrics := out.with_suffix(".jsonl")))
    config = SftConfig(episodes=str(made), model=str(start), steps=2, batch_size=12, predictions=0, **LEARNING)
    assert sft(config, out, None)
    monkeypatch.delenv("SLIPWAY_METRICS")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    first, second = [line["value"] for line in lines if line["name"] == "train/loss"]
    assert second < first - 0.1
    assert {path.name for path in (out / "checkpoints").glob("checkpoint-*")} == {"checkpoint-1", "checkpoint-2"}
    assert (out / ".done").exists()
    return out / "model"


def rewarded_in_one_step(taught: Path, out: Path) -> Path:
    """GRPO: of a group of four the first two rollouts are rewarded, whatever they do."""
    world = "tests.integration.rl.worlds:Spoilt"
    options = {"count": str(out.with_suffix(".count")), "good": 2}
    limits = RolloutLimits(max_steps=1, parse_failures=9, attempts=1)
    size: dict[str, Any] = {"tasks_per_generation": 1, "group_size": 4, "batch_size": 4, "max_completion": 8}
    tasks = TasksConfig(count=1, seed=0)
    config = RlConfig(
        model=str(taught), environment=world, options=options, tasks=tasks, limits=limits, steps=1, **size, **LEARNING
    )
    assert rl(config, out, None)
    told = list(read_folder(out / "results"))
    success = {line.rollout: line.success for line in told if isinstance(line, RlRollout)}
    assert sorted(success.values()) == [False, False, True, True]
    turns = [line for line in told if isinstance(line, RlTurn)]
    assert len(turns) == 4
    for turn in turns:  # the deviation of (1, 1, 0, 0) from its mean, in its standard deviations
        assert turn.advantage == pytest.approx(0.866 if success[turn.rollout] else -0.866, abs=1e-3)
    gate = json.loads((out / "results" / "gate.json").read_text())
    assert gate["outside"] == 0
    assert gate["mean"] < 1e-5
    before, after = ((folder / "model.safetensors").read_bytes() for folder in (taught, out / "model"))
    assert before != after
    return out / "model"


def measured(trained: Path, out: Path) -> None:
    """Two steps of training solve nothing; the expert beside it solves all."""
    agent = {"kind": "transformers", "model": str(trained), "name": "trained", "max_new_tokens": 8}
    told = {"benchmark": "login", "environment": "login", "tasks": {"count": 3, "seed": 1_000_000}}
    given = {**told, "agent": agent, "baselines": [{"kind": "scripted"}], "limits": {"parse_failures": 1}}
    rows = {(row.agent, row.metric): row for row in evaluate(convert(given, RunConfig, "run"), out)}
    # none and all of three, with Wilson's 95 % interval
    for name, figures in (("trained", (0.0, 0.0, 0.5615)), ("scripted", (1.0, 0.4385, 1.0))):
        row = rows[name, "success"]
        assert (row.value, row.ci_low, row.ci_high) == pytest.approx(figures, abs=1e-4)
        assert (row.n, row.infra_failures) == (3, 0)
    outcomes = [json.loads(line)["outcome"] for line in (out / "tasks.jsonl").read_text().splitlines()]
    assert outcomes == ["scored"] * 3


def reported(results: Path, store: Store, page: Path) -> None:
    files = {str(path.relative_to(results)): path.read_bytes() for path in results.rglob("*") if path.is_file()}
    run = write_run(store, fake_job("eval", outputs={"results": Output()}), [FakeAttempt(outputs={"results": files})])
    assert main(["report", run, "--store", store.url, "--file", str(page)]) == 0
    shown = " ".join(re.sub("<[^>]*>", " ", page.read_text(encoding="utf-8")).split())
    assert "success eval trained 0.0 % 0.0 – 56.1 % 3 0 " in shown
    assert "eval scripted 100.0 % 43.9 – 100.0 % 3 0 " in shown
