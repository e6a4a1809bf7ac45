"""Ends a training whose loss has fallen far enough, and says so in its checkpoint."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ml


@pytest.mark.parametrize(("loss", "stopped"), [(0.06, False), (0.05, True), (None, False)])
def test_the_logged_loss_decides(loss: float | None, stopped: bool) -> None:
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from training.common.measuring.callbacks import EarlyStopLoss

    one, control = EarlyStopLoss(0.05), TrainerControl()
    logs = {"learning_rate": 1e-3} if loss is None else {"loss": loss}
    one.on_log(TrainingArguments(use_cpu=True), TrainerState(), control, logs=logs)
    assert (control.should_save, control.should_training_stop) == (stopped, stopped)
    assert one.state()["attributes"] == {"stopped": stopped}
