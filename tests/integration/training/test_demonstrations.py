"""Does a demonstration help? SFT with demonstrations on tasks whose right first action differs from task to task and
that only a demonstration explains (`eval.environments.versions`), measured on screens that training never saw, on three
seeds: with the right demonstration, without one, with a wrong one, and with a control of the same length that says
nothing.

`pytest -m nightly -s tests/integration/training/test_demonstrations.py` prints the table (docs/project/benchmarks.md).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from eval.agents.transformers import TransformersAgent
from eval.environments import versions
from eval.environments.registry import TasksConfig
from eval.environments.splits import SPLIT_SEED
from eval.prompts import PromptConfig
from eval.prompts.demonstrations import DemonstrationConfig, Rule
from eval.rollout.loop import rollout
from eval.scores.stats import Estimate, wilson
from training.make_episodes import MakeEpisodesConfig, make
from training.sft.train import SftConfig, train
from training.tiny import TinyConfig, build

OPTIONS: Final[dict[str, Any]] = {"meaning": "cell", "grid": 3, "size": 48}
CHANCE: Final = 1 / 9
EPISODES, STEPS, TASKS = 2000, 200, 300
SHARE: Final = 0.7  # of the training episodes has a demonstration
FIRST: Final = SPLIT_SEED  # demonstrations of the evaluation come from these seeds, its tasks from later ones
RULES: Final[tuple[Rule, ...]] = ("right", "none", "wrong", "control")


def prompt(**changes: Any) -> PromptConfig:
    demonstration = DemonstrationConfig(images=1, share=SHARE, **changes)
    return PromptConfig(decimals=2, system="", history=0, demonstration=demonstration)


def episodes(split: str, count: int, seed: int, out: Path) -> Path:
    options = {**OPTIONS, "split": split}
    config = MakeEpisodesConfig(environment="versions", tasks=TasksConfig(count=count, seed=seed), options=options)
    assert make(config, out) == count
    return out / "episodes"


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Episodes by the expert: to train on, and to show at evaluation."""
    root = tmp_path_factory.mktemp("versions")
    return episodes("train", EPISODES, 0, root / "train"), episodes("test", 600, FIRST, root / "test")


def measure(model: Path, shown: Path, rule: Rule, out: Path) -> Estimate:
    agent = TransformersAgent(str(model), prompt(folder=str(shown), rule=rule).builder(), max_new_tokens=24)
    options = {**OPTIONS, "split": "test"}
    work = rollout(
        agent,
        lambda: versions.desktop(options),
        versions.tasks(TASKS, FIRST + 100_000, options),
        out=out,
        benchmark="versions",
        environment="versions",
        keep_episodes=0,
    )
    solved = sum(bool(result.record.success) for result in asyncio.run(work))
    rate = wilson(solved, TASKS)
    assert rate is not None
    return rate


@pytest.mark.ml
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_only_the_right_demonstration_helps(material: tuple[Path, Path], tmp_path: Path, seed: int) -> None:
    learnt, shown = material
    build(TinyConfig(episodes=str(learnt), prompt=prompt(), seed=seed, min_pixels=256), tmp_path / "start")
    config = SftConfig(
        model=str(tmp_path / "start"),
        episodes=str(learnt),
        prompt=prompt(),
        steps=STEPS,
        batch_size=32,
        learning_rate=1.5e-3,
        adam_beta2=0.98,
        seed=seed,
        predictions=0,
    )
    assert train(config, tmp_path / "out", None)
    rates = {rule: measure(tmp_path / "out" / "model", shown, rule, tmp_path / rule) for rule in RULES}
    print(f"\n| seed {seed} | success | 95 % interval | tasks |\n|---|---|---|---|")
    for rule, rate in rates.items():
        print(f"| {rule} | {rate.value:.1%} | {rate.low:.1%} to {rate.high:.1%} | {rate.n} |")
    print(f"| chance | {CHANCE:.1%} | | |")
    assert rates["right"].value >= 0.9
    assert rates["none"].low <= CHANCE <= rates["none"].high + 0.05
    assert rates["wrong"].value <= rates["none"].value
    assert rates["control"].value <= rates["none"].high
