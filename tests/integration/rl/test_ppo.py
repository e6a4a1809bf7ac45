"""PPO's critic in a training: where it looks, that it learns, and that an interruption changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.rl.conftest import rl_config
from tests.integration.rl.test_training import same
from tests.support.made_once import made_once
from training.rl.config import RlConfig
from training.rl.learning.turn_records import turns_of
from training.rl.sections import CriticConfig
from training.rl.train import make_trainer, train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


def config(model: Path, **changes: Any) -> RlConfig:
    critic = CriticConfig(pretrain=1, learning_rate=1e-3, epochs=2)
    return rl_config(model, **{"advantage": "gae", "critic": critic, "steps": 3, **changes})


@pytest.fixture(scope="module")
def straight(start: Path) -> Path:
    return made_once("rl-ppo", undisturbed, start)


def undisturbed(out: Path, start: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(out / "metrics.jsonl"))
        assert train(config(start), out, None)


def test_the_policy_waits_for_the_critic_and_then_learns(straight: Path, start: Path) -> None:
    assert same(straight / "checkpoints" / "checkpoint-1", start)
    assert not same(straight / "checkpoints" / "checkpoint-2", start)
    values: dict[str, list[float]] = {}
    for line in (straight / "metrics.jsonl").read_text().splitlines():
        told = json.loads(line)
        values.setdefault(told["name"], []).append(told["value"])
    assert len(values["train/value_loss"]) == 3
    assert values["train/value_mean"][0] == 0  # its head begins at 0
    assert all(value != 0 for value in values["train/value_mean"][1:])


def test_a_training_that_was_cut_off_ends_with_the_same_bits(straight: Path, start: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(straight, again)
    (again / ".done").unlink()
    for name in ("checkpoints/checkpoint-3", "model"):
        shutil.rmtree(again / name)
    assert train(config(start), again, str(again / "checkpoints" / "checkpoint-2"))
    assert same(straight / "model", again / "model")
    critics = [
        torch.load(out / "checkpoints" / "checkpoint-3" / "critic.pt", weights_only=True)["network"]
        for out in (straight, again)
    ]
    assert all(torch.equal(critics[0][name], critics[1][name]) for name in critics[0])


def test_a_value_is_that_of_the_place_from_which_its_token_was_drawn_and_the_critic_learns(
    start: Path, tmp_path: Path
) -> None:
    trainer = make_trainer(config(start), tmp_path)
    critic = trainer.critic
    critic.on_train_begin(trainer.args, trainer.state, trainer.control)
    torch.nn.init.normal_(critic.network.head.weight)
    made = trainer.roll_out(0)
    rows = turns_of(made)
    for row, found in zip(rows[:3], critic.values(rows)[:3], strict=True):
        alone = trainer.inputs([row])
        seen = {name: alone[name] for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids")}
        for at, value in enumerate(found):  # the tokens before, and none after
            ids = torch.tensor([[*row.turn.prompt_ids, *row.turn.ids[:at]]])
            kinds = seen["mm_token_type_ids"][:, : ids.shape[1]]
            with torch.no_grad():
                hidden = critic.network.body(
                    input_ids=ids, attention_mask=torch.ones_like(ids), **{**seen, "mm_token_type_ids": kinds}
                ).last_hidden_state
            assert critic.network.head(hidden[0, -1]).item() == pytest.approx(value, abs=1e-4)
    first, last = (critic.credited(rows) and critic.figures["value_loss"] for _ in range(2))
    for _ in range(5):
        critic.credited(rows)
    assert critic.figures["value_loss"] < min(first, last)
