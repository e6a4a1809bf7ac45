"""Ends a training whose loss has fallen far enough."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState


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
