"""TRL's GRPOTrainer behind our rollouts: the stages from rollouts to rows of the loss, and the steps on these rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler

from eval.config.progress import metric
from eval.desktop import Desktop, Task
from training.common import trackers
from training.common.measuring.in_training import undisturbed
from training.common.rates import from_the_first_step
from training.common.reporting import StopAsked
from training.rl.asynchronous.rollouts import AsyncRollouts
from training.rl.config import RlConfig
from training.rl.learning import gate
from training.rl.learning.coefficients import MeanSettings, corrected, uncertain_tokens, with_coefficients
from training.rl.learning.collapse import SuccessWatch
from training.rl.learning.credit import credited
from training.rl.learning.critic import ValueLearning, ValueNetwork
from training.rl.learning.entropy_bonus import EntropyBonus
from training.rl.learning.kl import PostKl, ReferenceModel
from training.rl.learning.loss_rows import LINES, LossRow, Pictures
from training.rl.learning.losses import LossSettings
from training.rl.learning.ranks import TrainingRanks
from training.rl.learning.row_trainer import RowTrainer, Seen
from training.rl.learning.sdpo.stage import (
    SdpoSettings,
    TeacherCallback,
    divergence_warning,
    mean_figures,
    with_teacher_turns,
)
from training.rl.learning.trajectory_rows import join_turns, rows_per_rollout, split_warning
from training.rl.learning.turn_records import TurnRecord, fitting, learnt, turns_of, without_cut
from training.rl.records.recorder import TrainingRecorder
from training.rl.records.step_metrics import (
    generation_line,
    generation_metrics,
    nothing_to_learn,
    rollout_rows,
    stage_metrics,
)
from training.rl.records.success_episodes import SuccessEpisodes
from training.rl.rollouts.finished_rollouts import FinishedRollouts
from training.rl.rollouts.generation import RolloutGeneration
from training.rl.rollouts.play import RolloutsStopped, generate
from training.rl.rollouts.policy import Policy
from training.rl.rollouts.success_replay import SuccessReplay
from training.rl.rollouts.task_sampler import TaskSampler
from training.rl.rollouts.waiting_times import WaitingTimes
from training.rl.weights.gathered import GatheredWeights, WeightActs
from training.rl.weights.published import PublishedWeights


class Stopped(Exception):
    """SIGTERM came during rollouts; a checkpoint of the weights before them is written, where there was a step."""


class RolloutTrainer(RowTrainer):
    """
    chosen        the configuration
    tasks         what is drawn from
    make_desktop  a fresh desktop
    policy        of the model in memory, and the context in which it computes
    out           the training's folder
    critic        makes PPO's critic
    reference     makes the model that `kl` refers to; None: with a LoRA, the trained one without it
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
        reference: Callable[[], Any] | None = None,
        **options: Any,
    ) -> None:
        self.chosen = chosen
        self.make_desktop = make_desktop
        self.out = out
        super().__init__(reward_funcs=[_never], **options)
        self.stops = StopAsked()
        self.add_callback(self.stops)
        self.task_sampler = TaskSampler(chosen, tasks)
        self.add_callback(self.task_sampler)
        self.ranks: TrainingRanks | None = None
        if self.args.world_size > 1:
            self.ranks = TrainingRanks(self._acts())
        first = self.ranks is None or self.ranks.first
        self.sent: list[LossRow | None] = []
        self.losses = LossSettings.of(self.args)
        self.bonus = EntropyBonus(self)
        self.mean = MeanSettings.of(chosen, tasks, self.args.top_entropy_quantile)
        self.gate = gate.GateSettings(chosen.tolerance, out / "results" / "gate.json")
        self.recorder: TrainingRecorder | None = None
        if first:
            self.recorder = TrainingRecorder(
                chosen, out / "results", lambda token: str(self._tokenizer.decode([token]))
            )
            self.add_callback(self.recorder)
        self.sdpo = None if chosen.sdpo is None else TeacherCallback(self, chosen.sdpo, lambda: self.stops.resume)
        if self.sdpo is not None:
            self.add_callback(self.sdpo)
        self.replay: SuccessReplay | None = None
        if first and chosen.replay is not None:
            self.replay = SuccessReplay(self, chosen.replay, lambda: self.stops.resume)
            self.add_callback(self.replay)
        self.critic = None if critic is None else ValueLearning(self, chosen, critic, lambda: self.stops.resume)
        if self.critic is not None:
            self.add_callback(self.critic)
        self.reference = None if chosen.kl is None else ReferenceModel(self, reference)
        if chosen.post_kl:
            self.add_callback(PostKl(self, chosen.period))
        self.collapse = None if chosen.collapse is None else SuccessWatch(chosen.collapse, chosen.period, out)
        if self.collapse is not None:
            self.add_callback(self.collapse)
        self.finished: FinishedRollouts | None = None
        if first:
            self.finished = FinishedRollouts(self, chosen, out / "results", lambda: self.stops.resume)
            self.add_callback(self.finished)
        self.async_rollouts = (
            AsyncRollouts(self, chosen, self.task_sampler) if first and chosen.asynchronous is not None else None
        )
        self.policy = policy(self.model, self.compute_loss_context_manager)
        self.filters = self.policy.filters
        self.pictures = Pictures(self.processing_class, self.model.config.image_token_id)
        self.rows: list[LossRow] | None = None  # of the present generation
        self.unjudged: tuple[RolloutGeneration, list[TurnRecord]] | None = None  # where the gate waits for the gradient
        self.last: RolloutGeneration | None = None
        self.left = time.monotonic()  # when the last rollouts were there

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset if dataset is None else dataset)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """A warm-up that moves the weights in the first step, too: its rollouts were played."""
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        return from_the_first_step(scheduler, self.args.get_warmup_steps(num_training_steps))

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One optimiser step's gradient; at the first step of a generation, its rollouts before. Raises Stopped."""
        if self.rows is None or self.state.global_step % self.chosen.period == 0:
            self.rows = self.prepare(self.state.global_step // self.chosen.period)
        if self.critic is not None and self.critic.only(self.state.global_step // self.chosen.period):
            self._step += 1
            return torch.zeros((), device=self.accelerator.device)  # without gradients the optimiser changes nothing
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        if self.unjudged is None:
            loss = self.gradient(model, self.rows, self.state.global_step)
        else:
            loss = self.judged_gradient(model, self.rows, *self.unjudged)
        further, found = self.sdpo_gradient(self.rows, self.state.global_step)
        for name, value in mean_figures(found).items():
            self.note(name, value)
            if name == "divergence" and not self.state.global_step and (told := divergence_warning(value)):
                print(told, flush=True)
        self._step += 1
        return loss + further

    def judged_gradient(
        self, model: Any, rows: Sequence[LossRow], made: RolloutGeneration, records: Sequence[TurnRecord]
    ) -> Tensor:
        """Adds the gradient of a generation that the gate has not seen; gives its loss. Raises ConfigError, and leaves
        no gradient then: weights and optimiser are what they were."""
        seen: Seen = {}
        loss = self.gradient(model, rows, self.state.global_step, seen)
        try:
            self._record(made, self._judged(made, self._measure(records, seen)))
        except Exception:
            model.zero_grad()
            raise
        self.rows = [replace(row, old=tuple(seen[row.at][0].tolist())) for row in rows]
        return loss

    def _acts(self) -> dict[str, Callable[..., Any]]:
        """What the first of several processes asks all of them for."""
        weights = WeightActs(lambda: self.model)

        def send(rows: list[LossRow | None]) -> None:
            self.sent = rows

        def measure(numbers: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
            return self._measured([row for number in numbers if (row := self.sent[number]) is not None])

        def refer(numbers: Sequence[int]) -> list[Tensor]:
            return self._by_reference([row for number in numbers if (row := self.sent[number]) is not None])

        def asked() -> bool:
            assert self.ranks is not None
            return self.ranks.any(self.stops.asked())

        return {
            "send": send,
            "measure": measure,
            "refer": refer,
            "asked": asked,
            "leave": self._leave,
            **{name: getattr(weights, name) for name in ("gather", "take", "give_back")},
        }

    def published(self, folder: Path, kept: int) -> PublishedWeights:
        """The trained weights, for what samples asynchronous rollouts."""
        if self.ranks is None:
            return PublishedWeights(self.model, folder, kept)
        return GatheredWeights(self.model, folder, kept, self.ranks)

    def stopping(self) -> bool:
        """Whether SIGTERM came, to whichever process."""
        if self.ranks is None or self.stops.asked() or not self.ranks.silent:
            return self.stops.asked()
        return bool(self.ranks.run("asked"))

    def prepare(self, number: int) -> list[LossRow]:
        """The rows of a generation, in every process. Raises Stopped, ConfigError, InfraError."""
        if self.ranks is None:
            rows = [record.row() for record in learnt(self.learn_from(number))]
        elif self.ranks.first:
            with self.ranks.leading(unless=Stopped):
                own = learnt(self.learn_from(number))
            self.ranks.release([(each.number, {name: getattr(each, name) for name in LINES}) for each in own])
            rows = [record.row() for record in own]
        else:
            rows = [replace(row, **lines) for at, lines in self.ranks.follow() if (row := self.sent[at]) is not None]
        return self._whole(rows, number) if self.chosen.rows == "trajectory" else rows

    def _whole(self, rows: Sequence[LossRow], number: int) -> list[LossRow]:
        whole = [each.row for each in join_turns(rows)]
        share = rows_per_rollout(whole)
        self.note("rows_per_rollout", share)
        if not number and self.is_world_process_zero() and (warned := split_warning(share)):
            print(warned, flush=True)
        return whole

    def learn_from(self, number: int) -> list[TurnRecord]:
        """The rollouts of a generation, stage by stage, to one final coefficient for every token. The gate may be left
        to `judged_gradient`. Raises Stopped, ConfigError, InfraError."""
        made = self.roll_out(number)
        self._keep(made)
        records = fitting(turns_of(made if self.replay is None else self.replay.stand_in(made)), self.pictures)
        waits = self.ranks is None and gate.waits(records, self.chosen, self.mean.quantile)
        if not waits:
            records = self._judged(made, self._measure(records))
        if self.chosen.mask_truncated:
            records = without_cut(records)
        records = credited(records, self.chosen) if self.critic is None else self.critic.credited(records)
        if self.chosen.asynchronous is not None:
            records = corrected(records, self.chosen.asynchronous)
        if self.chosen.sdpo is not None:
            records = with_teacher_turns(records, SdpoSettings(self.chosen.sdpo.solved, self.policy, self.pictures))
        records = with_coefficients(uncertain_tokens(records, self.mean), self.mean)
        self.unjudged = (made, records) if waits else None
        if not waits:
            self._record(made, records)
        return records

    def _keep(self, made: RolloutGeneration) -> None:
        """What outlives a generation: its last one, its successes, and what the order of the tasks learns from it."""
        self.last = made
        if self.chosen.successes is not None:
            SuccessEpisodes(self.out / "episodes", self.chosen.successes).keep(made)
        self.task_sampler.note(made)

    def _measure(self, records: Sequence[TurnRecord], seen: Seen | None = None) -> list[TurnRecord]:
        """The stage of the loss's forward: the log probabilities and entropies of all records that fit. `seen`: those
        of the gradient's; None: they are computed."""
        if self.ranks is not None:
            self.ranks.run("send", [record.row() if record.masked is None else None for record in records])
        own, done = learnt(records), list(records)
        now, entropies = self.log_probabilities(own) if seen is None else self.as_seen(own, seen)
        then: Sequence[Tensor | None] = now
        if self.async_rollouts is not None:
            then = self.async_rollouts.at_sampling(own, now, own[0].made.number)
        for record, line, sampled, unsure in zip(own, now, then, entropies, strict=True):
            # the ratio of a replayed turn is to the policy that sampled it
            old = record.turn.logprobs if record.played.replayed else tuple(line.tolist())
            compared = () if sampled is None else tuple(sampled.tolist())
            done[record.number] = replace(record, old=old, then=compared, entropies=tuple(unsure.tolist()))
        if self.reference is not None:
            for record, line in zip(own, self.by_reference(own), strict=True):
                done[record.number] = replace(done[record.number], reference=tuple(line.tolist()))
        return done

    def _judged(self, made: RolloutGeneration, records: list[TurnRecord]) -> list[TurnRecord]:
        """The stage of the gate, which tells of what was played. Raises ConfigError."""
        told = generation_metrics(made, records, gate.passed(records, self.gate))
        self._tell_of(told, generation_line(made, len(learnt(records))))
        return records

    def _stage_figures(self, records: Sequence[TurnRecord]) -> dict[str, float]:
        told = stage_metrics(records, self.chosen)
        if self.task_sampler.fresh is not None:
            told["fresh_tasks"] = float(len(self.task_sampler.fresh.made))
        return told if self.critic is None else told | self.critic.figures

    def _tell_of(self, told: Mapping[str, float], line: str | None = None) -> None:
        for name, value in told.items():
            self.note(name, value)
        if line is not None:
            print(line, flush=True)

    def _record(self, made: RolloutGeneration, records: Sequence[TurnRecord]) -> None:
        """Tells of all stages. Raises ConfigError for a collapse."""
        assert self.recorder is not None
        self._tell_of(self._stage_figures(records), nothing_to_learn(records))
        step = self.state.global_step + 1
        self.recorder.generation(made, step, records)
        if self.args.report_to:
            trackers.table("rollouts", rollout_rows(made, step, self.chosen.kept_groups), step)
        if self.collapse is not None:
            self.collapse.note(made)

    def note(self, name: str, value: float, step: int | None = None) -> None:
        """A figure of a generation, for the log and as a metric; the first process tells it. `step`: that it belongs
        to; None: the next one."""
        if not self.is_world_process_zero():
            return
        self._metrics["train"][name].append(float(value))
        metric(self.state.global_step + 1 if step is None else step, f"train/{name}", float(value))

    def status(self, status: Literal["stopped", "failed", "done"], reason: str | None = None) -> None:
        """The first process tells how the training ended."""
        if self.recorder is not None:
            self.recorder.status(status, self.state.global_step, reason)

    def close(self) -> None:
        """Ends asynchronous rollouts, and the last piece of its records."""
        if self.async_rollouts is not None:
            self.async_rollouts.close()
        if self.recorder is not None:
            self.recorder.writer.cut()

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
        if self.async_rollouts is not None and self.async_rollouts.collector is not None:
            told |= self.async_rollouts.collector.figures
        else:
            told |= made.times.since(WaitingTimes())
        for name, value in told.items():
            self.note(name, value)
        return made

    def _played(self, number: int) -> RolloutGeneration:
        if self.async_rollouts is not None:
            return self.async_rollouts.collect(number, self.stopping)
        assert self.finished is not None
        self.finished.begin(number)
        with undisturbed(self.model):
            self.model.eval()
            return generate(
                self.policy,
                self.make_desktop,
                self.task_sampler.draw(number),
                self.chosen,
                number,
                self.stopping,
                self.task_sampler.further,
                self.task_sampler.effort,
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
