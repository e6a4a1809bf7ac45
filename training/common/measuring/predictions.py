"""Writes and draws a model's answers to training samples, for people to look at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from eval.actions import Action
from eval.actions.geometry import Screen
from eval.agents.base import Agent, Decision
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


WIDE = 480  # pixels: small screenshots are enlarged by a whole factor to about this width, large ones scaled down
TARGET, WRONG = (20, 130, 50), (200, 30, 30)
LINE = 12  # pixels per line of the caption


def draw(sample: Sample, decision: Decision, *, right: bool) -> Image.Image:
    """The step's screenshot with the target's point (green circle), the prediction's (a cross, green if `right`, else
    red) and both texts."""
    predicted = TARGET if right else WRONG
    frame = sample.asked()[0].image
    if frame.width < WIDE:
        factor = max(1, WIDE // frame.width)
        frame = frame.resize((frame.width * factor, frame.height * factor), Image.Resampling.NEAREST)
    else:
        frame = frame.resize((WIDE, round(frame.height * WIDE / frame.width)))
    columns = frame.width // 6 - 2  # characters that a line of the caption holds
    lines = [
        (line, colour)
        for text, colour in (
            (sample.episode.instruction if sample.episode else "", (0, 0, 0)),
            (f"target:    {sample.target}", TARGET),
            (f"predicted: {decision.response}", predicted),
        )
        for line in _wrapped(text, columns)
    ]
    picture = Image.new("RGB", (frame.width, frame.height + LINE * len(lines) + 8), (255, 255, 255))
    picture.paste(frame, (0, 0))
    canvas = ImageDraw.Draw(picture)
    if (point := _point(sample.step.action if sample.step else None, frame)) is not None:
        x, y = point
        canvas.ellipse((x - 10, y - 10, x + 10, y + 10), outline=TARGET, width=3)
    if (point := _point(decision.action, frame)) is not None:
        x, y = point
        canvas.line((x - 8, y - 8, x + 8, y + 8), fill=predicted, width=3)
        canvas.line((x - 8, y + 8, x + 8, y - 8), fill=predicted, width=3)
    for index, (line, colour) in enumerate(lines):
        canvas.text((6, frame.height + 4 + LINE * index), line, fill=colour, font=ImageFont.load_default_imagefont())
    return picture


def _point(action: Action | None, frame: Image.Image) -> tuple[int, int] | None:
    if action is None or action.point is None:
        return None
    return Screen(frame.width, frame.height).from_norm(*action.point)


def _wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most `columns` characters that the built-in font (Latin-1) can draw; three at most."""
    plain = "".join(char if char.isprintable() and ord(char) < 256 else "?" for char in text.replace("\n", " "))
    return [plain[start : start + columns] for start in range(0, len(plain), columns)][:3]
