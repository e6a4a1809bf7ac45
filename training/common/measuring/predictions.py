"""Writes and draws a model's answers to training samples, for people to look at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from eval.agents.base import Agent
from training.common.measuring.answer_pictures import draw
from training.common.measuring.in_training import Scores, asked, judged, spread
from training.data.samples import Sample


def predict(agent: Agent, samples: Sequence[Sample], count: int, folder: Path) -> Scores:
    """Has the agent answer `count` evenly spread samples; writes predictions.jsonl and a picture of each into `folder`.
    Samples from chats (not from episodes) are skipped; if there are no others, nothing is written."""
    chosen, decisions = asked(agent, spread(samples, count))
    if not chosen:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (sample, decision) in enumerate(zip(chosen, decisions, strict=True)):
        name = f"{number:03d}.png"
        draw(sample, decision).save(folder / name)
        lines.append({"picture": name, "target": sample.target, "predicted": decision.response})
    (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return judged(chosen, decisions)
