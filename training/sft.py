"""Supervised fine-tuning on episodes: `python -m training.sft --config $SLIPWAY_CONFIG`.

TRL's SFTTrainer with the loss on the assistant's tokens only, of all weights or of a LoRA. Writes under
$SLIPWAY_OUTPUTS (or --out): checkpoints/checkpoint-N, model/ (weights and processor, a LoRA merged in), results/
(predictions drawn on screenshots, and how many are exact), and at the true end .done. $SLIPWAY_RESUME names the
checkpoint to go on from, bit for bit. SIGTERM saves at the end of the step and exits 0 without .done.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from eval.progress import progress
from eval.prompts import PromptConfig
from training import samples
from training.entry import check_resume, entry, run_training
from training.models import load_model, lora, save_model
from training.options import Positive, TrainerConfig, training_arguments
from training.samples import Sample


class SftConfig(TrainerConfig, frozen=True, kw_only=True):
    """
    episodes       a folder of episode folders
    prompt         the same section as the evaluation's
    predictions    how many steps are predicted at the end and drawn beside their targets
    max_new_tokens of such a prediction
    """

    episodes: str
    prompt: PromptConfig = PromptConfig()
    predictions: Annotated[int, msgspec.Meta(ge=0)] = 12
    max_new_tokens: Positive = 64


def make_trainer(config: SftConfig, found: Sequence[Sample], out: Path) -> Any:
    """TRL's SFTTrainer over the samples, ready to train."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from training.collate import Collator

    model, processor = load_model(config)
    # The collator takes a sample by its index; the other columns only tell TRL that these are chats with images.
    rows = Dataset.from_list(
        [{"index": i, "messages": sample.messages, "images": []} for i, sample in enumerate(found)]
    )
    arguments = SFTConfig(
        **training_arguments(config, out),
        assistant_only_loss=True,
        max_length=None,  # truncation would cut image tokens
    )
    trainer = SFTTrainer(
        model=model, args=arguments, train_dataset=rows, processing_class=processor, peft_config=lora(config)
    )
    trainer.data_collator = Collator(trainer.data_collator, found)
    return trainer


def predict(config: SftConfig, found: Sequence[Sample], model: Path, folder: Path, step: int) -> None:
    """Answers `config.predictions` steps, spread over the samples, as an evaluation would; draws them into `folder` and
    puts the share of exact answers into the summary beside it, as what it is: memorisation."""
    from eval.agents.transformers import TransformersAgent
    from eval.stats import wilson
    from eval.summary import row, write_summary
    from training.pictures import draw

    count = min(config.predictions, len(found))
    chosen = [found[i * len(found) // count] for i in range(count)]
    agent = TransformersAgent(
        str(model), config.prompt.builder(), max_new_tokens=config.max_new_tokens, max_pixels=config.max_pixels
    )
    right, lines = 0, []
    folder.mkdir(parents=True, exist_ok=True)
    observations, histories = zip(*(sample.asked() for sample in chosen), strict=True)
    decisions = asyncio.run(agent.act(observations, histories))
    for number, (sample, decision) in enumerate(zip(chosen, decisions, strict=True)):
        right += decision.response == sample.target
        name = f"{number:03d}.png"
        draw(sample, decision).save(folder / name)
        lines.append({"picture": name, "target": sample.target, "predicted": decision.response})
    (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    exact = row(
        "exact_answers",
        wilson(right, count),
        benchmark="memorisation",
        version="1",
        split="training data",
        infra=0,
        seed=config.seed,
        agent="trained",
    )
    write_summary(folder.parent / "summary.json", [exact])
    print(f"{right} of {count} predicted training steps are exact", flush=True)


def train(config: SftConfig, out: Path, resume: str | None) -> bool:
    """The whole training. False: SIGTERM came first, and the checkpoint of the last step is there to go on from."""
    config.check()
    check_resume(config, resume)
    found = samples.load(Path(config.episodes), config.prompt.builder())
    progress(0, config.steps, "load", f"{len(found)} samples")
    trainer = make_trainer(config, found, out)
    if not run_training(trainer, config, out, resume):
        return False
    save_model(trainer, out / "model")
    if config.predictions:
        predict(config, found, out / "model", out / "results" / "samples", trainer.state.global_step)
    (out / ".done").touch()
    return True


def main(argv: Sequence[str] | None = None) -> int:
    return entry(argv, prog="training.sft", description="Fine-tune a model on episodes.", kind=SftConfig, train=train)


if __name__ == "__main__":
    sys.exit(main())
