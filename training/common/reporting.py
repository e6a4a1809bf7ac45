"""Reports progress and metrics during training, and handles requests to stop."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from eval.config import ConfigError
from eval.config.progress import metric, progress

# TRL's names -> ours. Others that it logs (epoch, total_flos) say nothing new.
NAMES = {
    "loss": "train/loss",
    "learning_rate": "train/learning_rate",
    "grad_norm": "train/grad_norm",
    "mean_token_accuracy": "train/token_accuracy",
    "entropy": "train/entropy",
    "num_tokens": "train/tokens",
}
T = TypeVar("T")
EVERY = 1.0  # seconds between two lines of progress


class StopRequest:
    """A context that remembers a SIGTERM until the step ends, and restores the former handler at its end."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> StopRequest:
        self.before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self.before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


class StopAsked(TrainerCallback):  # type: ignore[misc]
    """Knows whether SIGTERM came: run_training gives the request to every callback that has a place for it."""

    def __init__(self) -> None:
        self.stop: StopRequest | None = None
        self.resume: str | None = None

    def asked(self) -> bool:
        return self.stop is not None and self.stop.asked


def agreed(args: TrainingArguments, asked: bool) -> bool:
    """Whether any process got SIGTERM; all processes get the same answer, so that all stop after the same step."""
    import torch

    if args.world_size < 2 or not torch.distributed.is_initialized():
        return asked
    device = "cpu" if torch.distributed.get_backend() == "gloo" else args.device
    flag = torch.tensor(int(asked), device=device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


def from_first(args: TrainingArguments, value: T) -> T:
    """The first process's value, in every process."""
    import torch

    if args.world_size < 2:
        return value
    given = [value]
    torch.distributed.broadcast_object_list(given, src=0)
    return given[0]


class Reporting(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Reports progress and metrics; after SIGTERM saves a checkpoint at the end of the step and stops.

    config  the fields that change the computation (options.computed); stored in each checkpoint's trainer_state.json
    counted the tokens and samples to store there as well: see training.common.entry.counted
    period  a checkpoint is complete only at every `period`-th step; after SIGTERM training goes on to the next of them
    """

    def __init__(
        self,
        stop: StopRequest,
        config: dict[str, Any] | None = None,
        period: int = 1,
        counted: Callable[[], dict[str, int]] = dict,
    ) -> None:
        self.stop = stop
        self.counted = counted
        self.config = config or {}
        self.period = period
        self.told = 0.0
        self.began = 0.0  # monotonic seconds and tokens at the first step, for the rate
        self.tokens = 0.0

    def state(self) -> dict[str, Any]:
        return {"args": {"config": self.config}, "attributes": self.counted()}

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        now = time.monotonic()
        if state.is_world_process_zero and (now - self.told >= EVERY or state.global_step == state.max_steps):
            self.told = now
            loss = next((f"loss {entry['loss']:.3g}" for entry in reversed(state.log_history) if "loss" in entry), "")
            progress(state.global_step, state.max_steps, "train", loss)
        self.stop.asked = agreed(args, self.stop.asked)
        if self.stop.asked and state.global_step < state.max_steps and state.global_step % self.period == 0:
            control.should_save = True
            control.should_training_stop = True
        if control.should_save:
            control.should_log = True  # so that a NaN loss ends the run before a checkpoint is saved
        return control

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        logs = logs or {}
        if not math.isfinite(loss := float(logs.get("loss", 0.0))):
            raise ConfigError(f"step {state.global_step}: the loss is {loss}: lower learning_rate, or look at the data")
        if not state.is_world_process_zero:
            return
        for name, ours in NAMES.items():
            if isinstance(value := logs.get(name), int | float):
                metric(state.global_step, ours, value)
        if "loss" not in logs:
            return
        now, tokens = time.monotonic(), float(logs.get("num_tokens", 0.0))
        if self.began and tokens > self.tokens:
            metric(state.global_step, "train/tokens_per_second", (tokens - self.tokens) / (now - self.began))
        self.began, self.tokens = now, tokens
        print(f"step {state.global_step} of {state.max_steps}: loss {logs['loss']:.4g}", flush=True)


def leave_sigterm_to_the_trainer() -> None:
    """Ignores SIGTERM in a loader's worker: a stop reaches all processes, and the trainer still needs its workers."""
    import torch

    if torch.utils.data.get_worker_info() is not None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
