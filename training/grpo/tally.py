"""The rewards of a GRPO training's last generations, for its summary."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from training.rewards import SampledAnswer

RECENT: Final = 10  # generations whose rewards are in the summary


class RewardTally(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Rewards for the summary. Each checkpoint holds `groups` and `dropped`, so that a resumed training gives the same.

    steps     of the weights that gave the answers of each recent generation; fewer than `groups` after a checkpoint of
              before, which did not keep them
    groups    for each recent generation, its groups: the number of the prompt, and each reward's mean over the answers
    dropped   answers that could not be judged, since the start of the training
    attempts  of the last generation: the number of the prompt, and the answer
    """

    def __init__(self) -> None:
        self.groups: deque[list[tuple[int, list[float]]]] = deque(maxlen=RECENT)
        self.steps: deque[int] = deque(maxlen=RECENT)
        self.dropped = 0
        self.attempts: list[tuple[int, SampledAnswer]] = []

    def state(self) -> dict[str, Any]:
        kept = {"groups": list(self.groups), "steps": list(self.steps), "dropped": self.dropped}
        return {"args": {}, "attributes": kept}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        saved = (state.stateful_callbacks or {}).get("RewardTally", {})  # absent in an older checkpoint
        if isinstance(saved, dict):
            attributes = saved.get("attributes", {})
            self.groups.extend(
                [(int(number), means) for number, means in generation] for generation in attributes.get("groups", [])
            )
            self.steps.extend(attributes.get("steps", []))
            self.dropped += int(attributes.get("dropped", 0))
