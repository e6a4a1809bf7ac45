"""TRL's GRPOTrainer with our rewards, an order that resumes in any epoch, and checks that TRL lacks.

Written for TRL 1.16: methods whose name begins with an underscore override TRL's. The differences:
- rewards: an answer that could not be judged is removed from its group, and its tokens from the loss. TRL counts a
  missing reward as 0 when the answer has another reward, and the tokens of such an answer in the loss's divisor.
- order: TRL's sampler loses the epoch when a training resumes; ours computes the order from the seed and the epoch.
- generation on a plain vLLM server (training.common.vllm_client), with TRL's correction for a sampler that differs from
  the trained model; generation by vLLM in this process (training.grpo.colocate). The ids of the prompts that vLLM ran
  are compared with ours, always.
- images: the number of image tokens is compared with the images' patches for each sample. transformers compares only
  sums over the batch, and TRL drops the images of a batch that does not fit.
"""

from __future__ import annotations

import math
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch.utils.data import Dataset
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from eval.actions import Action, ParseError
from eval.config import ConfigError
from eval.desktop import InfraError
from eval.prompts import PromptBuilder
from eval.prompts.tokens import VISION_TOKENS
from training.common.rates import from_the_first_step
from training.common.vllm_client import Client, Sampling
from training.common.vllm_prompts import check_prompt_ids, processor_bounds, revisions
from training.grpo.colocate import CheckedEngine, engine_options
from training.grpo.prompts import Prompts, name_of
from training.grpo.results import RewardTally
from training.rewards import Reward, SampledAnswer, score


@dataclass(frozen=True)
class Remote:
    """A generation server. `adapters`: a folder that server and trainer share, for each update of the LoRA."""

    client: Client
    sampling: Sampling
    adapters: Path


class _Order(RepeatSampler):  # type: ignore[misc]
    """TRL's sampler with an order that depends only on seed and epoch, over each epoch's own prompts. `state` has the
    training's position."""

    def __init__(self, *, state: Any, per_epoch: int, **options: Any) -> None:
        super().__init__(**options)
        self.state = state
        self.per_epoch = per_epoch

    def __iter__(self) -> Iterator[int]:
        epoch = self.state().global_step // self.per_epoch
        self.generator.manual_seed(self.seed * 1_000_003 + epoch)
        yield from (epoch * self.num_samples + at for at in super().__iter__())


class PromptRows(Dataset[dict[str, Any]]):
    """The rows of any prompt, of later epochs too; as long as one epoch."""

    def __init__(self, prompts: Prompts) -> None:
        self.prompts = prompts

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        rows = self.prompts.rows({"number": numbers})
        return [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]


class Trainer(GRPOTrainer):  # type: ignore[misc]
    """
    prompts  the dataset that the rows' numbers refer to
    period   optimiser steps per generation
    remote   the generation server; None generates in this process
    revision of the model on a hub, for vLLM in this process; None: the newest, or a folder
    """

    def __init__(
        self,
        *,
        prompts: Prompts,
        rewards: Sequence[Reward],
        builder: PromptBuilder,
        period: int,
        remote: Remote | None = None,
        revision: str | None = None,
        **options: Any,
    ) -> None:
        self.prompts = prompts
        self.rewards = list(rewards)
        self.builder = builder
        self.period = period
        self.remote = remote
        self.tally = RewardTally()
        colocated = options["args"].use_vllm and options["args"].vllm_mode == "colocate"
        # no video is ever sent: vLLM would reserve memory for the longest
        bounds = processor_bounds(options["processing_class"]) if colocated else {}
        engine = {"limit_mm_per_prompt": {"video": 0}, "mm_processor_kwargs": bounds, **revisions(revision)}
        with engine_options(**engine) if colocated else nullcontext():
            super().__init__(reward_funcs=[_named(reward.label) for reward in rewards], **options)
        self.train_dataset = PromptRows(prompts)
        if colocated:
            self.vllm_generation.llm = CheckedEngine(
                self.vllm_generation.llm,
                self.model.config.image_token_id,
                self.args.vllm_max_model_length,
                self.args.max_completion_length,
            )
        self.add_callback(self.tally)
        vocabulary = self._tokenizer.get_vocab()
        self.vision_ids = {vocabulary[token]: token for token in VISION_TOKENS if token in vocabulary}
        if remote is not None:
            self.use_vllm = True  # after construction, TRL reads it only to correct for a separate sampler
            self._last_loaded_step = -1

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """A warm-up that moves the weights in the first step, too: its answers were sampled."""
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        return from_the_first_step(scheduler, self.args.get_warmup_steps(num_training_steps))

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        rows = self.train_dataset if dataset is None else dataset
        per_generation = self.args.generation_batch_size // self.num_generations
        return _Order(
            state=lambda: self.state,
            per_epoch=len(rows) // per_generation * self.period,
            data_source=rows,
            mini_repeat_count=self.num_generations,
            batch_size=per_generation,
            repeat_count=self.num_iterations * self.args.steps_per_generation,
            seed=self.args.seed,
        )

    def _tokenize_prompts(self, prompts: list[Any]) -> Any:
        ids, images, fields = super()._tokenize_prompts(prompts)
        self.check_images(ids, images, fields)
        return ids, images, fields

    def check_images(self, ids: Sequence[Sequence[int]], images: Any, fields: dict[str, Any]) -> None:
        """Raises ConfigError for a prompt whose number of image tokens differs from its images' merged patches."""
        image_token = self.model.config.image_token_id
        merge = int(self.processing_class.image_processor.merge_size) ** 2
        grids = fields.get("image_grid_thw")
        sizes = [] if grids is None else [int(math.prod(map(int, grid))) // merge for grid in grids]
        first = 0
        for number, row in enumerate(ids):
            count = len(images[number] or ()) if images is not None else 0
            expected = sum(sizes[first : first + count])
            first += count
            if (places := sum(token == image_token for token in row)) != expected:
                raise ConfigError(
                    f"prompt {number} of the batch has {places} image tokens and {count} images of {expected}: "
                    "its text and its images do not belong together"
                )

    def _generate_single_turn(self, prompt_ids: Any, images: Any, *rest: Any, **options: Any) -> Any:
        if self.remote is None:
            return super()._generate_single_turn(prompt_ids, images, *rest, **options)
        if self.state.global_step != self._last_loaded_step:
            self._hand_over(self.remote)
            self._last_loaded_step = self.state.global_step
        where = f"{self.args.seed} {self.state.global_step} {self.accelerator.process_index}"
        seeds = [random.Random(f"{where} {row}").getrandbits(31) for row in range(len(prompt_ids))]
        given = list(zip(self.asked, images, strict=True))
        answers = self.remote.client.sample(given, self.remote.sampling, seeds)
        for ids, answer in zip(prompt_ids, answers, strict=True):
            check_prompt_ids(ids, answer.prompt_ids, self.model.config.image_token_id, "the server")
        return [answer.ids for answer in answers], [answer.logprobs for answer in answers]

    def _hand_over(self, remote: Remote) -> None:
        """Sends the current LoRA to the server; all processes wait for it."""
        name = [f"slipway-{self.state.global_step}-{secrets.token_hex(4)}"]
        broadcast_object_list(name)
        folder = remote.adapters / name[0]
        if self.accelerator.is_main_process:
            self.accelerator.unwrap_model(self.model).save_pretrained(folder, selected_adapters=["default"])
            remote.client.update(folder, name[0])
        self.accelerator.wait_for_everyone()
        remote.client.adapter = name[0]

    def _generate(self, prompts: list[Any]) -> Any:
        self.asked = [_without_images(prompt) for prompt in prompts]
        generated = super()._generate(prompts)
        for ids in generated[1]:
            if bad := next((self.vision_ids[token] for token in ids if token in self.vision_ids), None):
                raise ConfigError(f"generation: {bad} was sampled, although it is suppressed: the server must obey it")
        return generated

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
        """TRL's, without the tokens of answers that were not judged: TRL gives them the advantage 0, but divides the
        loss by their number too."""
        output = super()._generate_and_score_completions(inputs)
        if self.any_lost:
            output["completion_mask"] = output["completion_mask"].masked_fill(self.lost.unsqueeze(1), 0)
            output["num_items_in_batch"] = self.accelerator.gather(output["completion_mask"].sum()).sum()
        return output

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """(answers of all processes, rewards); a row of NaN for an answer that was not judged."""
        attempts = [self._attempt(row, ids) for row, ids in zip(inputs, completion_ids_list, strict=True)]
        scores = score(self.rewards, attempts)
        lost = [math.nan] * len(self.rewards)
        rows = [lost if row is None else row for row in scores.rows]
        table = torch.tensor(rows, dtype=torch.float32, device=self.accelerator.device)
        gathered: torch.Tensor = self.accelerator.gather(table)
        self.lost = torch.tensor([row is None for row in scores.rows], device=self.accelerator.device)
        self.any_lost = bool(gathered.isnan().all(dim=1).any())  # in any process: all of them then count again
        self.tally.attempts = [(row["number"], attempt) for row, attempt in zip(inputs, attempts, strict=True)]
        numbers = torch.tensor([row["number"] for row in inputs], device=self.accelerator.device)
        self._note(gathered, self.accelerator.gather(numbers).tolist(), scores.unjudged)
        return gathered

    def _attempt(self, row: dict[str, Any], ids: list[int]) -> SampledAnswer:
        sample = self.prompts[row["number"]]
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        parsed: Action | ParseError
        further: tuple[Action, ...] = ()
        try:
            parsed, *more = self.builder.read_turn(text, sample.step.marks if sample.step else None).actions
            further = tuple(more)
        except ParseError as error:
            parsed = error
        return SampledAnswer(
            messages=row["prompt"],
            images=row["images"],
            text=text,
            tokens=len(ids),
            truncated=ids[-1] not in (*self.eos_token_ids, self._tokenizer.pad_token_id),
            parsed=parsed,
            expected=sample.expected,
            step=sample.step,
            dialect=self.builder.dialect,
            where=name_of(sample, row["number"]),
            further=further,
        )

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        loss = super()._compute_loss(model, inputs)
        return loss * self._token_share(inputs) if self.loss_type == "bnpo" and self.model.training else loss

    def _token_share(self, inputs: dict[str, Any]) -> float:
        """What a mean over this pass's tokens is multiplied by to become its part of the mean over the step's tokens.

        TRL's bnpo averages over the tokens of one pass. The other losses average over answers, of which all passes
        have equally many, or divide by the step's tokens.
        """
        passes = self.current_gradient_accumulation_steps
        at = self._step % self.args.steps_per_generation
        step = self._buffered_inputs[at - at % passes :][:passes]
        here = torch.stack([_scored(batch) for batch in step]).sum().to(self.accelerator.device)
        whole = float(self.accelerator.reduce(here, reduction="sum"))
        times: int = passes * self.accelerator.num_processes
        return float(_scored(inputs)) * times / max(whole, 1.0)

    def _note(self, gathered: torch.Tensor, numbers: Sequence[int], unjudged: Counter[str]) -> None:
        """Counts the answers that were not judged. `numbers`: each answer's prompt. Raises InfraError when none was."""
        weighed = [index for index, reward in enumerate(self.rewards) if reward.weight]
        lost = int(gathered[:, weighed].isnan().any(dim=1).sum())
        self._metrics["train"]["dropped"].append(float(lost))
        self.tally.dropped += lost
        reasons = "; ".join(f"{count} x {reason}" for reason, count in unjudged.items())
        if lost == len(gathered):
            raise InfraError(f"not one of {lost} answers could be judged: {reasons}")
        if unjudged:
            step = self.state.global_step
            print(f"step {step}: {lost} of {len(gathered)} answers are left out: {reasons}", flush=True)
        grouped = gathered.view(-1, self.num_generations, len(self.rewards)).nanmean(dim=1)
        self.tally.steps.append(self.state.global_step)
        self.tally.groups.append(list(zip(numbers[:: self.num_generations], grouped.tolist(), strict=True)))


@contextmanager
def reference_from(load: Callable[[], Any]) -> Iterator[None]:
    """While it is open, TRL makes its reference model (`beta`, without a LoRA) by `load`, as the policy was loaded.

    TRL itself loads it by the name in the model's configuration, and loses the revision: the newest one, or none.
    """
    from trl.trainer import grpo_trainer

    theirs = grpo_trainer.create_model_from_path
    grpo_trainer.create_model_from_path = lambda *_, **__: load()
    try:
        yield
    finally:
        grpo_trainer.create_model_from_path = theirs


def _scored(batch: dict[str, Any]) -> torch.Tensor:
    """The number of tokens in the loss."""
    mask: torch.Tensor = batch["completion_mask"]
    if batch.get("tool_mask") is not None:
        mask = mask * batch["tool_mask"]
    return mask.sum().float()


def _without_images(prompt: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with image placeholders instead of images, as the prompt builder made them."""
    return [
        {**turn, "content": [{"type": "image"} if part["type"] == "image" else part for part in turn["content"]]}
        for turn in prompt
    ]


def _named(label: str) -> Any:
    """A function from which TRL takes a metric's name; it is never called, see _calculate_rewards."""

    def never(**_: Any) -> list[float]:
        raise AssertionError("rewards are computed by _calculate_rewards")

    never.__name__ = label
    return never
