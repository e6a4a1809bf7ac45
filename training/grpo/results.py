"""Writes the results of a GRPO training: summary, drawn answers, curves, and the reason of an early stop."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from eval.actions import ParseError
from eval.agents.base import Decision
from eval.scores.stats import rate, ratio
from eval.scores.summary import MetricRow, row
from training.common.measuring.measured_weights import SAMPLED, write_measured
from training.grpo.config import GrpoConfig
from training.grpo.prompts import Prompts
from training.grpo.tally import RewardTally
from training.rewards import Reward
from training.rewards.builtin import Builtin


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
    from training.common.measuring.predictions import draw as picture

    folder.mkdir(parents=True, exist_ok=True)
    count = min(count, len(attempts))
    lines = []
    for place, (number, attempt) in enumerate(attempts[i * len(attempts) // count] for i in range(count)):
        sample = prompts[number]
        if sample.episode is None:
            continue
        why = str(attempt.parsed) if isinstance(attempt.parsed, ParseError) else None
        name = f"{place:03d}.png"
        picture(sample, Decision(attempt.text, attempt.action, parse_error=why)).save(folder / name)
        lines.append({"picture": name, "target": sample.target, "predicted": attempt.text})
    (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


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
