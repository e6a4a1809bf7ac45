"""The gate looks at the gradient's own forward: it refuses what it refuses before one, and changes nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.config import ConfigError
from eval.environments.registry import TasksConfig
from launcher.results import training_records as reading
from launcher.results.training_records import read_folder
from tests.integration.rl.conftest import CHAT, rl_config
from tests.integration.rl.test_gate import swapped
from training.rl import trainer as rl_trainer
from training.rl.learning import gate
from training.rl.learning.row_trainer import RowTrainer
from training.rl.train import make_trainer, train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
SAME = 1e-6
WAYS = [pytest.param(True, id="waits"), pytest.param(False, id="before")]


def choose(patch: pytest.MonkeyPatch, waits: bool) -> None:
    if not waits:
        patch.setattr(gate, "waits", lambda *_: False)


def counted(patch: pytest.MonkeyPatch) -> list[int]:
    """Gets the number of rows of each forward."""
    passes: list[int] = []
    likely = RowTrainer.likely

    def counting(trainer: Any, model: Any, made: dict[str, Any]) -> Any:
        passes.append(len(made["prompt_ids"]))
        return likely(trainer, model, made)

    patch.setattr(RowTrainer, "likely", counting)
    return passes


def gradient_of(trainer: Any) -> Any:
    import torch

    return torch.cat([weight.grad.flatten() for weight in trainer.model.parameters() if weight.grad is not None])


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"post_kl": True}, id="dapo"),
        pytest.param({"loss": "grpo", "importance": "sequence", "trl": {"entropy_coef": 0.2}}, id="gspo, bonus"),
        pytest.param({"prompt": CHAT, "rows": "trajectory", "loss": "cispo", "epsilon_high": 5.0}, id="trajectory"),
        pytest.param({"advantage": "gigpo", "top_p": 0.9, "average": "rollouts"}, id="gigpo, filter"),
    ],
)
def test_both_ways_have_the_same_gradient_rows_and_figures(
    start: Path, chat_start: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """And the one has half of the passes."""
    found = []
    for waits in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            choose(patch, waits)
            model = chat_start if "rows" in changes else start
            made = make_trainer(rl_config(model, **changes), tmp_path / str(waits))
            passes = counted(patch)
            made.create_optimizer()
            loss = float(made.training_step(made.model, {}))
            made.close()
            told = {name: values[-1] for name, values in made._metrics["train"].items()}
            found.append((loss, gradient_of(made), made.rows, told, len(passes)))
    (loss, gradient, rows, told, passes), (other, before, also, figures, twice) = found
    assert loss == pytest.approx(other, abs=SAME)
    assert float(before.norm()) > 1e-2
    assert float((gradient - before).norm() / before.norm()) < SAME
    assert twice == 2 * passes
    for one, two in zip(rows, also, strict=True):
        assert (one.at, one.turn.ids) == (two.at, two.turn.ids)
        assert (one.coefficients, one.bonus) == (two.coefficients, two.bonus)
        learnt = one.learnt or (True,) * len(one.old)
        for now, old, counts in zip(one.old, two.old, learnt, strict=True):
            assert now == pytest.approx(old, abs=1e-5) or not counts
    assert told.keys() == figures.keys()
    for name in told:
        assert "idle" in name or told[name] == pytest.approx(figures[name], abs=1e-5), name


def test_both_ways_have_the_same_weights_and_records_after_a_step(start: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    found = []
    for waits in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            choose(patch, waits)
            patch.setenv("SLIPWAY_METRICS", str(tmp_path / f"{waits}.jsonl"))
            out = tmp_path / str(waits)
            # a usual epsilon makes of a gradient that is 0 but for rounding, say of a key's bias, a whole step
            assert train(rl_config(start, steps=1, post_kl=True, trl={"adam_epsilon": 1e-3}), out, None)
        lines = [json.loads(line) for line in (tmp_path / f"{waits}.jsonl").read_text().splitlines()]
        told = {line["name"]: line["value"] for line in lines if "idle" not in line["name"]}
        assert {line["step"] for line in lines} == {1}
        turns = [line for line in read_folder(out / "results") if isinstance(line, reading.RlTurn)]
        records = [msgspec.structs.asdict(line) for line in turns]
        found.append((load_file(out / "model" / "model.safetensors"), told, records))
    (weights, figures, records), (others, told, also) = found
    assert told["train/post_kl_v2"] > 1e-6
    assert figures == pytest.approx(told, rel=1e-3, abs=1e-5)
    apart = [float((weights[name] - others[name]).abs().max()) for name in others]
    before = load_file(start / "model.safetensors")
    assert max(float((others[name] - value).abs().max()) for name, value in before.items()) > 1e-3
    assert max(apart) < SAME
    assert len(records) == len(also) > 8
    for one, two in zip(records, also, strict=True):
        assert one.keys() == two.keys()
        for name in one.keys() - {"time"}:
            assert one[name] == (pytest.approx(two[name], abs=1e-5) if "entrop" in name else two[name]), name


@pytest.mark.parametrize("waits", WAYS)
def test_a_failed_gate_leaves_weights_and_optimiser_bit_for_bit(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """In the second generation, when the optimiser has a state."""
    import copy

    import torch

    choose(monkeypatch, waits)
    fitting: Callable[..., Any] = rl_trainer.fitting
    kept: list[tuple[Any, Any]] = []
    made = make_trainer(rl_config(start, tasks=TasksConfig(count=2, seed=0)), tmp_path)

    def wrong(records: Any, pictures: Any) -> Any:
        if not made.state.global_step:
            return fitting(records, pictures)
        kept.append((copy.deepcopy(made.model.state_dict()), copy.deepcopy(made.optimizer.state_dict())))
        return fitting(swapped(records, None), pictures)

    monkeypatch.setattr(rl_trainer, "fitting", wrong)
    with pytest.raises(ConfigError, match=r"gate: generation 1: the loss does not see what .* in 2 of \d+ turns"):
        made.train()
    made.close()
    ((weights, state),) = kept
    now = made.model.state_dict()
    assert all(torch.equal(now[name], value) for name, value in weights.items())
    after = made.optimizer.state_dict()
    assert after["param_groups"] == state["param_groups"]
    assert state["state"]
    for number, held in state["state"].items():
        assert all(torch.equal(value, after["state"][number][name]) for name, value in held.items())
    assert all(weight.grad is None for weight in made.model.parameters())
    assert json.loads((tmp_path / "results" / "gate.json").read_text())["outside"] == 2
    steps = {line.step for line in read_folder(tmp_path / "results") if isinstance(line, reading.RlTurn)}
    assert steps == {1}  # nothing is told of what the gate refused


def test_a_masked_turn_has_a_pass_of_its_own(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = counted(monkeypatch)
    made = make_trainer(rl_config(start, mask_truncated=True, batch_size=64), tmp_path)
    made.create_optimizer()
    made.training_step(made.model, {})
    made.close()
    turns = [turn for group in made.last.groups for played in group.rollouts for turn in played.turns]
    uncut = [turn for turn in turns if not turn.cut]
    assert 0 < len(uncut) < len(turns)
    assert passes == [len(turns), len(uncut)]
