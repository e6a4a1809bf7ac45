"""Sections of the page: curves, replays, sample predictions, the time line."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.report.collect import AttemptLine, Picture, Report
from launcher.report.html import Markup, data, tag
from launcher.report.metrics import Curves
from launcher.report.parts import badge, duration, table, when
from launcher.report.replays import FINAL_SCREEN, Replay
from launcher.report.svg import curves

STAGE_HEIGHT = 440  # pixels, the largest height of a screen
TINY = 640  # pixels; a screen up to this width is enlarged without smoothing


def curve_charts(charts: Sequence[Curves]) -> Markup | None:
    if not charts:
        return None
    cards = []
    for chart in charts:
        last = chart.series[0].points[-1][1]
        label = f"{chart.metric} over steps"
        legend = None
        if len(chart.series) > 1:
            legend = tag(
                "div",
                *(tag("span", tag("i"), series.label, class_=f"s{k % 6}") for k, series in enumerate(chart.series)),
                class_="legend",
            )
        figure = f"{last:,.0f}" if abs(last) >= 1000 else f"{last:.4g}"
        aside = f"last {figure}" if len(chart.series) == 1 else ""
        note = tag("p", chart.note, class_="note") if chart.note else None
        title = tag("header", tag("h3", chart.metric), tag("span", aside))
        cards.append(tag("div", title, curves(chart.series, label), legend, note, class_="card chart"))
    runs = sorted({series.label for chart in charts for series in chart.series})
    note = tag("p", f"From {runs[0]}.", class_="note") if len(runs) == 1 else None
    return tag("div", tag("h2", "Curves"), note, tag("div", *cards, class_="grid2"))


def replays(report: Report) -> Markup | None:
    if not report.replays:
        return None
    note = tag("p", f"Episodes of {report.replays_of}. The ring marks where the agent pointed.", class_="note")
    return tag("div", tag("h2", "Replays"), note, tag("div", *map(_replay, report.replays), class_="stack"))


def _replay(replay: Replay) -> Markup:
    head = replay.head
    if head.outcome != "scored":
        state = badge("infrastructure failed")
    elif head.success is None:
        state = badge("not judged") if head.score is None else badge(f"score {head.score:.3g}")
    else:
        state = badge("success", "good") if head.success else badge("failed", "bad")
    steps = sum(step.text != FINAL_SCREEN for step in replay.steps)
    facts = [head.task_id, f"seed {head.seed}" if head.seed is not None else "", f"{steps} steps", head.agent]
    if head.duration_ms is not None:
        facts.append(duration(head.duration_ms / 1000))
    if replay.left_out:
        facts.append(f"{replay.left_out} frames left out")
    w, h = head.screen
    items = [
        tag(
            "li",
            tag("span", index + 1),
            tag("code", step.text),
            tag("div", step.thought, class_="thought") if step.thought else None,
            tag("div", step.error, class_="error") if step.error else None,
        )
        for index, step in enumerate(replay.steps)
    ]
    first = next((step.frame for step in replay.steps if step.frame is not None), None)
    payload = {
        "screen": [w, h],
        "start": 0,
        "frames": replay.frames,
        "steps": [{"frame": s.frame, "text": s.text, "x": s.x, "y": s.y, "x2": s.x2, "y2": s.y2} for s in replay.steps],
    }
    picture = tag(
        "img", src=replay.frames[first] if first is not None else None, alt="screen at step 1", width=w, height=h
    )
    overlay = tag("svg", viewBox=f"0 0 {w} {h}", preserveAspectRatio="none", aria_hidden="true")
    last = len(replay.steps) - 1
    controls = tag(
        "div",
        tag("button", "Back", type="button"),
        tag("input", type="range", min=0, max=last, value=0, aria_label="step"),
        tag("button", "Next", type="button"),
        tag("output", f"1 / {last + 1}"),
        class_="controls",
    )
    stage = tag("div", picture, overlay, class_="stage tiny" if w <= TINY else "stage")
    left = tag("div", stage, controls)
    return tag(
        "figure",
        tag(
            "header",
            state,
            tag("b", head.instruction or head.goal),
            tag("p", " · ".join(filter(None, facts)), class_="note"),
        ),
        tag(
            "div", left, tag("ol", *items, class_="steps"), class_="body", style=f"--stage:{STAGE_HEIGHT * w / h:.0f}px"
        ),
        data(payload),
        class_="replay card",
        data_replay=True,
    )


def plots(report: Report) -> Markup | None:
    return _gallery("Plots", report.plots, "pictures wide")


def samples(report: Report) -> Markup | None:
    return _gallery("Sample predictions", report.samples, "pictures")


def _gallery(title: str, pictures: Sequence[Picture], kind: str) -> Markup | None:
    if not pictures:
        return None
    figures = [
        tag("figure", tag("img", src=picture.uri, alt=picture.caption), tag("figcaption", picture.caption))
        for picture in pictures
    ]
    return tag("div", tag("h2", title), tag("div", *figures, class_=kind))


def time_line(report: Report) -> Markup | None:
    lines = report.attempts
    if not lines:
        return None
    begin = min(attempt.started for attempt in lines)
    end = max(max(attempt.ended for attempt in lines), begin + 1e-3)
    rows = []
    for attempt in lines:
        rows.append(
            [
                attempt.name,
                attempt.number,
                _lane(attempt, begin, end),
                duration(attempt.ended - attempt.started),
                badge(attempt.reason, "good" if attempt.reason == "succeeded" else "bad" if attempt.final else ""),
                attempt.message,
            ]
        )
    title = f"From {when(begin)} to {when(end)}."
    head = ["run", "attempt", "", "took", "ended", ""]
    note = tag("p", title, class_="note")
    return tag("div", tag("h2", "Time line"), note, tag("div", table(head, rows, right=(1, 3)), class_="card"))


def _lane(attempt: AttemptLine, begin: float, end: float) -> Markup:
    left = 100 * (attempt.started - begin) / (end - begin)
    width = 100 * (attempt.ended - attempt.started) / (end - begin)
    kind = "good" if attempt.reason == "succeeded" else "live" if not attempt.final else "bad"
    bar = tag("i", class_=kind, style=f"left:{left:.2f}%;width:{min(width, 100 - left):.2f}%")
    return tag("td", tag("div", bar, class_="lane"), class_="time")
