"""The report as one HTML page, from what `collect` read. Pure: the same data gives the same bytes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from launcher.report.collect import AttemptLine, Report, collect
from launcher.report.html import Markup, data, join, tag
from launcher.report.metrics import Curves
from launcher.report.replays import FINAL_SCREEN, Replay
from launcher.report.svg import Estimate, Series, curves, estimates
from launcher.results.compare import Comparison
from launcher.results.facts import Facts
from launcher.results.files import write_whole
from launcher.results.rows import Row, arrange
from launcher.results.text import difference, interval, is_rate, number, probability
from launcher.selection import Selection
from launcher.store.base import Store

STATES = {"succeeded": "good", "failed": "bad", "cancelled": "bad"}
TINY = 640  # pixels of width up to which a screen is enlarged with its pixels sharp


def render(report: Report) -> str:
    """The whole page."""
    sections = [
        _head(report),
        *(_hero(one) for one in report.comparisons),
        _results(report),
        _curves(report.curves),
        _replays(report),
        _samples(report),
        _attempts(report),
        _provenance(report),
    ]
    assets = files("launcher.report")
    style = assets.joinpath("page.css").read_text("utf-8")
    script = assets.joinpath("page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{report.title} · Slipway"),
        tag("style", Markup(style)),
    )
    footer = tag("footer", f"Slipway · read from {report.store} · every figure comes from verified files in that store")
    body = tag("body", tag("main", *filter(None, sections), footer), tag("script", Markup(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def write(store: Store, selection: Selection, path: Path) -> None:
    """Reads the runs and writes their page. Raises BadInput where the file can not be written."""
    write_whole(path, render(collect(store, selection)).encode())


def when(seconds: float | None) -> str:
    if not seconds:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def badge(text: str, kind: str = "") -> Markup:
    return tag("span", text, class_=f"badge {kind}".strip())


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int] = ()) -> Markup:
    """A table; columns in `right` are numbers. A cell that is Markup of a `td` stands as it is."""

    def cell(index: int, value: Any) -> Markup:
        if isinstance(value, Markup) and value.startswith("<td"):
            return value
        return tag("td", value, class_="n" if index in right else None)

    top = tag("tr", *(tag("th", name, class_="n" if k in right else None) for k, name in enumerate(head)))
    lines = [tag("tr", *(cell(k, value) for k, value in enumerate(row))) for row in rows]
    return tag("div", tag("table", tag("thead", top), tag("tbody", *lines)), class_="scroll")


def _head(report: Report) -> Markup:
    facts = report.facts
    done = sum(one.state == "succeeded" for one in facts)
    state = "all succeeded" if done == len(facts) else f"{done} of {len(facts)} succeeded"
    words = [
        f"{len(facts)} runs, {state}" if len(facts) > 1 else facts[0].state,
        f"{duration(sum(one.seconds for one in facts))} of running",
    ]
    words += report.groups
    ended = max((one.finished or 0.0 for one in facts), default=0.0)
    if ended:
        words.append(when(ended))
    return join(
        [
            tag("p", "Slipway report", class_="kicker"),
            tag("h1", report.title),
            tag("p", " · ".join(words), class_="lede"),
        ]
    )


def _hero(one: Comparison) -> Markup | None:
    if one.value_a is None or one.value_b is None or one.difference is None:
        return None
    lines = [difference(one.difference, one.metric)]
    if one.p is not None:
        lines.append(f"exact McNemar {probability(one.p)}")
    counts = (
        f"{one.pairs} pairs of tasks: {one.gained} gained, {one.lost} lost, {one.pairs - one.gained - one.lost} equal"
    )
    tasks = "task" if one.left_out == 1 else "tasks"
    left_out = f"{one.left_out} {tasks} left out: {_left_out(one)}" if one.left_out else None
    figures = tag(
        "div",
        tag("h3", f"{one.metric.capitalize()}: {one.a} → {one.b}"),
        tag(
            "div",
            tag("span", number(one.value_a.value, one.metric), class_="from"),
            tag("span", "→", class_="arrow"),
            number(one.value_b.value, one.metric),
            class_="big",
        ),
        tag("p", "; ".join(lines), class_="lede"),
        tag("p", counts, class_="note"),
        tag("p", left_out, class_="note") if left_out else None,
    )
    chart = None
    if one.p is not None:
        sides = [(one.a, one.value_a), (one.b, one.value_b)]
        label = f"{one.metric} with 95 % intervals"
        chart = tag("div", estimates([Estimate(name, v.value, v.low, v.high) for name, v in sides], label))
    return tag("div", tag("div", figures, chart, class_="hero"), class_="card", style="margin-top:24px")


def _left_out(one: Comparison) -> str:
    parts = [
        (len(one.only_a), f"only in {one.a}"),
        (len(one.only_b), f"only in {one.b}"),
        (len(one.infra_a), f"infrastructure failed in {one.a}"),
        (len(one.infra_b), f"infrastructure failed in {one.b}"),
        (len(one.unscored), f"without {one.metric}"),
    ]
    return ", ".join(what if count == one.left_out else f"{count} {what}" for count, what in parts if count)


def _results(report: Report) -> Markup | None:
    measured = [row for row in arrange(report.rows) if row.metric is not None]
    problems = [row for row in report.rows if row.metric is None]
    if not measured and not problems:
        return None
    blocks: list[Markup] = [tag("h2", "Results")]
    titles = list(dict.fromkeys(map(_benchmark, measured)))
    for title in titles:
        rows = [row for row in measured if _benchmark(row) == title]
        blocks.append(tag("div", tag("h3", title), _metric_table(rows), class_="card"))
    if problems:
        lines = [
            [row.facts.name, row.facts.run, badge(row.facts.state, STATES.get(row.facts.state, "")), row.problem]
            for row in problems
        ]
        blocks.append(
            tag("div", tag("h3", "Runs without results"), table(["name", "run", "state", "why"], lines), class_="card")
        )
    return tag("div", *blocks, class_="stack")


def _benchmark(row: Row) -> str:
    metric = row.metric
    assert metric is not None
    return " · ".join(filter(None, (f"{metric.benchmark} {metric.version}".strip(), metric.split)))


def _metric_table(rows: Sequence[Row]) -> Markup:
    agents = any(row.metric and row.metric.agent for row in rows)
    lines = []
    last = ""
    for row in rows:
        metric = row.metric
        assert metric is not None
        line: list[Any] = [metric.metric if metric.metric != last else "", row.facts.name]
        if agents:
            line.append(metric.agent)
        bounds = interval(metric.ci_low, metric.ci_high, metric.metric).replace("-", "–")
        strong = metric.metric == "success"
        value = number(metric.value, metric.metric)
        line += [
            tag("b", value) if strong else value,
            bounds,
            metric.n if metric.n is not None else "–",
            metric.infra_failures,
        ]
        line.append(f"{row.facts.seconds / 60:.1f}")
        lines.append(line)
        last = metric.metric
    head = ["metric", "run", *(["agent"] if agents else []), "value", "95 % interval", "n", "infra", "minutes"]
    return table(head, lines, right=range(len(head) - 5, len(head)))


def _curves(found: Sequence[Curves]) -> Markup | None:
    if not found:
        return None
    cards = []
    for one in found:
        last = one.series[0].points[-1][1]
        label = f"{one.metric} over steps"
        legend = None
        if len(one.series) > 1:
            legend = tag(
                "div",
                *(tag("span", tag("i"), series.label, class_=f"s{k % 6}") for k, series in enumerate(one.series)),
                class_="legend",
            )
        aside = (
            f"last {number(last, one.metric) if is_rate(one.metric) else f'{last:.4g}'}" if len(one.series) == 1 else ""
        )
        note = tag("p", one.note, class_="note") if one.note else None
        title = tag("header", tag("h3", one.metric), tag("span", aside))
        cards.append(tag("div", title, _chart(one.series, label), legend, note, class_="card chart"))
    runs = sorted({series.label for one in found for series in one.series})
    note = tag("p", f"From {runs[0]}.", class_="note") if len(runs) == 1 else None
    return tag("div", tag("h2", "Curves"), note, tag("div", *cards, class_="grid2"))


def _chart(series: Sequence[Series], label: str) -> Markup:
    return curves(series, label)


def _replays(report: Report) -> Markup | None:
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
    actions = sum(step.text != FINAL_SCREEN for step in replay.steps)
    facts = [head.task_id, f"seed {head.seed}" if head.seed is not None else "", f"{actions} actions", head.agent]
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
    left = tag("div", tag("div", picture, overlay, class_="stage tiny" if w <= TINY else "stage"), controls)
    return tag(
        "figure",
        tag(
            "header",
            state,
            tag("b", head.instruction or head.goal),
            tag("p", " · ".join(filter(None, facts)), class_="note"),
        ),
        tag("div", left, tag("ol", *items, class_="steps"), class_="body"),
        data(payload),
        class_="replay card",
        data_replay=True,
    )


def _samples(report: Report) -> Markup | None:
    if not report.samples:
        return None
    figures = [
        tag("figure", tag("img", src=one.uri, alt=one.caption), tag("figcaption", one.caption))
        for one in report.samples
    ]
    return tag("div", tag("h2", "Sample predictions"), tag("div", *figures, class_="pictures"))


def _attempts(report: Report) -> Markup | None:
    lines = report.attempts
    if not lines:
        return None
    begin = min(one.started for one in lines)
    end = max(max(one.ended for one in lines), begin + 1e-3)
    rows = []
    for one in lines:
        rows.append(
            [
                one.name,
                one.number,
                _lane(one, begin, end),
                duration(one.ended - one.started),
                badge(one.reason, "good" if one.reason == "succeeded" else "bad" if one.final else ""),
                one.message,
            ]
        )
    title = f"From {when(begin)} to {when(end)}."
    head = ["run", "attempt", "", "took", "ended", ""]
    note = tag("p", title, class_="note")
    return tag("div", tag("h2", "Time line"), note, tag("div", table(head, rows, right=(1, 3)), class_="card"))


def _lane(one: AttemptLine, begin: float, end: float) -> Markup:
    left = 100 * (one.started - begin) / (end - begin)
    width = 100 * (one.ended - one.started) / (end - begin)
    kind = "good" if one.reason == "succeeded" else "live" if not one.final else "bad"
    bar = tag("i", class_=kind, style=f"left:{left:.2f}%;width:{min(width, 100 - left):.2f}%")
    return tag("td", tag("div", bar, class_="lane"), class_="time")


def _provenance(report: Report) -> Markup:
    items = [_run(one) for one in report.facts]
    parts = [tag("h2", "Provenance"), tag("div", *items, class_="card stack")]
    if report.problems:
        parts.append(tag("h3", "Not shown, and why", style="margin-top:22px"))
        parts.append(tag("div", *(tag("p", line, class_="note") for line in report.problems)))
    return join(parts)


def _run(one: Facts) -> Markup:
    commit = f"{one.git_commit}{' with uncommitted changes' if one.git_dirty else ''}" if one.git_commit else "unknown"
    resources = one.job.roles[one.job.leading].resources
    facts: list[tuple[str, Any]] = [
        ("work", tag("span", one.work, class_="mono")),
        ("environment", tag("span", one.environment or "unknown", class_="mono")),
        ("git commit", tag("span", commit, class_="mono")),
        *((f"data {name}", tag("span", digest, class_="mono")) for name, digest in sorted(one.data.items())),
        (
            "where",
            f"{one.job.backend}, {resources.cpus:g} CPUs" + (f", {resources.gpus} GPUs" if resources.gpus else ""),
        ),
        ("took", duration(one.seconds) + (f", {one.gpu_hours:.2f} GPU hours" if one.gpu_hours else "")),
    ]
    if one.cost is not None:
        facts.append(("cost", f"{one.cost:.2f} {one.currency}"))
    if one.finished:
        facts.append(("ended", when(one.finished)))
    if one.message:
        facts.append(("message", one.message))
    summary = tag("summary", tag("span", one.run, class_="mono"), badge(one.state, STATES.get(one.state, "")))
    definitions = [part for name, value in facts for part in (tag("dt", name), tag("dd", value))]
    return tag("details", summary, tag("dl", *definitions, style="margin:10px 0 4px"))
