"""Writes and draws a model's answers to training samples, for people to look at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from eval.agents.base import Agent, Decision
from training.common.measuring.answer_pictures import draw
from training.common.measuring.in_training import Scores, asked, is_right, judged, spread
from training.data.samples import Sample


def predict(agent: Agent, samples: Sequence[Sample], count: int, folder: Path) -> Scores:
    """Has the agent answer `count` evenly spread samples; writes predictions.jsonl and a picture of each into `folder`.
    Samples from chats (not from episodes) are skipped; if there are no others, nothing is written."""
    chosen, decisions = asked(agent, spread(samples, count))
    if not chosen:
        return {}
    write_drawn(enumerate(zip(chosen, decisions, strict=True)), folder)
    return judged(chosen, decisions)


def write_drawn(answers: Iterable[tuple[int, tuple[Sample, Decision]]], folder: Path) -> None:
    """Writes predictions.jsonl and a picture of each numbered answer to a step of the training data into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (sample, decision) in answers:
        name, right = f"{number:03d}.png", is_right(sample, decision)
        draw(sample, decision, right=right).save(folder / name)
        told = {"picture": name, "target": sample.target, "predicted": decision.response}
        lines.append({**told, "split": "training data", "right": right})
    (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
