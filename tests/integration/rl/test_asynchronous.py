"""Rollouts beside the training: what it learns from, and that a ledger outside it agrees, whoever is killed."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from launcher.results import training_records as reading
from launcher.results.training_records import read_folder
from tests.integration.rl import worlds
from tests.integration.rl.conftest import rl_config
from tests.integration.rl.test_training import newest, written
from tests.support.waiting import until
from training.common.entry import read_state
from training.rl.asynchronous.rollouts import AsyncRollouts
from training.rl.config import RlConfig
from training.rl.learning.coefficients import truncated_weights
from training.rl.sections import AsyncConfig
from training.rl.train import main, make_trainer, train
from training.rl.weights.published import PublishedWeights

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
PLACE = "tests.integration.rl.worlds:Ledgered"


def config(model: Path, **changes: Any) -> RlConfig:
    chosen = {"environment": PLACE, "asynchronous": AsyncConfig(staleness=1), "batching": "ready"}
    return rl_config(model, **{**chosen, **changes})


def of(kind: type[Any], out: Path) -> list[Any]:
    return [line for line in read_folder(out / "results") if isinstance(line, kind)]


def ledger(file: Path) -> dict[str, list[str]]:
    """Event -> the attempts of which it is told."""
    found: dict[str, list[str]] = {"began": [], "judged": []}
    for line in file.read_text().splitlines():
        told = json.loads(line)
        found[told["event"]].append(told["name"])
    return found


def agree(out: Path, file: Path, steps: int) -> dict[str, list[str]]:
    """Every rollout that the records count was judged once, and counts once; every step has all of its own."""
    told, counted = ledger(file), [line.detail["attempt"] for line in of(reading.RlValidation, out)]
    assert max(Counter(counted).values()) == max(Counter(told["judged"]).values()) == 1
    assert set(counted) <= set(told["judged"]) <= set(told["began"])
    rollouts = of(reading.RlRollout, out)
    assert Counter(line.step for line in rollouts) == dict.fromkeys(range(1, steps + 1), 8)
    assert all(line.outcome == "scored" and 0 <= line.step - 1 - line.version <= 1 for line in rollouts)
    return told


def processes(file: Path) -> set[int]:
    return {json.loads(line)["process"] for line in file.read_text().splitlines()}


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_trains_on_rollouts_of_another_process_and_stops_it(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ledger"
    monkeypatch.setenv(worlds.LEDGER, str(file))
    monkeypatch.setenv("SLIPWAY_METRICS", str(tmp_path / "metrics.jsonl"))
    assert train(config(start), tmp_path, None)
    agree(tmp_path, file, 4)
    (process,) = processes(file)
    assert process != os.getpid()
    assert gone(process)
    values: dict[str, list[float]] = {}
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        told = json.loads(line)
        values.setdefault(told["name"], []).append(told["value"])
    assert max(values["train/gate_mean"]) < 1e-5  # by the weights that sampled, though most are not the newest
    assert max(values["train/staleness_most"]) == 1
    for name in ("model_idle", "desktop_idle", "trainer_idle"):
        assert all(0 <= value <= 1 for value in values[f"train/{name}"]), name
    assert all(math.isfinite(value) for value in values["train/loss"])
    assert any(value != pytest.approx(1, abs=1e-6) for value in values["train/weights"])


@pytest.mark.parametrize(
    ("point", "time", "step"),
    [("stepped", 2, 1), *(pytest.param(late, 3, 2, marks=pytest.mark.nightly) for late in ("gate", "torn"))],
)
def test_after_sigkill_no_rollout_counts_twice_and_no_worker_is_left(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, time: int, step: int
) -> None:
    file, out = tmp_path / "ledger", tmp_path / "out"
    monkeypatch.setenv(worlds.LEDGER, str(file))
    chosen = config(start, steps=step + 1)
    command = [sys.executable, "-m", "tests.integration.rl.killed", point, str(time)]
    command += ["--config", str(written(chosen, tmp_path)), "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    until(lambda: all(map(gone, processes(file))))
    found = newest(out)
    assert found is not None
    assert read_state(str(found))["global_step"] == step
    thrown = len(ledger(file)["judged"])
    assert train(chosen, out, str(found))
    told = agree(out, file, step + 1)
    assert len(told["judged"]) > (step + 1) * 8  # what was judged and in no checkpoint was thrown away, and played anew
    assert thrown > step * 8
    assert len(processes(file)) == 2


def test_a_worker_that_is_killed_is_replaced_and_what_was_not_back_is_played_again(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file, killer = tmp_path / "ledger", tmp_path / "killer"
    killer.touch()
    monkeypatch.setenv(worlds.LEDGER, str(file))
    monkeypatch.setenv(worlds.KILLER, str(killer))
    assert train(config(start, steps=2), tmp_path / "out", None)
    told = agree(tmp_path / "out", file, 2)
    assert len(told["began"]) > len(told["judged"])  # in flight when it was killed
    assert len(processes(file)) == 2
    assert "the rollout worker ended with signal 9; another one plays what is not back" in capfd.readouterr().out


def test_sigterm_ends_both(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ledger"
    monkeypatch.setenv(worlds.LEDGER, str(file))
    collect, calls = AsyncRollouts.collect, []

    def stopping(self: AsyncRollouts, number: int, stop: Any) -> Any:
        calls.append(number)
        if number == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return collect(self, number, stop)

    monkeypatch.setattr(AsyncRollouts, "collect", stopping)
    assert not train(config(start, save_every=100, tasks_per_generation=3), tmp_path / "out", None)
    monkeypatch.setattr(AsyncRollouts, "collect", collect)
    assert all(map(gone, processes(file)))
    (saved,) = (tmp_path / "out" / "checkpoints").glob("checkpoint-*")
    state = read_state(str(saved))
    assert state["global_step"] in (1, 2)  # 2 where the groups of the second update were there already
    attributes = state["stateful_callbacks"]["TaskSampler"]["attributes"]
    ahead = 6 if state["global_step"] == 1 else 3
    assert len(attributes["unused"]) == ahead  # ordered ahead: they come first when the training goes on
    assert attributes["drawn"] == 9


@pytest.fixture
def made(start: Path, tmp_path: Path) -> Any:
    return make_trainer(config(start), tmp_path / "made")


def test_weights_of_before_come_and_go_to_the_bit(made: Any, tmp_path: Path) -> None:
    published = PublishedWeights(made.model, tmp_path, kept=2)
    published.publish(0)
    name, weight = next(iter(made.model.named_parameters()))
    first = weight.detach().clone()
    with torch.no_grad():
        weight.add_(0.25)
    published.publish(1)
    with published.at(0):
        assert torch.equal(dict(made.model.named_parameters())[name], first)
    assert torch.equal(weight, first + 0.25)
    published.publish(2)
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == ["1.safetensors", "2.safetensors"]


def test_the_gate_compares_with_the_weights_that_sampled(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the loss's forward takes the newest weights for all turns, the training stops."""
    monkeypatch.setenv(worlds.LEDGER, str(tmp_path / "ledger"))
    monkeypatch.setattr(AsyncRollouts, "at_sampling", lambda self, rows, now, number: list(now))
    file = written(config(start, learning_rate=0.02), tmp_path)
    assert main(["--config", str(file), "--out", str(tmp_path / "out")]) == 78
    assert "the loss does not see what the rollouts saw" in capsys.readouterr().err


def test_truncated_weights_by_hand() -> None:
    """p_now / p_then of .5/.25 = 2, .1/.2 = .5 and .9/.1 = 9, which is cut at 2."""
    now, then = [math.log(0.5), math.log(0.1), math.log(0.9)], [math.log(0.25), math.log(0.2), math.log(0.1)]
    assert truncated_weights(now, then, 2.0) == pytest.approx((2.0, 0.5, 2.0))
