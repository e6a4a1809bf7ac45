"""A policy that answers in the right form and knows little, made once for all tests of training.rl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eval.environments.registry import TasksConfig
from eval.prompts import PromptConfig
from eval.rollout.loop import RolloutLimits
from tests.support.made_once import made_once
from tests.unit.training.material import SIZES
from training.make_episodes import MakeEpisodesConfig, make
from training.rl.config import RlConfig
from training.sft.train import SftConfig
from training.sft.train import train as sft
from training.tiny import TinyConfig, build

if TYPE_CHECKING:
    from training.rl.learning.loss_rows import LossRow

PROMPT = PromptConfig(
    decimals=2, system="", history=2, images=2
)  # the pictures of two screens, from the second turn on


CHAT = PromptConfig(decimals=2, system="", history_style="chat")


@pytest.fixture(scope="session")
def start() -> Path:
    """A model that was taught with prompts of pictures and texts of the last steps."""
    return taught("rl-start", PROMPT)


@pytest.fixture(scope="session")
def chat_start() -> Path:
    """A model that was taught with prompts that continue each other."""
    return taught("rl-chat-start", CHAT)


def taught(name: str, prompt: PromptConfig, sizes: dict[str, int] = SIZES) -> Path:
    """The folder of a model that was taught the login form a little."""
    return made_once(name, _teach, prompt, sizes) / "model"


def _teach(root: Path, prompt: PromptConfig, sizes: dict[str, int]) -> None:
    options = {"split": "train", "disturb": 0.25}
    tasks = TasksConfig(count=60, seed=0)
    make(MakeEpisodesConfig(environment="login", tasks=tasks, options=options, prompt=prompt), root)
    made = str(root / "episodes")
    build(TinyConfig(episodes=made, prompt=prompt, **sizes), root / "tiny")  # type: ignore[arg-type]
    config = SftConfig(
        model=str(root / "tiny"),
        episodes=made,
        prompt=prompt,
        steps=150,
        batch_size=8,
        learning_rate=3e-3,
        adam_beta2=0.98,
        save_every=1000,
        predictions=0,
    )
    assert sft(config, root, None)


def rl_config(model: Path, **changes: Any) -> RlConfig:
    values: dict[str, Any] = {
        "model": str(model),
        "environment": "tests.integration.rl.worlds:Sides",
        "tasks": TasksConfig(count=3, seed=0),
        "prompt": PROMPT,
        "limits": RolloutLimits(concurrency=8, parse_failures=9, attempts=2, backoff=0.0),
        "tasks_per_generation": 2,
        "group_size": 4,
        "batching": "together",
        "steps": 4,
        "batch_size": 5,
        "max_completion": 14,
        "learning_rate": 3e-3,
        "warmup_steps": 0,
        "log_every": 1,
        "save_every": 1,
        "keep_checkpoints": 9,
    }
    return RlConfig(**{**values, **changes})


def picture_gradients(made: Any, rows: Sequence[LossRow]) -> list[float]:
    """Of each picture of the rows, in their order: the sum of the absolute gradients that the log probabilities of the
    sampled tokens give its pixels."""
    import torch

    inputs = made.inputs(rows)
    pixels = inputs["pixel_values"].requires_grad_()
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    seen = {name: inputs[name] for name in ("image_grid_thw", "num_images", "mm_token_type_ids")}
    likely, _, _ = made._get_per_token_logps_and_entropies(
        made.model, ids, mask, inputs["completion_ids"].size(1), pixel_values=pixels, **seen
    )
    likely[inputs["learnt"]].sum().backward()
    made.model.zero_grad()
    patches = [int(grid.prod()) for grid in inputs["image_grid_thw"]]
    assert len(patches) == sum(inputs["num_images"])
    return [float(part.abs().sum()) for part in pixels.grad.split(patches)]
