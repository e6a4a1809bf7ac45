"""Writes the results of a GRPO training: summary, drawn answers, curves, and the reason of an early stop.

`RewardTally` keeps the rewards of the last generations for the summary.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from eval.actions import ParseError
from eval.agents.base import Decision
from eval.scores.stats import rate, ratio
from eval.scores.summary import MetricRow, row
from training.common.measuring.measured_weights import SAMPLED, write_measured
from training.grpo.config import GrpoConfig
from training.grpo.prompts import Prompts
from training.rewards import Reward, SampledAnswer
from training.rewards.builtin import Builtin

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


def write(config: GrpoConfig, rewards: Sequence[Reward], trainer: Any, prompts: Prompts, folder: Path) -> None:
    """Writes summary.json, samples/, plots/curves.png, and bad_samples.json if prompts were skipped, into `folder`."""
    if prompts.faults.total:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bad_samples.json").write_text(json.dumps(prompts.faults.report(), indent=1) + "\n", encoding="utf-8")
    rows = summary(config, rewards, trainer.tally, partial(episode_of, prompts))
    write_measured(folder / "summary.json", rows, trainer.state.global_step)
    if config.predictions:
        draw(trainer.tally.attempts, prompts, config.predictions, folder / "samples")
    plot(trainer.state.log_history, rewards, folder / "plots" / "curves.png")


def summary(
    config: GrpoConfig, rewards: Sequence[Reward], tally: RewardTally, cluster: Callable[[int], str]
) -> list[MetricRow]:
    """Each reward's mean over the groups of the last generations, with an interval by cluster.

    cluster  of a prompt by its number: the steps of an episode resemble each other, and a prompt may come several times

    infra_failures counts the answers since the start of the training that could not be judged.
    """
    groups = [(cluster(number), means) for generation in tally.groups for number, means in generation]
    rows = []
    for index, reward in enumerate(rewards):
        values: dict[str, list[float]] = defaultdict(list)
        for name, means in groups:
            if not math.isnan(means[index]):
                values[name].append(means[index])
        bounded = isinstance(reward.function, Builtin) and reward.function.bounded
        estimate = (rate if bounded else ratio)(
            [math.fsum(some) for some in values.values()], [float(len(some)) for some in values.values()]
        )
        rows.append(
            row(
                f"reward/{reward.label}",
                estimate,
                benchmark="training prompts",
                version="1",
                split="last generations",
                infra=tally.dropped,
                seed=config.seed,
                agent=SAMPLED,
                steps=list(tally.steps) if len(tally.steps) == len(tally.groups) else None,
            )
        )
    return rows


def episode_of(prompts: Prompts, number: int) -> str:
    """The episode of a prompt, or the prompt itself where it is of none."""
    sample = prompts[number]
    return f"prompt {prompts.item(number)}" if sample.episode is None else sample.episode.episode_id


def draw(attempts: Sequence[tuple[int, Any]], prompts: Prompts, count: int, folder: Path) -> None:
    """Draws evenly spread answers of the last generation on their screenshots."""
    from training.common.measuring.predictions import write_drawn

    count = min(count, len(attempts))
    answers = []
    for place, (number, attempt) in enumerate(attempts[i * len(attempts) // count] for i in range(count)):
        sample = prompts[number]
        if sample.episode is None:
            continue
        why = str(attempt.parsed) if isinstance(attempt.parsed, ParseError) else None
        answers.append((place, (sample, Decision(attempt.text, attempt.action, parse_error=why))))
    write_drawn(answers, folder)


def plot(history: Sequence[Mapping[str, Any]], rewards: Sequence[Reward], file: Path) -> None:
    """Draws curves over the steps. Above: rewards (left axis), and rewards of weight 0 (right axis, dashed).
    Below: entropy, groups without variance, truncated answers, KL."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 7), sharex=True, layout="constrained")
    watched = above.twinx() if any(not reward.weight for reward in rewards) else None
    for number, reward in enumerate(rewards):
        name, colour = f"rewards/{reward.label}/mean", f"C{number}"
        if reward.weight:
            _line(above, history, name, f"{reward.label} x {reward.weight:g}", color=colour)
        else:
            _line(watched, history, name, f"{reward.label} (only watched)", color=colour, linestyle="--")
    above.set_ylabel("mean reward")
    if watched is not None:
        watched.set_ylabel("mean of what is only watched")
    lines = [*above.lines, *(watched.lines if watched is not None else ())]
    if lines:
        above.legend(handles=lines, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    for name, label in (
        ("entropy", "entropy (nats)"),
        ("frac_reward_zero_std", "share of groups without variance"),
        ("completions/clipped_ratio", "share cut off"),
        ("kl", "KL from the start (nats)"),
    ):
        _line(below, history, name, label)
    if below.lines:
        below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4, frameon=False)
    below.set_xlabel("step", loc="right")
    for axis in (above, below):
        axis.grid(alpha=0.3)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    pyplot.close(figure)


def _line(axis: Any, history: Sequence[Mapping[str, Any]], name: str, label: str, **how: Any) -> None:
    points = [(entry["step"], entry[name]) for entry in history if isinstance(entry.get(name), int | float)]
    if points:
        axis.plot([step for step, _ in points], [value for _, value in points], label=label, **how)
