"""Callbacks that check the model during training: drawn predictions, and the evaluation or the loss that may end it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from msgspec.structs import replace
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from eval.agents.base import Agent
from eval.config import ConfigError
from eval.config.progress import metric
from eval.prompts import PromptBuilder
from eval.scores.stats import Estimate
from eval.scores.summary import MetricRow, row
from training.common.measuring.in_training import (
    LOSS,
    WITH_BOX,
    EvaluationConfig,
    Interrupted,
    Scores,
    TriedTasks,
    boxes_text,
    evaluate,
    hacking_text,
    undisturbed,
)
from training.common.measuring.measured_weights import UNTRAINED, KeptWeights, StepValue, checkpoint, measured_rows
from training.common.measuring.predictions import predict
from training.common.measuring.validation import HeldOutLoss
from training.common.model import sharding
from training.common.model.loading import load_weights
from training.common.reporting import StopRequest, agreed, from_first
from training.data.samples import Sample

STEPS_VERSION = "2"  # of the rules for held-out steps; 1 compared the points of recordings for equality
BEST = "best"  # a checkpoint's folder with the weights of the best step
T = TypeVar("T")
MakeAgent = Callable[[Any], Agent]  # a model in memory -> an agent over it


class PredictionPictures(TrainerCallback):  # type: ignore[misc]
    """Every `every` steps, `count` predictions drawn into `folder`/step-N, and their accuracy as metrics."""

    def __init__(self, agent: MakeAgent, samples: Sequence[Sample], folder: Path, *, every: int, count: int) -> None:
        self.agent = agent
        self.samples = samples
        self.folder = folder
        self.every = every
        self.count = count

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any, **kwargs: Any
    ) -> None:
        if state.global_step % self.every or not state.is_world_process_zero:
            return
        with undisturbed(model):
            folder = self.folder / f"step-{state.global_step}"
            for name, value in predict(self.agent(model), self.samples, self.count, folder).items():
                metric(state.global_step, f"samples/{name}", value.value)


class EvaluationListener(Protocol):
    """Is told of each evaluation as it ends, in the first process. phase: baseline, the one before the first step."""

    def __call__(self, phase: Literal["eval", "baseline"], step: int, scores: Scores, tried: TriedTasks) -> None: ...


class Watch(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Evaluates, keeps the checkpoint of the best step, and ends the training when patience runs out.

    The first process evaluates and sends the result to the others; a loss is computed by all together. Each checkpoint
    holds this callback's state; an evaluation that SIGTERM interrupted is repeated when the training resumes.

    loss   for `metric: loss`; then there is no agent
    heard  who is told of each evaluation
    """

    def __init__(
        self,
        config: EvaluationConfig,
        agent: MakeAgent | None = None,
        builder: PromptBuilder | None = None,
        loss: HeldOutLoss | None = None,
        heard: EvaluationListener | None = None,
    ) -> None:
        self.config = config
        self.agent = agent
        self.builder = builder
        self.loss = loss
        self.heard = heard
        self.tried: TriedTasks = []  # of the last evaluation
        self.stop = StopRequest()  # run_training replaces it
        self.resume: str | None = None  # set by run_training
        self.now: tuple[Path, int] | None = None  # folder of the checkpoints, current step
        self.best: float | None = None
        self.best_step: int | None = None
        self.measured: list[StepValue] = []  # of the metric, in order; the first is the baseline if `at_start`
        self.with_box: list[float] = []  # of the held-out steps: the share that has a box, and their number
        self.waited = 0  # evaluations since the best
        self.other_episodes = False  # than those that the checkpoint's were measured on; set by run_training
        self.pending = False  # the current step's evaluation was interrupted
        self.stopped = False

    def state(self) -> dict[str, Any]:
        """Called while a checkpoint is written, after its weights and before its marker. Copies the best weights into
        it, because the next attempt may have only this checkpoint."""
        if self.now is not None and self.best_step not in (None, self.now[1]):
            folder, step = self.now
            if (best := self.best_weights(folder)) is not None:
                carry(best, folder / f"checkpoint-{step}" / BEST)
        names = ("best", "best_step", "measured", "with_box", "waited", "pending", "stopped")
        attributes = {name: getattr(self, name) for name in names}
        return {"args": {}, "attributes": {**attributes, "measures": self.config.measures()}}

    def best_weights(self, checkpoints: Path) -> Path | None:
        """The folder that holds the weights of the best step, here or in what the run went on from.

        On a disk that is not shared, a process that does not save weights has the folder without them."""
        name, resumed = f"checkpoint-{self.best_step}", Path(self.resume or "")
        places = [checkpoints / name]
        if self.resume is not None:
            places += [resumed] if resumed.name == name else [resumed / BEST]
        return next((place for place in places if any(place.glob("*.safetensors"))), None)

    def restore(self, state: TrainerState) -> None:
        saved = state.stateful_callbacks.setdefault("Watch", {})  # absent in a checkpoint made without evaluation
        attributes = saved.get("attributes", {})
        now = self.config.measures()
        if attributes.get("measures", now) != now or self.other_episodes:
            if attributes.get("measured") and state.is_world_process_zero:
                print("the evaluation measures something else than before: what it measured counts no more", flush=True)
            attributes = {"pending": attributes.get("pending", False)}
        for name in ("best", "best_step", "with_box", "waited", "pending", "stopped"):
            setattr(self, name, attributes.get(name, getattr(self, name)))
        self.measured = measured_rows(attributes)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any, **kwargs: Any
    ) -> None:
        self.restore(state)
        if self.pending:
            self._evaluate(args, state, control, model)
        elif self.config.at_start and state.global_step == 0:
            scores = self._scores(args, state, model)
            if scores is not None:  # else interrupted: nothing is trained, and the next attempt begins here again
                self.measured = [StepValue.of(0, self._told(state, scores, "baseline"))]

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any, **kwargs: Any
    ) -> None:
        self.now = (Path(args.output_dir), state.global_step) if state.is_world_process_zero else None
        if state.global_step % self.config.every == 0 or state.global_step >= state.max_steps:
            self._evaluate(args, state, control, model)

    def _scores(self, args: TrainingArguments, state: TrainerState, model: Any) -> Scores | None:
        """What the model scores, in every process; None when a stop was asked for."""
        if self.loss is not None:
            with undisturbed(model):
                value = self.loss.measure(lambda: agreed(args, self.stop.asked))
            return None if value is None else {LOSS: Estimate(value, value, value, self.loss.samples)}
        assert self.agent is not None
        assert self.builder is not None
        scores: Scores | None = None
        if state.is_world_process_zero:
            with undisturbed(model):
                try:
                    agent = self.agent(model)
                    self.tried = []
                    scores = evaluate(self.config, agent, self.builder, self.tried.extend, lambda: self.stop.asked)
                except Interrupted:
                    scores = None
        return from_first(args, scores)

    def _told(self, state: TrainerState, scores: Scores, phase: Literal["eval", "baseline"] = "eval") -> Estimate:
        """Tells the scores; gives the one that decides. Raises ConfigError when it is not among them."""
        if self.config.decides not in scores:
            raise ConfigError(f"evaluation.metric: {self.config.decides} is not among {', '.join(sorted(scores))}")
        value, step = scores[self.config.decides], state.global_step
        if state.is_world_process_zero:
            for name, score in scores.items():
                metric(step, f"eval/{name}", score.value)
            if self.heard is not None:
                self.heard(phase, step, scores, self.tried)
            if self.loss is not None:
                best = value.value if self.best is None else min(value.value, self.best)
                print(f"step {step}: held-out loss {value.value:.4g} (n {value.n}), best {best:.4g}", flush=True)
                return value
            further = boxes_text(scores) + hacking_text(scores)
            print(
                f"step {step}: {self.config.decides} {value.value:.3f} ({value.low:.3f} to {value.high:.3f},"
                f" n {value.n}), best {max(value.value, self.best or 0.0):.3f}{further}",
                flush=True,
            )
        return value

    def _better(self, value: float) -> bool:
        return self.best is None or self.better(value, self.best)

    def better(self, value: float, other: float) -> bool:
        return value < other if self.config.decides == LOSS else value > other

    def at(self, step: int) -> StepValue | None:
        """What was measured on the weights after a step."""
        return next((each for each in self.measured if each.step == step), None)

    def _evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any) -> None:
        scores = self._scores(args, state, model)
        self.pending = scores is None
        if scores is None:
            return
        value, step = self._told(state, scores), state.global_step
        self.measured.append(StepValue.of(step, value))
        self.with_box = [scores[WITH_BOX].value, scores[WITH_BOX].n] if WITH_BOX in scores else []
        if self._better(value.value):
            self.best, self.best_step, self.waited = value.value, step, 0
            state.best_metric, state.best_global_step = self.best, step  # the trainer keeps that checkpoint
            control.should_save = True
        elif self.loss is not None or (self.best or 0.0) >= self.config.minimum:
            self.waited += 1
        if self.config.patience is not None and self.waited >= self.config.patience:
            self.stopped = True
            control.should_save = control.should_training_stop = True
            if state.is_world_process_zero:
                print(f"stopped early: best {self.best:.3f} at step {self.best_step}", flush=True)


def take_weights(trainer: Any, config: EvaluationConfig | None, seed: int, out: Path) -> KeptWeights:
    """Leaves in the model the weights that model/ gets: those of the best step if the configuration asks for them, else
    the last. Gives the step that they have, and the rows of what was measured. `seed`: the training's, to choose
    held-out steps."""
    last = int(trainer.state.global_step)
    if config is None:
        return KeptWeights(last, [])
    (seen,) = (callback for callback in trainer.callback_handler.callbacks if isinstance(callback, Watch))
    # Only the process that saves checkpoints brings the trainer's state up to date: in the others it is that of the
    # begin. It is needed where nothing was trained, because the checkpoint had ended the training.
    if not seen.measured:
        seen.restore(trainer.state)
    if seen.best_step is None:
        return KeptWeights(last, [])
    step = seen.best_step if config.keep == "best" else last
    if step != last:
        kept, model = seen.best_weights(out / "checkpoints"), trainer.accelerator.unwrap_model(trainer.model)
        if sharding.is_sharded(model):  # the first process reads for all, whose disks may be others
            kept = from_first(trainer.args, kept)
        told = f"that of step {step}"
        if kept is not None:
            load_weights(model, kept)
        # the first process saves; another one may have the folder without weights, on a disk of its own
        if not from_first(trainer.args, kept is not None):
            told, step = f"the last, of step {last}: the weights of step {step} are gone", last
        if trainer.is_world_process_zero():
            print(f"model/ is {told}", flush=True)
    if trainer.is_world_process_zero() and (warning := got_worse(seen)) is not None:
        print(warning, flush=True)
    return KeptWeights(step, evaluated_rows(seen, step, seed))


def got_worse(seen: Watch) -> str | None:
    """A warning, where the last evaluation is worse than the first."""
    first, last = seen.measured[0], seen.measured[-1]
    if not seen.better(first.value, last.value):
        return None
    told = f"{seen.config.decides} {last.value:.4g} at step {last.step}, {first.value:.4g} at step {first.step}"
    return f"warning: the last evaluation is worse than the first: {told}"


def evaluated_rows(seen: Watch, kept: int, seed: int) -> list[MetricRow]:
    """Of the weights in model/, of the best step where those are others, and of the weights before the first step.

    kept  the step of the weights in model/; where they were not evaluated, no row tells of them
    """
    config = seen.config
    described: dict[str, Any] = {
        "benchmark": config.environment or ("held-out episodes" if config.episodes is not None else "held-out pairs"),
        "version": "1" if config.environment else STEPS_VERSION,
        "infra": 0,
        "seed": config.tasks.seed if config.environment else seed,
    }
    rows = []
    for step in dict.fromkeys((kept, seen.best_step, 0)):
        found = None if step is None else seen.at(step)
        if found is None:
            continue
        if step == kept:
            who = "trained"
            split = f"chosen by it, at step {step}" if step == seen.best_step else f"at the last step, {step}"
        else:
            who = UNTRAINED if step == 0 else checkpoint(found.step)
            split = f"the best, at step {step}" if step else "before the first step"
        of_it = {**described, "agent": who, "split": split, "steps": [step]}
        rows.append(_row(config, found.estimate, of_it))
        if step == kept and seen.with_box:
            share, steps = seen.with_box
            rows.append(row(WITH_BOX, Estimate(share, share, share, int(steps)), **of_it))
    return rows


def _row(config: EvaluationConfig, value: Estimate, described: dict[str, Any]) -> MetricRow:
    """A row of the summary; a loss has no interval."""
    told = row(config.decides, value, **described)
    return replace(told, ci_low=None, ci_high=None) if config.decides == LOSS else told


def carry(source: Path, folder: Path) -> None:
    """Puts weights into another checkpoint: as hard links where the disk allows it, else as copies."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*source.glob("*.safetensors"), *source.glob("*adapter_config.json")):
        place = folder / file.name
        place.unlink(missing_ok=True)
        try:
            os.link(file, place)
        except OSError:
            shutil.copyfile(file, place)


class EarlyStopLoss(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Saves a checkpoint and stops when a logged loss is `limit` or less. The checkpoint says that it is the last."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.stopped = False

    def state(self) -> dict[str, Any]:
        return {"args": {"limit": self.limit}, "attributes": {"stopped": self.stopped}}

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        loss = (logs or {}).get("loss")
        if loss is None or float(loss) > self.limit:
            return
        self.stopped = control.should_save = control.should_training_stop = True
        if state.is_world_process_zero:
            print(f"stopped early: the loss, {float(loss):.4g}, is not above early_stop_loss", flush=True)
