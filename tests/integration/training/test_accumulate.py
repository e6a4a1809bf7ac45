"""`accumulate` does not change what is learnt: the gradient of several passes is that of one pass over the same batch.

The reference is the same trainer with the whole batch in one pass. The batch's samples differ in length and the last
pass of an epoch is smaller, because a mean of means is right by chance where all passes are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.integration.training import preference
from tests.unit.training.material import SIZES, episodes
from training import rewards as reward_functions
from training.data.faults import Faults
from training.data.pairs.store import read_pairs
from training.data.samples import Sample
from training.data.source import open_source
from training.dpo import train as dpo
from training.grpo import train as grpo
from training.grpo.config import GrpoConfig
from training.grpo.prompts import Prompts
from training.options import LoraConfig
from training.reward import train as reward
from training.rewards import RewardSpec
from training.sft import train as sft
from training.tiny import TinyConfig, build

pytestmark = [
    pytest.mark.ml,
    # TRL asks peft's model by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
SPLITS = [(2, 3), (1, 6), (4, 2)]  # (batch_size, accumulate) of six samples; the last has a pass of four and one of two
COMMON: dict[str, Any] = {"steps": 1, "warmup_steps": 0, "max_grad_norm": 0.0, "log_every": 1, "save_every": 100}
NEAR = 1e-6  # the largest difference of a weight's gradient, as a share of the norm of all


class Drawn:
    """A picture that is made when it is opened."""

    def __init__(self, shade: int) -> None:
        self.size, self.shade = (64, 64), shade

    def open(self) -> Image.Image:
        return Image.new("RGB", self.size, (self.shade, 90, 40))


def chats(count: int = 6) -> list[Sample]:
    """Chats with one image each whose answers have very different lengths."""
    found = []
    for number in range(count):
        asked = [{"type": "image"}, {"type": "text", "text": "Click."}]
        answer = [{"type": "text", "text": "Action: " + "CLICK(x=0.5, y=0.5) " * (1 + 3 * number)}]
        turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
        found.append(Sample(turns, [Drawn(30 * number)]))  # type: ignore[list-item]
    return found


@pytest.fixture(scope="module")
def made() -> tuple[Path, Path]:
    """(pairs, model)"""
    return preference.pairs_and_model()


def gradient(trainer: Any) -> tuple[dict[str, Any], float]:
    """(gradients of the first optimiser step by name, the loss that it logs)"""
    from transformers import TrainerCallback

    gradients: dict[str, Any] = {}

    class Take(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any) -> None:
            if not gradients:
                kept = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}
                gradients.update(kept)

    trainer.add_callback(Take())
    trainer.train()
    return gradients, next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)


def assert_same_gradient(make: Callable[[int, int], Any]) -> None:
    import torch

    whole, loss = gradient(make(6, 1))
    norm = float(torch.stack([value.norm() for value in whole.values()]).norm())
    assert norm > 0
    for batch_size, accumulate in SPLITS:
        parts, told = gradient(make(batch_size, accumulate))
        assert parts.keys() == whole.keys()
        apart = max(float((parts[name] - whole[name]).abs().max()) for name in whole)
        print(f"{batch_size} x {accumulate}: {apart / norm:.1e} of the gradient's norm")
        assert apart <= NEAR * norm, f"{batch_size} x {accumulate}: {apart / norm:.2g} of the gradient's norm"
        assert told == pytest.approx(loss, rel=1e-5, abs=1e-6)


NIGHTLY = pytest.mark.nightly  # one of each trainer, and of each way to divide the loss, is enough in CI


@pytest.mark.parametrize(
    "lora",
    [pytest.param(None, id="full"), pytest.param(LoraConfig(rank=4, alpha=8), id="lora", marks=NIGHTLY)],
)
def test_sft(made: tuple[Path, Path], tmp_path: Path, lora: LoraConfig | None) -> None:
    def make(batch_size: int, accumulate: int) -> Any:
        config = sft.SftConfig(
            model=str(made[1]), episodes=".", batch_size=batch_size, accumulate=accumulate, lora=lora, **COMMON
        )
        return sft.make_trainer(config, chats(), tmp_path / f"{batch_size}")

    assert_same_gradient(make)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "losses",
    [
        pytest.param(["sigmoid"], id="sigmoid"),
        pytest.param(["sft", "sigmoid"], id="sft+sigmoid", marks=NIGHTLY),
        pytest.param(["sft", "ipo", "apo_zero"], id="sft+ipo+apo_zero", marks=NIGHTLY),
    ],
)
def test_dpo(made: tuple[Path, Path], tmp_path: Path, losses: list[Any]) -> None:
    def make(batch_size: int, accumulate: int) -> Any:
        config = dpo.DpoConfig(
            model=str(made[1]), pairs=str(made[0]), prompt=preference.PROMPT, losses=losses,
            weights=[0.5, *[1.0] * (len(losses) - 1)], batch_size=batch_size, accumulate=accumulate, **COMMON,
        )  # fmt: skip
        return dpo.make_trainer(config, read_pairs(made[0], "train")[:6], tmp_path / f"{batch_size}")

    assert_same_gradient(make)


@pytest.mark.nightly
def test_reward(made: tuple[Path, Path], tmp_path: Path) -> None:
    def make(batch_size: int, accumulate: int) -> Any:
        config = reward.RewardConfig(
            model=str(made[1]), pairs=str(made[0]), batch_size=batch_size, accumulate=accumulate, **COMMON
        )
        return reward.make_trainer(config, read_pairs(made[0], "train")[:6], tmp_path / f"{batch_size}")

    assert_same_gradient(make)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(episodes, model)"""
    root = tmp_path_factory.mktemp("prompts")
    folder = episodes(root, 4, preference.PROMPT)
    build(TinyConfig(episodes=str(folder), prompt=preference.PROMPT, **SIZES), root / "model")  # type: ignore[arg-type]
    return folder, root / "model"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "loss",
    [
        "grpo",
        "dapo",
        *(pytest.param(name, marks=NIGHTLY) for name in ("dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")),
    ],
)
def test_grpo(prompts: tuple[Path, Path], tmp_path: Path, loss: Any) -> None:
    def make(batch_size: int, accumulate: int) -> Any:
        config = GrpoConfig(
            model=str(prompts[1]), data=str(prompts[0]), prompt=preference.PROMPT, loss=loss, beta=0.1,
            rewards=[RewardSpec(name=f"{__name__}:variety")], num_generations=2, max_completion=12, epsilon=0.2,
            epsilon_high=5.0 if loss == "cispo" else None,
            batch_size=batch_size, accumulate=accumulate, **COMMON,
        )  # fmt: skip
        rewards, faults = reward_functions.load(config.rewards), Faults()
        found = open_source(config.data, config.prompt.builder(), faults)
        trainer = grpo.make_trainer(config, rewards, Prompts(found, rewards, faults), tmp_path / f"{batch_size}")
        sample = trainer._generate_single_turn

        def cut(ids: Any, *rest: Any, **options: Any) -> Any:
            """Answers of different lengths, which a random model does not give by itself."""
            answers, logprobs = sample(ids, *rest, **options)
            return [answer[: 1 + 2 * number] for number, answer in enumerate(answers)], logprobs

        trainer._generate_single_turn = cut
        return trainer

    whole = make(6, 1)
    assert whole.args.generation_batch_size == make(2, 3).args.generation_batch_size == 6
    splits = [split for split in SPLITS if split[0] * split[1] == 6]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.SPLITS", splits)  # GRPO's passes are all of one size
        assert_same_gradient(make)


def variety(attempts: Any) -> list[float | None]:
    """How many different characters an answer has."""
    return [len(set(attempt.text)) / 20 for attempt in attempts]
