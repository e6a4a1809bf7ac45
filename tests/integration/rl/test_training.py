"""training.rl as a job runs it: it learns, it tells, and it goes on bit for bit."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eval.environments.registry import TasksConfig
from launcher.results import training_records as reading
from launcher.results.training_records import read_folder
from tests.integration.rl.conftest import rl_config
from tests.support.made_once import made_once
from training.common.entry import read_state
from training.rl.sections import FreshConfig
from training.rl.train import main, train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


def same(a: Path, b: Path) -> bool:
    import torch
    from safetensors.torch import load_file

    first, second = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def straight(start: Path) -> Path:
    """The outputs of a training that nothing disturbed: four generations."""
    return made_once("rl-straight", undisturbed, start)


def undisturbed(out: Path, start: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(out / "metrics.jsonl"))
        assert train(rl_config(start), out, None)


def test_an_adapter_that_was_made_with_dropout_has_none(start: Path, tmp_path: Path) -> None:
    """The loss has to see the policy that sampled; a new LoRA with dropout is refused."""
    import torch
    from peft import LoraConfig, get_peft_model

    from training.common.model.loading import load_model
    from training.rl.train import make_trainer

    model, _ = load_model(rl_config(start))
    given = LoraConfig(r=2, lora_dropout=0.5, target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(model, given).save_pretrained(tmp_path / "adapter")
    made = make_trainer(rl_config(start, adapter=str(tmp_path / "adapter")), tmp_path / "out")
    found = [module.p for module in made.model.modules() if isinstance(module, torch.nn.Dropout)]
    assert found
    assert not any(found)
    made.close()


def test_it_trains_and_tells_so(straight: Path, start: Path) -> None:
    assert (straight / ".done").exists()
    assert not same(straight / "model", start)
    steps: dict[str, list[int]] = {}
    values: dict[str, list[float]] = {}
    for line in (straight / "metrics.jsonl").read_text().splitlines():
        told = json.loads(line)
        assert math.isfinite(told["value"])
        steps.setdefault(told["name"], []).append(told["step"])
        values.setdefault(told["name"], []).append(told["value"])
    for name in ("reward", "success", "turns", "void", "dropped_groups", "gate_mean", "loss", "entropy"):
        assert steps[f"train/{name}"] == [1, 2, 3, 4], name
    turns = [
        line
        for line in read_folder(straight / "results")
        if isinstance(line, reading.RlTurn) and line.entropy is not None
    ]
    assert turns
    for turn in turns:  # each token has its own, and they are not all the same
        told = [value for value in turn.entropies or [] if value is not None]
        assert len(told) == len(turn.token_ids or []) == turn.tokens
        assert turn.entropy == pytest.approx(sum(told) / len(told), rel=1e-5)
        assert min(told) > -1e-6
    assert len({value for turn in turns for value in turn.entropies or []}) > len(turns)
    assert min(values["train/zero_variance"]) < 1  # so that there was something to learn
    gate = json.loads((straight / "results" / "gate.json").read_text())
    assert (gate["generation"], gate["outside"]) == (3, 0)
    assert 8 <= gate["turns"] <= 24  # eight rollouts of three turns at most
    assert gate["mean"] < 1e-5
    rows = {row["metric"]: row for row in json.loads((straight / "results" / "summary.json").read_text())}
    assert (rows["reward"]["n"], rows["reward"]["clusters"], rows["reward"]["infra_failures"]) == (8, 2, 0)


def written(config: Any, folder: Path) -> Path:
    file = folder / "rl.yaml"
    given = {name: value for name, value in msgspec.to_builtins(config).items() if value is not None}
    file.write_text(yaml.safe_dump(given))
    return file


def newest(out: Path) -> Path | None:
    """The newest checkpoint that says that it is whole, as the runtime finds it."""
    whole = [path for path in (out / "checkpoints").glob("checkpoint-*") if (path / "trainer_state.json").exists()]
    return max(whole, key=lambda path: read_state(str(path))["global_step"], default=None)


# point, which time, the step to go on from
KILLS = [
    ("asked", 1, None),  # there is nothing to go on from
    ("asked", 3, 2),
    ("gate", 4, 3),
    ("stepped", 2, 1),
    ("torn", 3, 2),
]
QUICK = ("torn",)


@pytest.mark.parametrize(
    ("point", "time", "step"),
    [pytest.param(*kill, marks=() if kill[0] in QUICK and kill[2] else pytest.mark.nightly) for kill in KILLS],
)
def test_a_training_that_was_killed_ends_with_the_same_bits(
    straight: Path, start: Path, tmp_path: Path, point: str, time: int, step: int | None
) -> None:
    """Rollouts of the interrupted generation are thrown away, and played again with the same random numbers."""
    file, out = written(rl_config(start), tmp_path), tmp_path / "out"
    command = [sys.executable, "-m", "tests.integration.rl.killed", point, str(time), "--config", str(file)]
    ended = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    found = newest(out)
    assert (found and read_state(str(found))["global_step"]) == step
    assert train(rl_config(start), out, None if found is None else str(found))
    assert same(straight / "model", out / "model")


def test_dynamic_sampling_tells_what_it_left_out_and_goes_on_with_the_same_bits(start: Path, tmp_path: Path) -> None:
    def chosen() -> Any:
        tasks = TasksConfig(count=5, seed=0)
        easy = "tests.integration.rl.worlds:Easy"
        return rl_config(start, environment=easy, tasks=tasks, most_groups=4, reward="success", steps=3)

    straight, again = tmp_path / "straight", tmp_path / "again"
    assert train(chosen(), straight, None)
    told = list(read_folder(straight / "results"))
    groups = [line for line in told if isinstance(line, reading.RlGroup)]
    rollouts = Counter((line.step, line.group) for line in told if isinstance(line, reading.RlRollout))
    assert rollouts == {(line.step, line.group): 4 for line in groups}  # also of what was left out
    of_step = {step: [line for line in groups if line.step == step] for step in (1, 2, 3)}
    assert max(len(lines) for lines in of_step.values()) > 2
    for lines in of_step.values():
        used = [line for line in lines if line.dropped is None]
        assert [line.group for line in lines] == list(range(len(lines)))
        assert len(lines) <= 4
        assert len(used) == 2 or len(lines) == 4
        advantages = [line for line in told if isinstance(line, reading.RlTurn) and line.step == lines[0].step]
        places = {line.group for line in advantages if line.advantage is not None}
        assert places == ({line.group for line in used} or {line.group for line in lines})
    shutil.copytree(straight, again)
    (again / ".done").unlink()
    shutil.rmtree(again / "checkpoints" / "checkpoint-3")
    shutil.rmtree(again / "model")
    assert train(chosen(), again, str(again / "checkpoints" / "checkpoint-2"))
    assert same(straight / "model", again / "model")


def test_fresh_tasks_are_played_and_the_same_after_a_checkpoint(start: Path, tmp_path: Path) -> None:
    def chosen() -> Any:
        world, fresh = "tests.integration.rl.worlds:Redrawn", FreshConfig(each=2, most=3)
        order: dict[str, Any] = {"task_order": "curriculum", "fresh": fresh, "reward": "success"}
        return rl_config(start, environment=world, learning_rate=1e-6, **order)

    straight, again = tmp_path / "straight", tmp_path / "again"
    assert train(chosen(), straight, None)
    played: list[str] = [
        line.task_id for line in read_folder(straight / "results") if isinstance(line, reading.RlGroup)
    ]
    assert set(played) > {"login-0", "login-1", "login-2"}
    shutil.copytree(straight, again)
    (again / ".done").unlink()
    shutil.rmtree(again / "checkpoints" / "checkpoint-4")
    shutil.rmtree(again / "checkpoints" / "checkpoint-3")
    shutil.rmtree(again / "model")
    assert train(chosen(), again, str(again / "checkpoints" / "checkpoint-2"))
    assert same(straight / "model", again / "model")
    both = [read_state(str(each / "checkpoints" / "checkpoint-4")) for each in (straight, again)]
    made = [each["stateful_callbacks"]["TaskSampler"]["attributes"]["fresh"] for each in both]
    assert made[0] == made[1]
    assert len(made[0]["made"]) == 3 < made[0]["next"] - 3


def test_sigterm_in_the_rollouts_throws_them_away_and_saves(
    straight: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.rl.learning import gate
    from training.rl.rollouts import play
    from training.rl.rollouts.policy import Policy

    act, check, played = Policy._act, gate.check, []

    def stopping(self: Policy, *args: Any, **kwargs: Any) -> Any:
        if len(played) == 1:  # in the rollouts of the second generation
            os.kill(os.getpid(), signal.SIGTERM)
        return act(self, *args, **kwargs)

    def generation(*args: Any, **kwargs: Any) -> Any:
        played.append(True)
        return check(*args, **kwargs)

    monkeypatch.setattr(Policy, "_act", stopping)
    monkeypatch.setattr(gate, "check", generation)
    monkeypatch.setattr(play, "POLL", 0.001)  # the tiny model's rollouts may all end within the usual 0.2 s
    chosen = rl_config(start, save_every=100)
    assert not train(chosen, tmp_path, None)
    monkeypatch.undo()
    assert not (tmp_path / ".done").exists()
    (saved,) = (tmp_path / "checkpoints").glob("checkpoint-*")
    assert saved.name == "checkpoint-1"
    assert train(chosen, tmp_path, str(saved))
    assert same(straight / "model", tmp_path / "model")


def test_too_many_void_rollouts_end_with_code_1_and_the_reason(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = rl_config(start, environment="tests.integration.rl.worlds:Gone")
    assert main(["--config", str(written(chosen, tmp_path)), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "8 of 8 rollouts are void, more than max_void 0.25: 8 x DesktopGone: the desktop is gone" in said
    assert "Traceback" not in said
    assert not list((tmp_path / "out").glob("checkpoints/checkpoint-*"))
    assert not (tmp_path / "out" / "model").exists()


def test_the_first_step_of_a_warm_up_moves_the_weights_and_equal_returns_are_said_to_move_nothing(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(rl_config(start, warmup_steps=1, steps=2), tmp_path / "warm", None)
    assert not same(tmp_path / "warm" / "checkpoints" / "checkpoint-1", start)
    assert "teaches nothing" not in capsys.readouterr().out
    world: dict[str, Any] = {"environment": "tests.integration.rl.worlds:Spoilt"}
    world["options"] = {"count": str(tmp_path / "count"), "good": 0}
    assert train(rl_config(start, **world, steps=1), tmp_path / "equal", None)
    assert same(tmp_path / "equal" / "model", start)
    assert "warning: generation 0 teaches nothing: within each group" in capsys.readouterr().out
