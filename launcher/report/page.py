"""The report as one HTML page, from the data of `collect`. The same data gives the same bytes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from launcher.report.collect import Report, collect
from launcher.report.episodes import TEXT_BYTES, cut_texts
from launcher.report.html import Markup, badge, duration, join, table, tag, when
from launcher.report.listing import episode_list
from launcher.report.pictures import ReportPictures
from launcher.report.sections import curve_charts, plots, samples, time_line
from launcher.report.side_by_side import side_by_side
from launcher.report.svg import RateEstimate, estimates
from launcher.results.compare import Comparison
from launcher.results.facts import Facts
from launcher.results.files import write_whole
from launcher.results.rows import ResultRow, arrange
from launcher.results.text import FEW_CLUSTERS, difference, few_clusters, interval, is_rate, money, number, probability
from launcher.selection.select import Selection
from launcher.spec.code.own_files import MARK
from launcher.spec.prices.rates import Prices
from launcher.store.base import Store

MOST_BYTES = 20 * 1000 * 1000  # of the page
SECTIONS = Markup("\0")  # where they come; no text has this character (`clean`)
STATES = {"succeeded": "good", "failed": "bad", "cancelled": "bad"}


def render(report: Report) -> list[bytes]:
    """The page in pieces, UTF-8: of a page of 20 MB no second copy is made."""
    assets = files("launcher.report")
    style = assets.joinpath("page.css").read_text("utf-8")
    script = assets.joinpath("page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    images = "data: file: 'self'" if report.pictures else "data:"
    policy = f"default-src 'none'; img-src {images}; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Markup(MARK),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{report.title} · Slipway"),
        tag("style", Markup(style)),
    )
    footer = tag("footer", f"Slipway · read from {report.store} · every figure comes from verified files in that store")
    body = tag("body", tag("main", SECTIONS, footer), tag("script", Markup(script)))
    before, after = f"<!doctype html>\n{tag('html', head, body, lang='en')}\n".split(SECTIONS)
    return [before.encode(), *_with_contents(_sections(report)), after.encode()]


def _sections(report: Report) -> Iterator[Markup | None]:
    yield _head(report)
    yield from map(_hero, report.comparisons)
    for section in (_results, side_by_side):
        yield section(report)
    yield curve_charts(report.curves)
    for section in (episode_list, plots, samples, time_line, _provenance):
        yield section(report)


def _with_contents(sections: Iterable[Markup | None]) -> list[bytes]:
    """The sections, and after the first, which is the title, links to the others; each begins with its heading."""
    out: list[bytes] = []
    links: list[Markup] = []
    for section in filter(None, sections):
        place = len(out)
        if place and (heading := re.search(r"<h2>(.*?)</h2>", section, re.DOTALL)):
            links.append(tag("a", Markup(heading[1]), href=f"#part-{place}"))
            out.append(re.sub("<h2>", f'<h2 id="part-{place}">', section, count=1).encode())
        else:
            out.append(section.encode())
    if len(links) > 1:
        out.insert(1, tag("nav", *links, class_="contents", aria_label="contents").encode())
    return out


def write(store: Store, selection: Selection, path: Path, prices: Prices | None = None) -> Report:
    """Reads the runs and writes their page; gives what it shows. `prices`: the profile's.

    Pictures that would make the page too large go into a folder beside it. A page of more than MOST_BYTES has shorter
    texts. Raises BadInput if a file cannot be written.
    """
    pictures = ReportPictures(path.parent / f"{path.stem}-pictures")
    report = collect(store, selection, prices, pictures)
    pieces = render(report)
    room = TEXT_BYTES
    while sum(map(len, pieces)) > MOST_BYTES and room > TEXT_BYTES // 100:
        room //= 4
        episodes, most = cut_texts(report.episodes, room)
        if most == 0:
            continue  # not its texts make it large
        line = f"the page would be too large: of each action and thought {most} characters are shown"
        report = replace(report, episodes=episodes, problems=[*report.problems, line])
        pieces = render(report)
    write_whole(path, *pieces)
    pictures.tidy()
    return report


def _head(report: Report) -> Markup:
    facts = report.facts
    done = sum(run_facts.state == "succeeded" for run_facts in facts)
    state = "all succeeded" if done == len(facts) else f"{done} of {len(facts)} succeeded"
    words = [
        f"{len(facts)} runs, {state}" if len(facts) > 1 else facts[0].state,
        f"{duration(sum(run_facts.seconds for run_facts in facts))} of running",
    ]
    words += report.groups
    ended = max((run_facts.finished or 0.0 for run_facts in facts), default=0.0)
    if ended:
        words.append(when(ended))
    return join(
        [
            tag("p", "Slipway report", class_="kicker"),
            tag("h1", report.title),
            tag("p", " · ".join(words), class_="lede"),
        ]
    )


def _hero(comparison: Comparison) -> Markup | None:
    if comparison.value_a is None or comparison.value_b is None or comparison.difference is None:
        return None
    lines = [difference(comparison.difference, comparison.metric)]
    if comparison.p is not None:
        lines.append(f"{comparison.test} {probability(comparison.p)}")
    equal = comparison.pairs - comparison.gained - comparison.lost
    clusters = f" in {comparison.clusters} clusters" if comparison.by_cluster else ""
    counts = (
        f"{comparison.pairs} pairs of tasks{clusters}: "
        f"{comparison.gained} gained, {comparison.lost} lost, {equal} equal"
    )
    tasks = "task" if comparison.left_out == 1 else "tasks"
    left_out = f"{comparison.left_out} {tasks} left out: {_left_out(comparison)}" if comparison.left_out else None
    figures = tag(
        "div",
        tag("h2", f"{comparison.metric.capitalize()}: {comparison.a} → {comparison.b}"),
        tag(
            "div",
            tag("span", number(comparison.value_a.value, comparison.metric), class_="from"),
            tag("span", "→", class_="arrow"),
            number(comparison.value_b.value, comparison.metric),
            class_="big",
        ),
        tag("p", "; ".join(lines), class_="lede"),
        tag("p", counts, class_="note"),
        tag("p", left_out, class_="note") if left_out else None,
        *(tag("p", note, class_="note") for note in comparison.notes),
    )
    chart = None
    if is_rate(comparison.metric):  # the axis is in per cent
        sides = [(comparison.a, comparison.value_a), (comparison.b, comparison.value_b)]
        label = f"{comparison.metric} with 95 % intervals"
        chart = tag("div", estimates([RateEstimate(name, v.value, v.low, v.high) for name, v in sides], label))
    return tag("div", tag("div", figures, chart, class_="hero"), class_="card", style="margin-top:24px")


def _left_out(comparison: Comparison) -> str:
    parts = [
        (len(comparison.only_a), f"only in {comparison.a}"),
        (len(comparison.only_b), f"only in {comparison.b}"),
        (len(comparison.infra_a), f"infrastructure failed in {comparison.a}"),
        (len(comparison.infra_b), f"infrastructure failed in {comparison.b}"),
        (len(comparison.not_run_a), f"could not run in {comparison.a}"),
        (len(comparison.not_run_b), f"could not run in {comparison.b}"),
        (len(comparison.unscored), f"without {comparison.metric}"),
        (len(comparison.other_task), "with another judge, other programs or another desktop"),
    ]
    return ", ".join(
        reason if count == comparison.left_out else f"{count} {reason}" for count, reason in parts if count
    )


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


def _benchmark(row: ResultRow) -> str:
    metric = row.metric
    assert metric is not None
    return " · ".join(filter(None, (f"{metric.benchmark} {metric.version}".strip(), metric.split)))


def _metric_table(rows: Sequence[ResultRow]) -> Markup:
    agents = any(row.metric and row.metric.agent for row in rows)
    priced = any(row.cost_per_solved is not None for row in rows)
    lines = []
    last = ""
    for row in rows:
        metric = row.metric
        assert metric is not None
        line: list[Any] = [metric.metric if metric.metric != last else "", row.facts.name]
        if agents:
            line.append(metric.agent)
        bounds = interval(metric.ci_low, metric.ci_high, metric.metric).replace("-", "–")
        bounds += " *" if few_clusters(metric) else ""
        strong = metric.metric in ("success", "success/feasible", "success/infeasible")
        value = number(metric.value, metric.metric)
        line += [
            tag("b", value) if strong else value,
            bounds,
            metric.n if metric.n is not None else "–",
            metric.infra_failures,
        ]
        line.append(f"{row.facts.seconds / 60:.1f}")
        if priced:
            line.append(money(row.cost_per_solved, row.facts.currency) or "")
        lines.append(line)
        last = metric.metric
    head = ["metric", "run", *(["agent"] if agents else []), "value", "95 % interval", "n", "infra", "minutes"]
    head += ["cost per solved"] if priced else []
    figures = table(head, lines, right=range(head.index("value"), len(head)), grouped=True)
    if any(row.metric and few_clusters(row.metric) for row in rows):
        return join([figures, tag("p", f"* {FEW_CLUSTERS}", class_="note")])
    return figures


def _provenance(report: Report) -> Markup:
    items = [_run(run_facts) for run_facts in report.facts]
    parts = [tag("h2", "Provenance"), tag("div", *items, class_="card stack")]
    if report.problems:
        parts.append(tag("h3", "Not shown, and why", style="margin-top:22px"))
        parts.append(tag("div", *(tag("p", line, class_="note") for line in report.problems)))
    return join(parts)


def _run(run_facts: Facts) -> Markup:
    commit = (
        f"{run_facts.git_commit}{' with uncommitted changes' if run_facts.git_dirty else ''}"
        if run_facts.git_commit
        else "unknown"
    )
    resources = run_facts.job.roles[run_facts.job.leading].resources
    facts: list[tuple[str, Any]] = [
        ("work", tag("span", run_facts.work, class_="mono")),
        ("environment", tag("span", run_facts.environment or "unknown", class_="mono")),
        ("git commit", tag("span", commit, class_="mono")),
        *((f"data {name}", tag("span", digest, class_="mono")) for name, digest in sorted(run_facts.data.items())),
        (
            "where",
            f"{run_facts.job.backend}, {resources.cpus:g} CPUs"
            + (f", {resources.gpus} GPUs" if resources.gpus else ""),
        ),
        (
            "took",
            duration(run_facts.seconds) + (f", {run_facts.gpu_hours:.2f} GPU hours" if run_facts.gpu_hours else ""),
        ),
    ]
    if run_facts.cost is not None:
        facts.append(("cost", money(run_facts.cost, run_facts.currency)))
    if run_facts.finished:
        facts.append(("ended", when(run_facts.finished)))
    if run_facts.message:
        facts.append(("message", run_facts.message))
    summary = tag(
        "summary", tag("span", run_facts.run, class_="mono"), badge(run_facts.state, STATES.get(run_facts.state, ""))
    )
    definitions = [part for name, value in facts for part in (tag("dt", name), tag("dd", value))]
    return tag("details", summary, tag("dl", *definitions, style="margin:10px 0 4px"))
