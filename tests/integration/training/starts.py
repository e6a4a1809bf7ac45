"""Where preference training begins: policies that an SFT on the click task brought to about 60 %, or to its end.

Made once per seed (tests/support/made_once.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tests.integration.training import clicks
from tests.support.made_once import made_once
from training.common.measuring.in_training import undisturbed
from training.data import samples
from training.sft.train import SftConfig, make_trainer, train
from training.tiny import TinyConfig, build

GOAL: Final = 0.6
LOOK: Final = 2  # SFT steps between two looks


def expert(seed: int) -> Path:
    """A model folder after 300 steps, nearly always right: what a reward model begins with."""
    return made_once(f"clicks-expert-{seed}", _finish, seed) / "model"


def _finish(folder: Path, seed: int) -> None:
    made = clicks.episodes()
    build(TinyConfig(episodes=str(made), prompt=clicks.PROMPT, seed=seed), folder / "tiny")
    config = SftConfig(
        model=str(folder / "tiny"),
        episodes=str(made),
        prompt=clicks.PROMPT,
        steps=300,
        learning_rate=1.2e-3,
        adam_beta2=0.98,
        seed=seed,
        save_every=1000,
        predictions=0,
    )
    assert train(config, folder, None)


def policy(seed: int) -> Path:
    """A model folder, stopped at about GOAL, decoded greedily; `start.txt` beside it tells its accuracy."""
    return made_once(f"clicks-policy-{seed}", _stop, seed) / "model"


def _stop(folder: Path, seed: int) -> None:
    from eval.agents.transformers import TransformersAgent
    from training.common.model.loading import load_processor

    made = clicks.episodes()
    build(TinyConfig(episodes=str(made), prompt=clicks.PROMPT, seed=seed), folder / "tiny")
    config = SftConfig(
        model=str(folder / "tiny"),
        episodes=str(made),
        prompt=clicks.PROMPT,
        steps=300,
        schedule="constant_with_warmup",
        learning_rate=3e-4,
        adam_beta2=0.98,
        seed=seed,
        save_every=1000,
        predictions=0,
    )
    trainer = make_trainer(config, samples.load(made, clicks.PROMPT.builder()), folder / "sft")
    processor = load_processor(str(folder / "tiny"))
    found: list[tuple[float, int]] = []  # (distance from GOAL, step)

    class Look(TrainerCallback):  # type: ignore[misc]
        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
        ) -> TrainerControl:
            if state.global_step % LOOK or state.global_step < 30:
                return control
            with undisturbed(trainer.model):
                agent = TransformersAgent((trainer.model, processor), clicks.PROMPT.builder(), max_new_tokens=20)
                reached, _ = clicks.judge(agent, 128)
            found.append((abs(reached - GOAL), state.global_step))
            if min(found) == found[-1]:
                trainer.model.save_pretrained(folder / "model")
                trainer.processing_class.save_pretrained(folder / "model")
            control.should_training_stop = reached > GOAL
            return control

    trainer.add_callback(Look())
    trainer.train()
    reached, malformed = clicks.accuracy(folder / "model", count=512)
    text = f"seed {seed}: SFT step {min(found)[1]}, {reached:.3f} right, {malformed:.3f} malformed (greedy, n 512)"
    print(text, flush=True)
    (folder / "start.txt").write_text(text + "\n")
