"""Sections of the page: curves, plots, sample predictions, the time line."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.report.collect import AttemptLine, Picture, Report
from launcher.report.html import Markup, badge, duration, table, tag, when
from launcher.report.metrics import Curves
from launcher.report.svg import curves


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


def plots(report: Report) -> Markup | None:
    return _gallery("Plots", report.plots, "pictures wide")


def samples(report: Report) -> Markup | None:
    return _gallery("Sample predictions", report.samples, "pictures")


def _gallery(title: str, pictures: Sequence[Picture], kind: str) -> Markup | None:
    if not pictures:
        return None
    figures = [
        tag("figure", tag("img", src=picture.uri, alt=picture.caption), _caption(picture)) for picture in pictures
    ]
    return tag("div", tag("h2", title), tag("div", *figures, class_=kind))


def _caption(picture: Picture) -> Markup:
    words = ", ".join(filter(None, (picture.caption, picture.split)))
    if picture.right is None:
        return tag("figcaption", words)
    mark = badge("right", "good") if picture.right else badge("wrong", "bad")
    return tag("figcaption", words, " ", mark)


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
    head = ["run", "attempt", "when", "took", "ended", "message"]
    note = tag("p", title, class_="note")
    return tag("div", tag("h2", "Time line"), note, tag("div", table(head, rows, right=(1, 3)), class_="card"))


def _lane(attempt: AttemptLine, begin: float, end: float) -> Markup:
    left = 100 * (attempt.started - begin) / (end - begin)
    width = 100 * (attempt.ended - attempt.started) / (end - begin)
    kind = "good" if attempt.reason == "succeeded" else "live" if not attempt.final else "bad"
    bar = tag("i", class_=kind, style=f"left:{left:.2f}%;width:{min(width, 100 - left):.2f}%")
    return tag("td", tag("div", bar, class_="lane"), class_="time")
