"""Callbacks that check the model during training: drawn predictions, and the evaluation that may end the training."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from eval.agents.base import Agent
from eval.config import ConfigError
from eval.config.progress import metric
from eval.prompts import PromptBuilder
from eval.scores.stats import Estimate
from training.common import sharding
from training.common.evaluation import (
    LOSS,
    WITH_BOX,
    EvaluationConfig,
    Interrupted,
    Scores,
    TriedTasks,
    evaluate,
    told_of_boxes,
    told_of_hacking,
    undisturbed,
)
from training.common.models import load_weights
from training.common.predictions import predict
from training.common.reporting import StopRequest, agreed
from training.common.validation import HeldOutLoss
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
        self.interval: list[float] = []  # of the best: low, high, n, and the clusters if it is by cluster
        self.with_box: list[float] = []  # of the held-out steps: the share that has a box, and their number
        self.first: list[float] = []  # the metric before the first step: value, and what `interval` holds
        self.waited = 0  # evaluations since the best
        self.pending = False  # the current step's evaluation was interrupted
        self.stopped = False

    def state(self) -> dict[str, Any]:
        """Called while a checkpoint is written, after its weights and before its marker. Copies the best weights into
        it, because the next attempt may have only this checkpoint."""
        if self.now is not None and self.best_step not in (None, self.now[1]):
            folder, step = self.now
            if (best := self.best_weights(folder)) is not None:
                carry(best, folder / f"checkpoint-{step}" / BEST)
        names = ("best", "best_step", "interval", "with_box", "first", "waited", "pending", "stopped")
        return {"args": {}, "attributes": {name: getattr(self, name) for name in names}}

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
        for name, value in saved.get("attributes", {}).items():
            setattr(self, name, value)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any, **kwargs: Any
    ) -> None:
        self.restore(state)
        if self.pending:
            self._evaluate(args, state, control, model)
        elif self.config.at_start and state.global_step == 0:
            scores = self._scores(args, state, model)
            if scores is not None:  # else interrupted: nothing is trained, and the next attempt begins here again
                value = self._told(state, scores, "baseline")
                self.first = [value.value, *_interval(value)]

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
        return _from_first(args, scores)

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
            further = told_of_boxes(scores) + told_of_hacking(scores)
            print(
                f"step {step}: {self.config.decides} {value.value:.3f} ({value.low:.3f} to {value.high:.3f},"
                f" n {value.n}), best {max(value.value, self.best or 0.0):.3f}{further}",
                flush=True,
            )
        return value

    def _better(self, value: float) -> bool:
        if self.best is None:
            return True
        return value < self.best if self.loss is not None else value > self.best

    def _evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any) -> None:
        scores = self._scores(args, state, model)
        self.pending = scores is None
        if scores is None:
            return
        value, step = self._told(state, scores), state.global_step
        if self._better(value.value):
            self.best, self.best_step, self.waited = value.value, step, 0
            self.interval = _interval(value)
            self.with_box = [scores[WITH_BOX].value, scores[WITH_BOX].n] if WITH_BOX in scores else []
            state.best_metric, state.best_global_step = self.best, step  # the trainer keeps that checkpoint
            control.should_save = True
        elif self.loss is not None or (self.best or 0.0) >= self.config.minimum:
            self.waited += 1
        if self.config.patience is not None and self.waited >= self.config.patience:
            self.stopped = True
            control.should_save = control.should_training_stop = True
            if state.is_world_process_zero:
                print(f"stopped early: best {self.best:.3f} at step {self.best_step}", flush=True)


def take_best(trainer: Any, config: EvaluationConfig | None, seed: int, out: Path) -> list[Any]:
    """Loads the best weights into the model if the configuration asks for them. Returns the best step's rows for the
    summary, or no row without an evaluation. `seed`: the training's, to choose held-out steps."""
    from eval.scores.summary import row

    if config is None:
        return []
    (seen,) = (callback for callback in trainer.callback_handler.callbacks if isinstance(callback, Watch))
    # Only the process that saves checkpoints brings the trainer's state up to date: in the others it is that of the
    # begin. It is needed where nothing was trained, because the checkpoint had ended the training.
    if seen.best is None:
        seen.restore(trainer.state)
    if seen.best is None or seen.best_step is None:
        return []
    at = seen.best_step
    if config.keep == "best" and at != trainer.state.global_step:
        kept, model = seen.best_weights(out / "checkpoints"), trainer.accelerator.unwrap_model(trainer.model)
        if sharding.is_sharded(model):  # the first process reads for all, whose disks may be others
            kept = _from_first(trainer.args, kept)
        told = f"the last: the weights of step {at} are gone"
        if kept is not None:
            load_weights(model, kept)
            told = f"that of step {at}"
        if trainer.is_world_process_zero():
            print(f"model/ is {told}", flush=True)
    described: dict[str, Any] = {
        "benchmark": config.environment or ("held-out episodes" if config.episodes is not None else "held-out pairs"),
        "version": "1" if config.environment else STEPS_VERSION,
        "split": f"chosen by it, at step {seen.best_step}",
        "infra": 0,
        "seed": config.tasks.seed if config.environment else seed,
        "agent": "trained",
    }
    rows = [_row(config, seen.best, seen.interval, described)]
    if seen.with_box:
        share, steps = seen.with_box
        rows.append(row(WITH_BOX, Estimate(share, share, share, int(steps)), **described))
    if seen.first:
        described |= {"split": "before the first step", "agent": "untrained"}
        rows.append(_row(config, seen.first[0], seen.first[1:], described))
    return rows


def _row(config: EvaluationConfig, value: float, interval: list[float], described: dict[str, Any]) -> Any:
    """A row of the summary; a loss has no interval."""
    from msgspec.structs import replace

    from eval.scores.summary import row

    told = row(config.decides, _estimate(value, interval), **described)
    return replace(told, ci_low=None, ci_high=None) if config.decides == LOSS else told


def _interval(value: Estimate) -> list[float]:
    """low, high, n, and the clusters if it is by cluster: numbers, as a checkpoint keeps them."""
    return [value.low, value.high, value.n, *([] if value.clusters is None else [value.clusters])]


def _estimate(value: float, interval: list[float]) -> Estimate:
    low, high, count, *clusters = interval
    return Estimate(value, low, high, int(count), int(clusters[0]) if clusters else None)


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


def _from_first(args: TrainingArguments, value: T) -> T:
    """The first process's value, in every process."""
    import torch

    if args.world_size < 2:
        return value
    given = [value]
    torch.distributed.broadcast_object_list(given, src=0)
    return given[0]
