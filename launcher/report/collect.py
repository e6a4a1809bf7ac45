"""Reads everything that a report shows from the store. Unreadable data becomes a line of the report."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from launcher.errors import NotFound
from launcher.protocol.read import read_run
from launcher.protocol.view import AttemptView, RunView
from launcher.reasons import RULES
from launcher.report.agents import AgentResults, read_agents
from launcher.report.episodes import ShownEpisode, cut_texts, list_episodes
from launcher.report.metrics import Curves, RunMetrics, curves, read_metrics
from launcher.report.pictures import ReportPictures
from launcher.report.replays import picture_kind, smaller
from launcher.results.compare import Comparison
from launcher.results.facts import Facts, load_facts
from launcher.results.read import DamagedResults, StoredOutput, decode_lines, open_output
from launcher.results.rows import ResultRow, auto_compare, by_depth, load_rows
from launcher.selection.select import Selection
from launcher.spec.prices.rates import Prices
from launcher.store.base import Store

MAX_SAMPLES = 8
MAX_PLOTS = 12


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """One bar of the time line. Times are seconds since the epoch, by the clocks of the machines."""

    name: str
    number: int
    started: float
    ended: float
    reason: str
    message: str
    final: bool  # the attempt has ended


@dataclass(frozen=True)
class Picture:
    caption: str
    uri: str
    split: str = ""  # of a prediction: where the step came from
    right: bool | None = None  # None: not told


@dataclass(frozen=True)
class Report:
    title: str
    groups: Sequence[str]
    store: str
    facts: Sequence[Facts]
    rows: Sequence[ResultRow]
    comparisons: Sequence[Comparison]
    curves: Sequence[Curves]
    agents: Sequence[AgentResults]
    episodes: Sequence[ShownEpisode]
    pictures: str  # the folder beside the page that holds the replays' pictures; "": they are in the page
    plots: Sequence[Picture]  # results/plots/*.png
    samples: Sequence[Picture]  # results/samples/**.png
    attempts: Sequence[AttemptLine]
    problems: Sequence[str]


def collect(
    store: Store, selection: Selection, prices: Prices | None = None, pictures: ReportPictures | None = None
) -> Report:
    """Reads the runs of a selection, sorted by stage. `prices`: the profile's."""
    pictures = pictures or ReportPictures()
    runs = by_depth(selection.runs, selection.edges)
    facts = load_facts(store, runs, selection.names, prices)
    with ThreadPoolExecutor(8) as pool:
        # of each run's records only these are kept: those of 10,000 runs would take more memory than all else
        told = list(pool.map(lambda run_facts: _told(store, run_facts), facts))
    metrics = [metrics_of_run for metrics_of_run, _ in told]
    problems: list[str] = []
    for run_facts, metrics_of_run in zip(facts, metrics, strict=True):
        if metrics_of_run.unreadable:
            problems.append(f"{run_facts.name}: {metrics_of_run.unreadable} lines of metrics are not readable")
    charts, more = curves(
        (run_facts.name, metrics_of_run)
        for run_facts, metrics_of_run in zip(facts, metrics, strict=True)
        if metrics_of_run.values
    )
    if more:
        problems.append(f"{more} more metrics are in the store")
    outputs = _outputs(store, facts)
    agents = read_agents(outputs, problems)
    episodes, most = cut_texts(list_episodes(outputs, agents, pictures, problems))
    if most:
        problems.append(f"the page would be too large: of each action and thought {most} characters are shown")
    lines = [line for _, lines_of_run in told for line in lines_of_run]
    comparisons = auto_compare(store, facts)
    problems += comparisons.refused
    return Report(
        title=_title(facts, selection),
        groups=selection.groups,
        store=store.url,
        facts=facts,
        rows=load_rows(store, facts),
        comparisons=comparisons.shown,
        curves=charts,
        agents=agents,
        episodes=episodes,
        pictures=pictures.folder.name if pictures.beside and pictures.folder is not None else "",
        plots=_pictures(outputs, "plots/", MAX_PLOTS, problems),
        samples=_pictures(outputs, "samples/", MAX_SAMPLES, problems),
        attempts=lines,
        problems=problems,
    )


def _told(store: Store, run_facts: Facts) -> tuple[RunMetrics, list[AttemptLine]]:
    """The metrics of a run, and its lines of the time line."""
    view = read_run(store, run_facts.run)
    lines = _attempts(run_facts.name, view, run_facts.finished)
    return read_metrics(store, _source(store, run_facts, view)), lines


def _source(store: Store, run_facts: Facts, view: RunView) -> RunView:
    """The run whose metrics this run shows: another run if this run adopted its work."""
    run, _ = run_facts.source
    return view if run == run_facts.run else read_run(store, run)


def _title(facts: Sequence[Facts], selection: Selection) -> str:
    names = list(dict.fromkeys(run_facts.name for run_facts in facts))
    if len(names) == 1:
        return facts[0].run if len(facts) == 1 else names[0]
    firsts = {name.partition("-")[0] for name in names}
    shared = firsts.pop() if len(firsts) == 1 and all("-" in name for name in names) else ""  # `login`, of login-after
    if shared:
        names = [name.removeprefix(f"{shared}-") for name in names]
    if len(names) <= 6:
        return f"{shared}: {', '.join(names)}" if shared else ", ".join(names)
    return f"{shared}: {len(names)} jobs" if shared else f"{names[0]} and {len(names) - 1} more"


def _outputs(store: Store, facts: Sequence[Facts]) -> list[tuple[Facts, StoredOutput]]:
    pairs = []
    for run_facts in facts:
        if run_facts.state == "succeeded" and run_facts.evaluates:
            output = open_output(store, *run_facts.source)
            if output is not None:
                pairs.append((run_facts, output))
    return pairs


def _pictures(
    outputs: Sequence[tuple[Facts, StoredOutput]], folder: str, most: int, problems: list[str]
) -> list[Picture]:
    """The pictures of one folder of the results. Pictures in subfolders (earlier steps of a training) come last."""
    pictures: list[Picture] = []
    for run_facts, output in outputs:
        told: dict[str, Mapping[str, _Prediction]] = {}
        names = [name for name in output.files if name.startswith(folder) and name.endswith(".png")]
        for name in sorted(names, key=lambda name: (name.count("/"), name))[: most - len(pictures)]:
            try:
                body = output.read(name)
            except (DamagedResults, NotFound) as error:
                problems.append(str(error))
                continue
            body = smaller(body) if len(body) > 512 * 1024 else body
            kind = picture_kind(body)
            if kind is None:
                problems.append(f"{run_facts.name}: {name} is not a picture")
                continue
            uri = f"data:image/{kind};base64,{base64.b64encode(body).decode()}"
            caption = f"{run_facts.name}: {name.removeprefix(folder).removesuffix('.png')}"
            here, _, file = name.rpartition("/")
            if here not in told:
                told[here] = _predictions(output, f"{here}/predictions.jsonl", problems)
            said = told[here].get(file, _Prediction(file))
            pictures.append(Picture(caption, uri, said.split, said.right))
    return pictures


class _Prediction(msgspec.Struct, frozen=True):
    """A line of predictions.jsonl. Trainings of before told neither the split nor what is right."""

    picture: str
    split: str = ""
    right: bool | None = None


def _predictions(output: StoredOutput, path: str, problems: list[str]) -> Mapping[str, _Prediction]:
    """What is told of the pictures of one folder, by file name; nothing where no such file is."""
    if path not in output.files:
        return {}
    try:
        lines = decode_lines(output.read(path), _Prediction, output.prefix + path)
    except (DamagedResults, NotFound) as error:
        problems.append(str(error))
        return {}
    return {line.picture: line for line in lines}


def _attempts(name: str, view: RunView, finished: float | None) -> list[AttemptLine]:
    lines = []
    for attempt in view.computing:
        starts = [claim.time for claim in attempt.claims.values() if claim.time]
        ends = [end.ended for end in attempt.exits.values() if end.ended]
        ends += [beat.time for beat, _ in attempt.beats.values() if beat.time] if not ends else []
        if not starts and not ends:
            continue
        started = min(starts or ends)
        reason, message = _reason(attempt)
        latest = attempt is view.attempts[-1]
        over = bool(attempt.exits) or not latest or finished is not None
        lines.append(
            AttemptLine(
                name=name,
                number=attempt.number,
                started=started,
                ended=max(ends or [started]),
                reason=reason if attempt.exits else "lost" if over else "running",
                message=message,
                final=over,
            )
        )
    return lines


def _reason(attempt: AttemptView) -> tuple[str, str]:
    """(the worst of the ranks' reasons, its message)."""
    if not attempt.exits:
        return "", ""
    worst = max(attempt.exits.values(), key=lambda end: RULES[end.reason].severity)
    return str(worst.reason), worst.message
