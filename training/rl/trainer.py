"""TRL's GRPOTrainer behind our rollouts: TRL computes the loss, everything before it is ours.

Written for TRL 1.16. Its seam: `_compute_loss` takes advantages of the shape (B, T), and
`_get_per_token_logps_and_entropies` is the forward of that loss. A generation has any number of turns, so a step here
is a loop over passes of `batch_size` rows, and the loss of each pass is weighed so that several passes have the
gradient of one. TRL divides a generation into equal parts instead, which its rows must fill.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback
from trl import GRPOTrainer

from eval.config.progress import metric
from eval.desktop import Desktop, InfraError, Task
from training.common.evaluation import undisturbed
from training.common.reporting import StopRequest
from training.rl import gate
from training.rl.beside import RolloutsBeside
from training.rl.collapse import SuccessWatch
from training.rl.config import RlConfig
from training.rl.credit import credit, turns_of, why_masked
from training.rl.critic import ValueLearning, ValueNetwork
from training.rl.drawing import TaskDrawer
from training.rl.figures import figures, in_words
from training.rl.finished import FinishedRollouts
from training.rl.idle import WorkerTimes
from training.rl.joined import by_turn, rows_per_rollout, split_warning, whole_rollouts
from training.rl.policy import Policy
from training.rl.replay import SuccessReplay
from training.rl.rollouts import RolloutGeneration, RolloutsStopped, generate
from training.rl.rows import LossRow, Pictures, parts, tensors, usable
from training.rl.sdpo import divergence, importance_weight, sdpo_loss, trust_region
from training.rl.successes import SuccessEpisodes
from training.rl.teaching import Teaching, mean_figures, taught_rows, warning
from training.rl.telling import RecordTeller

WHOLE = ("dapo", "cispo")  # losses that divide by the tokens of the step themselves


class Stopped(Exception):
    """SIGTERM came during rollouts; a checkpoint of the weights before them is written, where there was a step."""


class StopAsked(TrainerCallback):  # type: ignore[misc]
    """Knows whether SIGTERM came: run_training gives the request to every callback that has a place for it."""

    def __init__(self) -> None:
        self.stop: StopRequest | None = None
        self.resume: str | None = None

    def asked(self) -> bool:
        return self.stop is not None and self.stop.asked


@dataclass
class Prepared:
    """Rows of one generation with the log probabilities that the loss's forward gave them before the first step."""

    rows: list[LossRow]
    before: list[Tensor]


class RolloutTrainer(GRPOTrainer):  # type: ignore[misc]
    """
    chosen        the configuration
    tasks         what is drawn from
    make_desktop  a fresh desktop
    policy        of the model in memory, and the context in which it computes
    out           the training's folder
    critic        makes PPO's critic
    """

    def __init__(
        self,
        *,
        chosen: RlConfig,
        tasks: Sequence[Task],
        make_desktop: Callable[[], Desktop],
        policy: Callable[[Any, Any], Policy],
        out: Path,
        critic: Callable[[], ValueNetwork] | None = None,
        **options: Any,
    ) -> None:
        self.chosen = chosen
        self.make_desktop = make_desktop
        self.out = out
        super().__init__(reward_funcs=[_never], **options)
        self.stops = StopAsked()
        self.add_callback(self.stops)
        self.drawer = TaskDrawer(chosen, tasks)
        self.add_callback(self.drawer)
        self.teller = RecordTeller(chosen, out / "results", lambda token: str(self._tokenizer.decode([token])))
        self.add_callback(self.teller)
        self.teaching = None if chosen.sdpo is None else Teaching(self, chosen.sdpo, lambda: self.stops.resume)
        if self.teaching is not None:
            self.add_callback(self.teaching)
        self.replay = None if chosen.replay is None else SuccessReplay(self, chosen.replay, lambda: self.stops.resume)
        if self.replay is not None:
            self.add_callback(self.replay)
        self.critic = None if critic is None else ValueLearning(self, chosen, critic, lambda: self.stops.resume)
        if self.critic is not None:
            self.add_callback(self.critic)
        self.collapse = None if chosen.collapse is None else SuccessWatch(chosen.collapse, chosen.period, out)
        if self.collapse is not None:
            self.add_callback(self.collapse)
        self.finished = FinishedRollouts(self, chosen, out / "results", lambda: self.stops.resume)
        self.add_callback(self.finished)
        self.beside = None if chosen.asynchronous is None else RolloutsBeside(self, chosen, self.drawer)
        self.policy = policy(self.model, self.compute_loss_context_manager)
        self.pictures = Pictures(self.processing_class, self.model.config.image_token_id)
        self.prepared: Prepared | None = None
        self.last: RolloutGeneration | None = None
        self.left = time.monotonic()  # when the last rollouts were there

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset if dataset is None else dataset)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One optimiser step's gradient; at the first step of a generation, its rollouts before. Raises Stopped."""
        if self.prepared is None or self.state.global_step % self.chosen.period == 0:
            self.prepared = self.prepare(self.state.global_step // self.chosen.period)
        if self.critic is not None and self.critic.only(self.state.global_step // self.chosen.period):
            self._step += 1
            return torch.zeros((), device=self.accelerator.device)  # without gradients the optimiser changes nothing
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        loss = torch.zeros((), device=self.accelerator.device)
        for each in self.passes(self.prepared, self.state.global_step):
            share = each.pop("share")
            with self.compute_loss_context_manager():
                part = self.compute_loss(model, each) * share
            self.accelerator.backward(part)
            loss += part.detach()
        found: list[tuple[float, float, int]] = []
        for rows, before, tokens in self.taught(self.prepared, self.state.global_step):
            with self.compute_loss_context_manager():
                part, sums = self.distillation(rows, before, tokens)
            self.accelerator.backward(part)
            loss += part.detach()
            found.append(sums)
        for name, value in mean_figures(found).items():
            self.note(name, value)
            if name == "divergence" and not self.state.global_step and (told := warning(value)):
                print(told, flush=True)
        self._step += 1
        return loss

    def step_rows(self, prepared: Prepared, step: int) -> tuple[list[int], int]:
        """(the rows of an optimiser step, in their order; how many sampled tokens they have)."""
        chosen = self.chosen
        numbers = list(range(len(prepared.rows)))
        random.Random(f"{chosen.seed} rows {step // chosen.steps_per_generation}").shuffle(numbers)
        at, of = step % chosen.steps_per_generation, chosen.steps_per_generation
        mine = numbers[at * len(numbers) // of : (at + 1) * len(numbers) // of]
        return mine, sum(prepared.rows[number].tokens for number in mine)

    def taught(self, prepared: Prepared, step: int) -> Iterator[tuple[list[LossRow], list[Tensor], int]]:
        """The rows of an optimiser step that learn from the teacher, in passes, with their log probabilities before
        the first step and the divisor of the step's mean: the sampled tokens of all its rows."""
        mine, tokens = self.step_rows(prepared, step)
        mine = [number for number in mine if prepared.rows[number].lesson is not None]
        for some in parts(mine, self.chosen.batch_size):
            yield [prepared.rows[number] for number in some], [prepared.before[number] for number in some], tokens

    def distillation(
        self, rows: Sequence[LossRow], before: Sequence[Tensor], tokens: int
    ) -> tuple[Tensor, tuple[float, float, int]]:
        """SDPO's part of a step's loss, of some rows with lessons; and for `mean_figures` the sums over their sampled
        tokens of the divergence and of the student's entropy, nats, with the number of these tokens."""
        chosen = self.chosen.sdpo
        assert chosen is not None
        assert self.teaching is not None
        assert self.teaching.teacher is not None
        lessons = [replace(row, turn=row.lesson) for row in rows if row.lesson is not None]
        with self.teaching.teacher.teaching():  # first: it changes the weights, which a backward pass must not see
            knowing = self.logits(lessons)
        if chosen.mix is not None:
            with torch.no_grad():
                knowing = trust_region(knowing, self.logits(lessons), chosen.mix)
        made = self.inputs(rows)
        mine = self.logits(rows, made)
        ids, mask = made["completion_ids"], made["completion_mask"]
        likely = mine.log_softmax(-1)
        now = likely.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        then = torch.zeros_like(now)
        for number, line in enumerate(before):
            then[number, : len(line)] = line
        apart = divergence(mine, knowing, chosen.alpha, chosen.top)
        weights = importance_weight(now, then, chosen.most)
        unsure = -(likely.exp() * likely).sum(-1)
        told = (float((apart.detach() * mask).sum()), float((unsure.detach() * mask).sum()), int(mask.sum()))
        return sdpo_loss(apart, weights, mask, torch.ones(len(rows), device=mask.device), float(tokens)), told

    def logits(self, rows: Sequence[LossRow], made: dict[str, Any] | None = None) -> Tensor:
        """(B, T, V) in float32, by which each sampled token was drawn: at the temperature of the sampling."""
        made = self.inputs(rows) if made is None else made
        long = made["completion_ids"].size(1)
        seen = {name: made[name] for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids") if name in made}
        with self.accelerator.autocast():  # as TRL computes its own
            out = self.model(
                input_ids=torch.cat([made["prompt_ids"], made["completion_ids"]], dim=1),
                attention_mask=torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1),
                logits_to_keep=long + 1,
                use_cache=False,
                **seen,
            )
        found: Tensor = out.logits[:, -long - 1 : -1].float() / self.chosen.temperature
        return found

    def passes(self, prepared: Prepared, step: int) -> Iterator[dict[str, Any]]:
        """The inputs of the loss of advantages in each pass of an optimiser step, with the `share` that the pass's loss
        has."""
        chosen = self.chosen
        mine, tokens = self.step_rows(prepared, step)
        mine = [number for number in mine if prepared.rows[number].lesson is None]
        for start in range(0, len(mine), chosen.batch_size):
            some = mine[start : start + chosen.batch_size]
            rows = [prepared.rows[number] for number in some]
            made = self.inputs(rows)
            old = torch.zeros_like(made["advantages"])
            for row, number in enumerate(some):
                old[row, : len(prepared.before[number])] = prepared.before[number]
            made["old_per_token_logps"] = old
            made["num_items_in_batch"] = torch.tensor(float(tokens), device=old.device)
            made["share"] = 1.0 if self.loss_type in WHOLE else len(rows) / len(mine)
            yield made

    def inputs(self, rows: Sequence[LossRow]) -> dict[str, Any]:
        """The tensors of some rows (`training.rl.rows.tensors`)."""
        return tensors(rows, self.pictures, self._tokenizer.pad_token_id, self.accelerator.device)

    def log_probabilities(self, rows: Sequence[LossRow]) -> tuple[list[Tensor], list[Tensor]]:
        """By the forward of the loss, in nats: of each row's sampled tokens (T,), and the entropy at each (T,)."""
        if self.chosen.rows == "trajectory":
            return by_turn(rows, self._log_probabilities)
        return self._log_probabilities(rows)

    def _log_probabilities(self, rows: Sequence[LossRow]) -> tuple[list[Tensor], list[Tensor]]:
        """(T,) for every token after each row's prompt, sampled or shown."""
        found: list[Tensor] = []
        entropies: list[Tensor] = []
        self.model.train()  # as the loss has it; there is no dropout
        for some in parts(rows, self.chosen.batch_size):
            made = self.inputs(some)
            ids = torch.cat([made["prompt_ids"], made["completion_ids"]], dim=1)
            mask = torch.cat([made["prompt_mask"], made["completion_mask"]], dim=1)
            seen = {
                name: made.get(name) for name in ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
            }
            with torch.no_grad(), self.compute_loss_context_manager():
                likely, unsure, _ = self._get_per_token_logps_and_entropies(
                    self.model, ids, mask, made["completion_ids"].size(1), compute_entropy=True, **seen
                )
            for row, line, each in zip(some, likely, unsure, strict=True):
                found.append(line[: len(row.turn.ids)].float())
                entropies.append(each[: len(row.turn.ids)].float())
        return found, entropies

    def prepare(self, number: int) -> Prepared:
        """The rollouts of a generation, as rows that passed the gate. Raises Stopped, ConfigError, InfraError."""
        made = self.roll_out(number)
        self.last = made
        if self.chosen.successes is not None:
            SuccessEpisodes(self.out / "episodes", self.chosen.successes).keep(made)
        self.drawer.note(made)
        if self.drawer.fresh is not None:
            self.note("fresh_tasks", len(self.drawer.fresh.made))
        told_of, replayed = made, set[tuple[int, int]]()
        if self.replay is not None:
            groups, replayed = self.replay.take(made)
            self.replay.note(made)
            made = replace(made, groups=groups)
        sampled, faults = usable(list(turns_of(made)), self.pictures)
        for fault in faults[:3]:
            print(f"generation {number}: left out: {fault}", flush=True)
        if not sampled:
            why = faults[0] if faults else "no rollout had a turn"
            raise InfraError(f"generation {number}: not one turn is left: {why}")
        before, entropies = self.log_probabilities(sampled)
        then = before if self.beside is None else self.beside.at_sampling(sampled, before, number)
        gaps = [
            gate.gap(row.where, row.turn.logprobs, line.tolist())
            for row, line in zip(sampled, then, strict=True)
            if row.at[:2] not in replayed
        ]
        told = gate.check(gaps, self.chosen.tolerance, number, self.out / "results" / "gate.json")
        for name, value in figures(told_of, sampled, len(faults), told).items():
            self.note(name, value)
        print(in_words(told_of, len(sampled)), flush=True)
        unsure = {row.at: float(line.mean()) for row, line in zip(sampled, entropies, strict=True)}
        tokens: dict[tuple[int, int, int], tuple[float, ...]] = {}
        if self.critic is not None:
            tokens = dict(zip((row.at for row in sampled), self.critic.learn(made, sampled, number), strict=True))
            for name, value in self.critic.figures.items():
                self.note(name, value)
        values = {at: math.fsum(line) / len(line) for at, line in tokens.items()} or credit(made, unsure, self.chosen)
        uncertain = set(values)
        kept = [number for number, row in enumerate(sampled) if row.at in values]
        rows = [replace(sampled[number], advantage=values[sampled[number].at]) for number in kept]
        if tokens:
            rows = [replace(row, advantage=1.0, weights=tokens[row.at]) for row in rows]
        before = [  # a replayed turn's are those of the policy that sampled it
            torch.tensor(row.turn.logprobs, device=before[number].device) if row.at[:2] in replayed else before[number]
            for row, number in zip(rows, kept, strict=True)
        ]
        if self.beside is not None:
            rows, mean = self.beside.weighed(rows, before)
            self.note("weights", mean)
        if self.chosen.sdpo is not None:
            rows, before, shown = taught_rows(made, rows, before, self.policy, self.pictures, self.chosen.sdpo)
            for name, count in shown.items():
                self.note(name, count)
            values = {row.at: row.advantage for row in rows if row.lesson is None}
        taught = {row.at[0] for row in rows if row.lesson is not None} | {group for group, _ in replayed}
        if self.replay is not None:
            self.note("replayed", len(replayed))
            values = {at: value for at, value in values.items() if at[:2] not in replayed}
            unsure = {at: value for at, value in unsure.items() if at[:2] not in replayed}
        masked = why_masked(told_of, sampled, uncertain, [row.at for row in rows], replayed)
        by_token = {row.at: line.tolist() for row, line in zip(sampled, entropies, strict=True) if row.at in unsure}
        self.teller.generation(told_of, self.state.global_step + 1, values, unsure, taught, masked, by_token)
        if self.collapse is not None:
            self.collapse.note(told_of)
        if self.chosen.rows == "trajectory":
            rows, before = whole_rollouts(rows, before)
            share = rows_per_rollout(rows)
            self.note("rows_per_rollout", share)
            if not number and (warned := split_warning(share)):
                print(warned, flush=True)
        return Prepared(rows, before)

    def note(self, name: str, value: float) -> None:
        """A figure of a generation, for the log and as a metric."""
        self._metrics["train"][name].append(float(value))
        metric(self.state.global_step + 1, f"train/{name}", float(value))

    def roll_out(self, number: int) -> RolloutGeneration:
        """The rollouts of a generation, with who waited for whom. Raises Stopped, and what plays them raises."""
        began = time.monotonic()
        try:
            made = self._played(number)
        except RolloutsStopped:
            self._leave()
        took, since = time.monotonic() - began, began - self.left
        self.left = time.monotonic()
        told = {"trainer_idle": took / (took + since)}
        if self.beside is not None and self.beside.feed is not None:
            told |= self.beside.feed.figures
        else:
            told |= made.times.since(WorkerTimes())
        for name, value in told.items():
            self.note(name, value)
        return made

    def _played(self, number: int) -> RolloutGeneration:
        if self.beside is not None:
            return self.beside.collect(number, self.stops.asked)
        self.finished.begin(number)
        with undisturbed(self.model):
            self.model.eval()
            return generate(
                self.policy,
                self.make_desktop,
                self.drawer.draw(number),
                self.chosen,
                number,
                self.stops.asked,
                self.drawer.further,
                self.drawer.effort,
                self.finished if self.chosen.reuses else None,
            )

    def _leave(self) -> NoReturn:
        """Saves the weights before these rollouts, where that was not done."""
        step = self.state.global_step
        if step and not (self.out / "checkpoints" / f"checkpoint-{step}").exists():
            self._save_checkpoint(self.model, trial=None)
            self.callback_handler.on_save(self.args, self.state, self.control)
        raise Stopped


def _never(**_: Any) -> list[float]:
    raise AssertionError("rollouts are judged by their environment")
