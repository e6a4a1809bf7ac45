"""Rollouts in one row each, with a model: the loss sees the same as turn by turn, and learns the same or what the
definition says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from eval.config import ConfigError
from tests.integration.rl.conftest import CHAT, picture_gradients, rl_config
from training.rl.learning import gate
from training.rl.learning.coefficients import TOKENS, MeanSettings, with_coefficients
from training.rl.learning.loss_rows import LossRow
from training.rl.learning.losses import LossSettings
from training.rl.learning.trajectory_rows import join_turns
from training.rl.learning.turn_records import TurnRecord, turns_of
from training.rl.sections import AsyncConfig, CriticConfig, ReplayConfig
from training.rl.train import make_trainer, train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


def config(start: Path, **changes: Any) -> Any:
    return rl_config(start, prompt=CHAT, rows="trajectory", **changes)


@pytest.fixture(scope="module")
def made(chat_start: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer of which no step was taken, on screens that change from turn to turn."""
    chosen = config(chat_start, environment="login", options={"split": "train"})
    return make_trainer(chosen, tmp_path_factory.mktemp("joined"))


@pytest.fixture(scope="module")
def rows(made: Any) -> list[TurnRecord]:
    """The turns of eight rollouts on two tasks, with advantages that differ from turn to turn."""
    found = turns_of(made.roll_out(0))
    return [replace(row, gains=(1.0 - 0.3 * (number % 5),) * row.tokens) for number, row in enumerate(found)]


def test_a_turn_has_the_same_log_probabilities_in_its_rollouts_row_as_by_itself(
    made: Any, rows: list[TurnRecord]
) -> None:
    whole = join_turns(rows)
    assert max(len(each.turns) for each in whole) > 2
    # this model is so little taught that some answers' texts are tokenised otherwise than they were sampled
    assert len({row.at[:2] for row in rows}) < len(whole) < len(rows)
    together, entropies = made.log_probabilities(rows)
    alone, apart = made._log_probabilities(rows)
    for row, one, other, unsure, also in zip(rows, together, alone, entropies, apart, strict=True):
        assert len(one) == len(row.turn.ids)
        assert torch.allclose(one, other, atol=1e-4, rtol=0)
        assert torch.allclose(unsure, also, atol=1e-4, rtol=0)
        assert torch.allclose(one, torch.tensor(row.turn.logprobs), atol=1e-4, rtol=0)


def gradient(made: Any, rows: list[LossRow], size: int) -> torch.Tensor:
    """Of a step's loss, all in one vector."""
    usual = made.chosen
    made.chosen = msgspec.structs.replace(usual, batch_size=size)
    made.model.zero_grad()
    try:
        made.gradient(made.model, rows, 0)
        grads = [weight.grad.flatten() for weight in made.model.parameters() if weight.grad is not None]
        return torch.cat(grads).clone()
    finally:
        made.chosen = usual
        made.model.zero_grad()


def weighed(made: Any, rows: list[TurnRecord], loss: Any, whole: bool) -> list[LossRow]:
    """With coefficients, as if the weights had moved since the sampling: some ratios leave the clipping range."""
    torch.manual_seed(0)
    off = [line + 0.3 * torch.randn_like(line) for line in made.log_probabilities(rows)[0]]
    records = [replace(row, old=tuple(line.tolist())) for row, line in zip(rows, off, strict=True)]
    done = with_coefficients(records, MeanSettings(by_row=loss not in TOKENS, whole=whole))
    return [each.row for each in join_turns(done)] if whole else [record.row() for record in done]


@pytest.mark.parametrize("loss", ["dapo", "cispo"])
def test_losses_that_are_a_mean_over_tokens_have_the_gradient_of_separate_turns(
    made: Any, rows: list[TurnRecord], monkeypatch: pytest.MonkeyPatch, loss: Any
) -> None:
    monkeypatch.setattr(made, "losses", LossSettings(kind=loss, high=5.0 if loss == "cispo" else 0.2))
    apart = gradient(made, weighed(made, rows, loss, False), 64)
    for size in (64, 2):
        together = gradient(made, weighed(made, rows, loss, True), size)
        assert float(apart.abs().max()) > 1e-3
        assert float((apart - together).abs().max() / apart.abs().max()) < 1e-5


@pytest.mark.parametrize("importance", ["token", "sequence"])
def test_losses_that_are_a_mean_over_rows_take_a_rollout_as_one_answer(
    made: Any, rows: list[TurnRecord], monkeypatch: pytest.MonkeyPatch, importance: str
) -> None:
    """Against the definition, in double precision: GRPO's mean over the sampled tokens of each row, then over rows;
    GSPO's ratio is the exponential of the mean log ratio of these tokens (arXiv 2507.18071, equation 7)."""
    now = made.log_probabilities(rows)[0]
    whole, separate = join_turns(rows), weighed(made, rows, "grpo", False)
    expected = 0.0
    for each in whole:
        ratios, gains = [], []
        for index, _, _ in each.turns:
            ratios += [float(a) - b for a, b in zip(now[index], separate[index].old, strict=True)]
            gains += rows[index].gains
        if importance == "sequence":
            ratios = [sum(ratios) / len(ratios)] * len(ratios)
        losses = []
        for ratio, gain in zip(ratios, gains, strict=True):
            weight = 2.718281828459045**ratio
            losses.append(-min(weight * gain, min(max(weight, 0.8), 1.2) * gain))
        expected += sum(losses) / len(losses) / len(whole)
    monkeypatch.setattr(made, "losses", LossSettings(kind="grpo", sequence=importance == "sequence"))
    found = made.gradient(made.model, weighed(made, rows, "grpo", True), 0)
    made.model.zero_grad()
    assert float(found) == pytest.approx(expected, abs=1e-5)
    assert abs(expected) > 1e-2


def test_pictures_that_change_places_within_a_rollout_are_caught(
    made: Any, rows: list[TurnRecord], tmp_path: Path
) -> None:
    whole, other = next(
        (each, place)
        for each in join_turns(rows)
        for place, image in enumerate(each.row.turn.images)
        if image.tobytes() != each.row.turn.images[0].tobytes()
    )
    places = {index for index, _, _ in whole.turns}
    changed = []
    for number, row in enumerate(rows):
        images = list(row.turn.images)
        if number in places and len(images) > other:
            images[0], images[other] = images[other], images[0]
        changed.append(replace(row, turn=replace(row.turn, images=tuple(images))))
    before, _ = made.log_probabilities(changed)
    gaps = [gate.gap(row.where, row.turn.logprobs, line.tolist()) for row, line in zip(rows, before, strict=True)]
    with pytest.raises(ConfigError, match="the loss does not see what the rollouts saw"):
        gate.check(gaps, made.chosen.tolerance, 0, tmp_path / "gate.json")
    outside = {each["where"] for each in json.loads((tmp_path / "gate.json").read_text())["worst"]}
    assert outside <= {rows[index].where for index in places}


def test_every_picture_of_a_row_has_a_gradient(made: Any, rows: list[TurnRecord]) -> None:
    whole = [each.row for each in join_turns(rows) if len(each.turns) > 2][:3]
    found = picture_gradients(made, whole)
    assert len(found) > len(whole)
    assert all(each > 0 for each in found)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model" / "model.safetensors"))


@pytest.mark.nightly
def test_a_training_learns_from_whole_rollouts_and_goes_on_where_it_was_cut_off(
    chat_start: Path, tmp_path: Path
) -> None:
    """And with steps that each have some of the rollouts, by GSPO."""
    chosen = config(chat_start, loss="grpo", importance="sequence", steps_per_generation=2, save_every=2, batch_size=3)
    assert train(chosen, tmp_path / "straight", None)
    start, end = weights(chat_start.parent), weights(tmp_path / "straight")
    assert any(not torch.equal(start[name], end[name]) for name in start)
    assert train(chosen, tmp_path / "again", str(tmp_path / "straight" / "checkpoints" / "checkpoint-2"))
    again = weights(tmp_path / "again")
    assert all(torch.equal(again[name], end[name]) for name in end)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"advantage": "gae", "critic": CriticConfig(), "scale_rewards": "none"}, id="ppo"),
        pytest.param({"advantage": "gigpo", "gamma": 0.9, "average": "rollouts"}, id="gigpo"),
        *[
            pytest.param(changes, id=name, marks=pytest.mark.nightly)
            for name, changes in {
                "per turn": {"advantage": "per_turn", "gamma": 0.9, "entropy_share": 0.5},
                "dr-grpo": {"average": "constant", "scale_rewards": "none", "loss": "cispo", "epsilon_high": 5.0},
                "replay": {"replay": ReplayConfig()},
                "asynchronous": {"asynchronous": AsyncConfig(staleness=1), "batching": "ready"},
            }.items()
        ],
    ],
)
def test_it_goes_with_every_part_that_gives_turns_or_tokens_their_weight(
    chat_start: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """The first step has the same gradient as with a row for each turn."""
    found = []
    for rows in ("turn", "trajectory"):
        chosen = config(chat_start, steps=2, **changes)
        assert train(msgspec.structs.replace(chosen, rows=rows), tmp_path / rows, None)
        state = json.loads((tmp_path / rows / "checkpoints" / "checkpoint-1" / "trainer_state.json").read_text())
        found.append([state["log_history"][0][name] for name in ("loss", "grad_norm")])
    assert found[0][1] > 1e-3
    assert found[1] == pytest.approx(found[0], rel=1e-3, abs=1e-5)
