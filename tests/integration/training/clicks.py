"""The click task at the size at which GRPO is measured: episodes, a start checkpoint of about 60 %, accuracy.

Made once per seed (tests/support/made_once.py); with $SLIPWAY_TEST_CACHE set they stay there.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from eval.agents.base import History
from eval.environments import click
from eval.environments.registry import TasksConfig
from eval.environments.splits import SPLIT_SEED
from eval.prompts import PromptConfig
from tests.support.made_once import made_once
from training.make_episodes import MakeEpisodesConfig, make
from training.tiny import TinyConfig, build

OPTIONS: dict[str, Any] = {"split": "train", "size": 64, "grid": 4, "distractors": 0, "colours": 4}
SECTION: dict[str, Any] = {"decimals": 2, "system": "", "history": 0}
PROMPT = PromptConfig(**SECTION)
START = 0.6  # the share of sampled answers that hit, of a start checkpoint: the mean reward that GRPO begins with
TEMPERATURE = 0.7  # of that sampling: at 1 the tail of rare digits costs 5 % of a policy that is always right greedily
EVERY = 2  # SFT steps between two looks


def episodes(count: int = 1024) -> Path:
    """A folder of `count` episodes by the expert."""
    return made_once(f"clicks-{count}", _play, count) / "episodes"


def _play(folder: Path, count: int) -> None:
    tasks = TasksConfig(count=count, seed=0)
    make(MakeEpisodesConfig(environment="click", tasks=tasks, options=OPTIONS, prompt=PROMPT), folder)


def judge(agent: Any, count: int) -> tuple[float, float]:
    """(share of held-out screens whose button an agent clicks, share of its answers that are no action)."""
    options = {**OPTIONS, "split": "test"}
    tasks = click.tasks(count, SPLIT_SEED, options)
    chosen = click.ClickOptions(**options)
    observations = []
    for task in tasks:
        desktop = click.ClickDesktop(chosen)
        observations.append(asyncio.run(desktop.reset(task, task.seed)))
    decisions = asyncio.run(agent.act(observations, [History(task) for task in tasks]))
    hits = sum(
        seen.expected is not None and seen.expected.matches(decision.action)
        for seen, decision in zip(observations, decisions, strict=True)
    )
    return hits / count, sum(decision.action is None for decision in decisions) / count


def accuracy(model: Path, *, count: int = 256) -> tuple[float, float]:
    """`judge` of a model folder, decoded greedily."""
    from eval.agents.transformers import TransformersAgent

    return judge(TransformersAgent(str(model), PROMPT.builder(), max_new_tokens=20), count)


def sampled(model: Path, *, count: int = 128) -> float:
    """The share of held-out screens whose button an answer sampled at TEMPERATURE clicks."""
    import torch

    from eval.agents.transformers import TransformersAgent

    agent = TransformersAgent(str(model), PROMPT.builder(), max_new_tokens=20)
    generate = agent.model.generate
    agent.model.generate = lambda **how: generate(**{**how, "do_sample": True, "temperature": TEMPERATURE, "top_k": 0})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return judge(agent, count)[0]


def start(seed: int) -> Path:
    """A model that an SFT of this seed brought to about START, and no further: what GRPO starts from."""
    return made_once(f"clicks-start-{seed}", _teach, seed) / "model"


def _teach(folder: Path, seed: int) -> None:
    from training.data import samples
    from training.sft.train import SftConfig, make_trainer

    made = episodes()
    tiny, probe = folder / "tiny", folder / "probe"
    build(TinyConfig(episodes=str(made), prompt=PROMPT, seed=seed), tiny)
    config = SftConfig(
        model=str(tiny),
        episodes=str(made),
        prompt=PROMPT,
        steps=300,
        schedule="constant_with_warmup",
        learning_rate=3e-4,
        adam_beta2=0.98,
        seed=seed,
        save_every=1000,
        predictions=0,
    )
    trainer = make_trainer(config, samples.load(made, PROMPT.builder()), folder / "sft")
    found: list[tuple[float, int, float]] = []  # (distance from START, step, accuracy)

    class Look(TrainerCallback):  # type: ignore[misc]
        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
        ) -> TrainerControl:
            if state.global_step % EVERY or state.global_step < 40:
                return control
            trainer.model.save_pretrained(probe)
            trainer.processing_class.save_pretrained(probe)
            reached = sampled(probe)
            trainer.model.train()
            found.append((abs(reached - START), state.global_step, reached))
            if min(found) == found[-1]:
                shutil.rmtree(folder / "model", ignore_errors=True)
                shutil.copytree(probe, folder / "model")
            control.should_training_stop = reached > START
            return control

    trainer.add_callback(Look())
    trainer.train()
    _, step, _ = min(found)
    how = f"{sampled(folder / 'model', count=512):.3f} sampled, {accuracy(folder / 'model', count=512)[0]:.3f} greedy"
    text = f"seed {seed}: SFT step {step}, {how}"
    print(text, flush=True)
    (folder / "start.txt").write_text(text + "\n")


def reward_model(seed: int, *, pairs: int = 200, flipped: float = 0.2) -> tuple[Path, float]:
    """(a reward model of few pairs, of which a share prefers the wrong answer; its accuracy on held-out pairs).

    Wrong answers click another cell; none is malformed, so that what it says of other texts is anybody's guess.
    """
    folder = made_once(f"clicks-reward-{seed}-{pairs}-{flipped:g}", _judge, seed, pairs, flipped)
    rows = json.loads((folder / "results" / "summary.json").read_text())
    return folder / "model", next(row["value"] for row in rows if "accuracy" in row["metric"])


def _judge(folder: Path, seed: int, pairs: int, flipped: float) -> None:
    import random

    from training.data.pairs.run import PairsConfig, make
    from training.data.pairs.store import PAIRS, REPORT
    from training.data.pairs.synthetic import SyntheticSource
    from training.reward.train import RewardConfig, train

    source = SyntheticSource(episodes=[str(episodes(pairs))], ways=["element"], seed=seed)
    made = folder / "pairs"
    make(PairsConfig(sources=[source], prompt=PROMPT, test_share=0.2), made)
    rng = random.Random(seed)
    lines = [json.loads(line) for line in (made / PAIRS).read_text().splitlines()]
    for line in lines:
        if line["split"] == "train" and rng.random() < flipped:
            line["chosen"], line["rejected"] = line["rejected"], line["chosen"]
    (made / PAIRS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert (made / REPORT).exists()
    config = RewardConfig(
        model=str(start(seed)),
        pairs=str(made),
        steps=120,
        batch_size=16,
        learning_rate=5e-4,
        adam_beta2=0.98,
        seed=seed,
        save_every=1000,
    )
    train(config, folder, None)
