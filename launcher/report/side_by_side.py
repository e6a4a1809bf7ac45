"""The section that sets agents side by side: success by program, difficulty and task, why episodes failed, success
against the number of answers, and what a solved task took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from launcher.report.agents import (
    AgentResults,
    SolvedShare,
    by_benchmark,
    effort,
    failure_counts,
    grouped,
    solved,
    solved_within,
)
from launcher.report.collect import Report
from launcher.report.html import Markup, duration, join, table, tag
from launcher.report.svg import RateEstimate, Series, curves, estimates
from launcher.results.identity import mixed
from launcher.results.text import money

MANY: Final = 12  # rows of a table that is shown open
WITHIN: Final = (
    "The share of all tasks solved by an episode of at most so many answers, read from longer episodes. It is a lower "
    "bound of the success with such a limit, because an agent that knows of it may hurry: not for comparison with "
    "published scores."
)


def side_by_side(report: Report) -> Markup | None:
    parts: list[Markup] = []
    for title, agents in by_benchmark(report.agents):
        cards = list(filter(None, (_success(agents), _budget(agents), _failures(agents), _effort(agents))))
        tables = [_groups(agents, name) for name in ("program", "difficulty", "task")]
        if cards or any(tables) or any(each.verified for each in agents):
            lines = [
                *mixed([(each.label, each.tasks) for each in agents]),
                *(f"{each.label}: {each.verified}." for each in agents if each.verified),
            ]
            notes = [tag("p", line, class_="note") for line in lines]
            parts.append(tag("div", tag("h3", title), *notes, *filter(None, (*cards, *tables)), class_="stack"))
    if not parts:
        return None
    words = (
        "A task that the infrastructure failed, or that cannot run on this machine, has no score, and counts as not "
        "solved; cells count them as infra and as not run."
    )
    note = tag("p", words, class_="note")
    return tag("div", tag("h2", "Agents side by side"), note, *parts)


def success_estimates(agents: Sequence[AgentResults]) -> list[RateEstimate]:
    found = [(agent.label, solved(agent.tasks).interval) for agent in agents]
    return [RateEstimate(label, value.value, value.low, value.high) for label, value in found if value is not None]


def budget_series(agents: Sequence[AgentResults]) -> list[Series]:
    """A curve for each agent, all to the longest episode of any: after its own longest an agent solves no more."""
    found = [(agent.label, points) for agent in agents if len(points := solved_within(agent.tasks)) > 1]
    longest = max((points[-1][0] for _, points in found), default=0.0)
    return [
        Series(label, points if points[-1][0] == longest else [*points, (longest, points[-1][1])])
        for label, points in found
    ]


def _success(agents: Sequence[AgentResults]) -> Markup | None:
    rows = success_estimates(agents)
    if len(rows) < 2:
        return None
    chart = estimates(rows, "success with 95 % intervals")
    return tag("div", tag("h4", "Success"), tag("div", chart, class_="narrow"), class_="card")


def _budget(agents: Sequence[AgentResults]) -> Markup | None:
    series = budget_series(agents)
    if not series:
        return None
    chart = curves(series, "success against the number of answers", x_label="answers", stepped=True, top=1.0)
    return tag(
        "div",
        tag("h4", "Success within a number of answers"),
        tag("p", WITHIN, class_="note"),
        tag("div", chart, legend(series), class_="narrow"),
        class_="card",
    )


def legend(series: Sequence[Series]) -> Markup:
    return tag(
        "div",
        *(tag("span", tag("i"), one.label, class_=f"s{k % 6}") for k, one in enumerate(series)),
        class_="legend",
    )


def _failures(agents: Sequence[AgentResults]) -> Markup | None:
    rows = failure_counts(agents)
    if not rows:
        return None
    lines = [[row.kind, *(count or "" for count in row.counts), _rules(row.rules)] for row in rows]
    head = ["class", *(agent.label for agent in agents), "rule"]
    words = "Each episode that was not solved has the class of the first rule that fits its records."
    return tag(
        "div",
        tag("h4", "Why episodes failed"),
        tag("p", words, class_="note"),
        table(head, lines, right=range(1, len(agents) + 1)),
        class_="card",
    )


def _rules(rules: Sequence[str]) -> Markup:
    return tag("td", join([tag("div", rule) for rule in rules]), class_="note words")


def _money(value: float | None, unpriced: int) -> str:
    text = money(value, "USD")
    return "–" if text is None else f"≥ {text}" if unpriced else text


def _effort(agents: Sequence[AgentResults]) -> Markup | None:
    found = [(agent, solved(agent.tasks), effort(agent.tasks)) for agent in agents]
    if not any(spent.seconds or spent.steps for _, _, spent in found):
        return None
    priced = any(spent.cost is not None for _, _, spent in found)
    counted = any(spent.tokens is not None for _, _, spent in found)
    head = ["agent", "solved", "time per solved", "answers", "answers of solved"]
    head += [*(["tokens"] if counted else []), *(["cost", "cost per solved"] if priced else [])]
    lines = []
    for agent, share, spent in found:
        line: list[Any] = [agent.label, f"{share.solved} of {share.n}"]
        line.append("–" if spent.seconds_per_solved is None else duration(spent.seconds_per_solved))
        line += ["–" if value is None else f"{value:.1f}" for value in (spent.steps, spent.steps_of_solved)]
        line += ["–" if spent.tokens is None else f"{spent.tokens:,.0f}"] if counted else []
        line += [_money(value, spent.unpriced) for value in (spent.cost, spent.cost_per_solved)] if priced else []
        lines.append(line)
    words = "Time and cost of all episodes, failed ones included, divided by the tasks that were solved."
    if any(spent.unpriced for _, _, spent in found):
        words += " ≥: some answers have no cost in the records (the server told no tokens of them)."
    return tag(
        "div",
        tag("h4", "What a solved task took"),
        tag("p", words, class_="note"),
        table(head, lines, right=range(1, len(head))),
        class_="card",
    )


def _groups(agents: Sequence[AgentResults], dimension: str) -> Markup | None:
    groups = grouped(agents, dimension)
    if not groups:
        return None
    lines = [[name or "not told", *(_share(solved(part)) for part in parts)] for name, parts in groups]
    body = table([dimension, *(agent.label for agent in agents)], lines, right=range(1, len(agents) + 1))
    heading = f"By {dimension}"
    if len(lines) <= MANY:
        return tag("div", tag("h4", heading), body, class_="card")
    return tag("details", tag("summary", f"{heading}: {len(lines)}"), body, class_="card")


def _share(share: SolvedShare) -> Markup:
    """A cell: the rate, its interval, how many tasks."""
    if share.n == 0:
        return tag("td", "–", class_="n")
    bounds = ""
    if share.interval is not None and share.n > 1:
        bounds = f" ({100 * share.interval.low:.0f}–{100 * share.interval.high:.0f})"
    broken = f", {share.infra} infra" if share.infra else ""
    broken += f", {share.not_run} not run" if share.not_run else ""
    beside = ""
    if share.not_run and (ran := share.n - share.not_run):
        beside = f"of those that ran {100 * share.solved / ran:.0f} % · {share.solved}/{ran}"
    rate = tag("b", f"{100 * share.solved / share.n:.0f} %")
    words = join([f"{bounds} · {share.solved}/{share.n}{broken}", *([tag("br"), beside] if beside else [])])
    return tag("td", rate, tag("span", words, class_="faint"), class_="n")
