"""TRL's GRPOTrainer behind our rollouts: TRL computes the loss (`training.rl.passes`), everything before it is ours."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback

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
from training.rl.following import PublishedWeights
from training.rl.idle import WorkerTimes
from training.rl.joined import rows_per_rollout, split_warning, whole_rollouts
from training.rl.passes import Prepared, RowTrainer
from training.rl.policy import Policy
from training.rl.ranks import GatheredWeights, TrainingRanks, WeightActs
from training.rl.replay import SuccessReplay
from training.rl.rollouts import RolloutGeneration, RolloutsStopped, generate
from training.rl.rows import LossRow, Pictures, usable
from training.rl.successes import SuccessEpisodes
from training.rl.teaching import Teaching, mean_figures, taught_rows, warning
from training.rl.telling import RecordTeller


class Stopped(Exception):
    """SIGTERM came during rollouts; a checkpoint of the weights before them is written, where there was a step."""


class StopAsked(TrainerCallback):  # type: ignore[misc]
    """Knows whether SIGTERM came: run_training gives the request to every callback that has a place for it."""

    def __init__(self) -> None:
        self.stop: StopRequest | None = None
        self.resume: str | None = None

    def asked(self) -> bool:
        return self.stop is not None and self.stop.asked


class RolloutTrainer(RowTrainer):
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
        self.ranks: TrainingRanks | None = None
        if self.args.world_size > 1:
            self.ranks = TrainingRanks(self._acts())
        first = self.ranks is None or self.ranks.first
        self.sampled: dict[tuple[int, int, int], LossRow] = {}  # of this generation; in every process
        self.teller: RecordTeller | None = None
        if first:
            self.teller = RecordTeller(chosen, out / "results", lambda token: str(self._tokenizer.decode([token])))
            self.add_callback(self.teller)
        self.teaching = None if chosen.sdpo is None else Teaching(self, chosen.sdpo, lambda: self.stops.resume)
        if self.teaching is not None:
            self.add_callback(self.teaching)
        self.replay: SuccessReplay | None = None
        if first and chosen.replay is not None:
            self.replay = SuccessReplay(self, chosen.replay, lambda: self.stops.resume)
            self.add_callback(self.replay)
        self.critic = None if critic is None else ValueLearning(self, chosen, critic, lambda: self.stops.resume)
        if self.critic is not None:
            self.add_callback(self.critic)
        self.collapse = None if chosen.collapse is None else SuccessWatch(chosen.collapse, chosen.period, out)
        if self.collapse is not None:
            self.add_callback(self.collapse)
        self.finished: FinishedRollouts | None = None
        if first:
            self.finished = FinishedRollouts(self, chosen, out / "results", lambda: self.stops.resume)
            self.add_callback(self.finished)
        self.beside = RolloutsBeside(self, chosen, self.drawer) if first and chosen.asynchronous is not None else None
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
        loss = self.gradient(model, self.prepared, self.state.global_step)
        further, found = self.taught_gradient(self.prepared, self.state.global_step)
        for name, value in mean_figures(found).items():
            self.note(name, value)
            if name == "divergence" and not self.state.global_step and (told := warning(value)):
                print(told, flush=True)
        self._step += 1
        return loss + further

    def _acts(self) -> dict[str, Callable[..., Any]]:
        """What the first of several processes asks all of them for."""
        weights = WeightActs(lambda: self.model)

        def measure(
            new: Sequence[LossRow], places: Sequence[tuple[int, int, int]]
        ) -> tuple[list[Tensor], list[Tensor]]:
            self.sampled |= {row.at: row for row in new}
            return self._measured([self.sampled[place] for place in places])

        def asked() -> bool:
            assert self.ranks is not None
            return self.ranks.any(self.stops.asked())

        return {
            "measure": measure,
            "asked": asked,
            "leave": self._leave,
            **{name: getattr(weights, name) for name in ("gather", "take", "give_back")},
        }

    def published(self, folder: Path, kept: int) -> PublishedWeights:
        """The trained weights, for what samples beside the training."""
        if self.ranks is None:
            return PublishedWeights(self.model, folder, kept)
        return GatheredWeights(self.model, folder, kept, self.ranks)

    def stopping(self) -> bool:
        """Whether SIGTERM came, to whichever process."""
        if self.ranks is None or self.stops.asked() or not self.ranks.silent:
            return self.stops.asked()
        return bool(self.ranks.run("asked"))

    def prepare(self, number: int) -> Prepared:
        """The rows of a generation, in every process. Raises Stopped, ConfigError, InfraError."""
        self.sampled = {}
        if self.ranks is None:
            rows, before = self.learn_from(number)
        elif self.ranks.first:
            with self.ranks.leading(unless=Stopped):
                rows, before = self.learn_from(number)
            self.ranks.release(
                [(row.at, row.advantage, row.weights, line.cpu()) for row, line in zip(rows, before, strict=True)]
            )
        else:
            given = self.ranks.follow()
            rows = [
                replace(self.sampled[at], advantage=advantage, weights=weights) for at, advantage, weights, _ in given
            ]
            before = [line for *_, line in given]
        return self._whole(rows, before, number) if self.chosen.rows == "trajectory" else Prepared(rows, before)

    def _whole(self, rows: Sequence[LossRow], before: Sequence[Tensor], number: int) -> Prepared:
        joined, lines = whole_rollouts(rows, before)
        share = rows_per_rollout(joined)
        self.note("rows_per_rollout", share)
        if not number and self.is_world_process_zero() and (warned := split_warning(share)):
            print(warned, flush=True)
        return Prepared(joined, lines)

    def learn_from(self, number: int) -> tuple[list[LossRow], list[Tensor]]:
        """The rollouts of a generation, as rows of one turn each that passed the gate, with their log probabilities by
        the loss's forward. Raises Stopped, ConfigError, InfraError."""
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
        assert self.teller is not None
        self.teller.generation(told_of, self.state.global_step + 1, values, unsure, taught, masked, by_token)
        if self.collapse is not None:
            self.collapse.note(told_of)
        return rows, before

    def note(self, name: str, value: float) -> None:
        """A figure of a generation, for the log and as a metric; the first process tells it."""
        if not self.is_world_process_zero():
            return
        self._metrics["train"][name].append(float(value))
        metric(self.state.global_step + 1, f"train/{name}", float(value))

    def status(self, status: Literal["stopped", "failed", "done"], reason: str | None = None) -> None:
        """The first process tells how the training ended."""
        if self.teller is not None:
            self.teller.status(status, self.state.global_step, reason)

    def close(self) -> None:
        """Ends what runs beside the training, and the last piece of its records."""
        if self.beside is not None:
            self.beside.close()
        if self.teller is not None:
            self.teller.writer.cut()

    def roll_out(self, number: int) -> RolloutGeneration:
        """The rollouts of a generation, with who waited for whom. Raises Stopped, and what plays them raises."""
        began = time.monotonic()
        try:
            made = self._played(number)
        except RolloutsStopped:
            step = self.state.global_step
            unsaved = bool(step) and not (self.out / "checkpoints" / f"checkpoint-{step}").exists()
            if self.ranks is not None:
                self.ranks.run("leave", unsaved)
            self._leave(unsaved)
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
            return self.beside.collect(number, self.stopping)
        assert self.finished is not None
        self.finished.begin(number)
        with undisturbed(self.model):
            self.model.eval()
            return generate(
                self.policy,
                self.make_desktop,
                self.drawer.draw(number),
                self.chosen,
                number,
                self.stopping,
                self.drawer.further,
                self.drawer.effort,
                self.finished if self.chosen.reuses else None,
            )

    def _leave(self, unsaved: bool) -> NoReturn:
        """Saves the weights before these rollouts, where they are not saved."""
        if unsaved:
            self._save_checkpoint(self.model, trial=None)
            self.callback_handler.on_save(self.args, self.state, self.control)
        raise Stopped


def _never(**_: Any) -> list[float]:
    raise AssertionError("rollouts are judged by their environment")
