"""The picture beside summary.json: the bars are as long as the values, and only rates are drawn."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from eval.scores.stats import Estimate, rate
from eval.scores.summary import MetricRow, row
from eval.scores.summary_file import FIRST, LEFT, OTHER, RIGHT, ROW, TOP, draw, write_summary


def metric(name: str, estimate: Estimate | None, agent: str = "agent", benchmark: str = "login") -> MetricRow:
    return row(name, estimate, benchmark=benchmark, version="1", split="test", infra=0, seed=0, agent=agent)


def lengths(body: bytes) -> list[float]:
    """How much of the axis the bar of each agent covers, counted in pixels above the line of its interval."""
    image = Image.open(io.BytesIO(body)).convert("RGB")
    colours = {tuple(bytes.fromhex(colour[1:])) for colour in (FIRST, OTHER)}
    rows = (image.height - TOP) // ROW
    above = [TOP + ROW * place + 25 for place in range(rows)]
    return [sum(image.getpixel((x, y)) in colours for x in range(image.width)) / (RIGHT - LEFT) for y in above]


def test_a_bar_is_as_long_as_the_value() -> None:
    rows = [metric("success", rate([part], [40]), f"agent {part}") for part in (0, 10, 31, 40)]
    body = draw(
        [*rows, metric("mean_steps", Estimate(3.0, 2.0, 4.0, 40)), metric("success", rate([1], [2]), "b", "other")]
    )
    assert body is not None
    assert [round(length, 2) for length in lengths(body)] == [0.0, 0.25, 0.78, 1.0]


def test_what_is_no_rate_has_no_picture(tmp_path: Path) -> None:
    write_summary(tmp_path / "summary.json", [metric("loss", Estimate(0.4, 0.3, 0.5, 40)), metric("success", None)])
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_many_agents_and_long_names_fit() -> None:
    body = draw([metric("success", rate([1], [2]), f"{'a long name ' * 9}{number}") for number in range(40)])
    assert body is not None
    assert len(lengths(body)) == 12
