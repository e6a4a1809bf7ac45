"""Episodes and a model that are small enough for a unit test."""

from __future__ import annotations

from pathlib import Path

from eval.environments.registry import TasksConfig
from eval.prompts import PromptConfig
from training.make_episodes import MakeEpisodesConfig, make
from training.tiny import TinyConfig, build

PROMPT = PromptConfig(decimals=2, system="Answer with one action.", history=3, images=2)
SIZES = {"hidden": 48, "heads": 2, "layers": 1, "vision_hidden": 32, "vision_layers": 1}


def episodes(folder: Path, count: int = 3, prompt: PromptConfig = PROMPT) -> Path:
    """A folder of `count` episodes of the login form by its expert."""
    options = {"split": "train", "disturb": 0.2}
    config = MakeEpisodesConfig(
        environment="login", tasks=TasksConfig(count=count, seed=0), options=options, prompt=prompt
    )
    assert make(config, folder) == count
    return folder / "episodes"


def model(folder: Path, of: Path, prompt: PromptConfig = PROMPT) -> Path:
    """A tiny model whose tokenizer knows the episodes' texts."""
    build(TinyConfig(episodes=str(of), prompt=prompt, **SIZES), folder)
    return folder
