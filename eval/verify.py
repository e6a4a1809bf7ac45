"""Plays the recorded actions of an evaluation again, without its agent, and says which scores stand:
`python -m eval.verify RESULTS --config FILE`.

RESULTS is the folder of results of an evaluation, or of one of its baselines; FILE is the evaluation's configuration.
A score stands when the actions of its episode get the same score on a clean desktop. That shows what the actions earn,
not who chose them. --out gets verified.json (docs/reference/formats.md), and the records of the replays, with which the
same command goes on after an interruption. The exit code is 1 unless every score stands.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from eval import config as configuration
from eval.agents.base import Decision
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.config import help as config_help
from eval.desktop import ActionRefused, SetupFailed
from eval.environments.registry import environment, judge_of, tasks_of, written_options
from eval.episodes import Episode, EpisodeError, Step, ToolCall, jsonl, read_episode
from eval.records.earlier_results import Key, key_of, repeated, standing
from eval.records.task_record import EPISODES, RECORDS, TaskRecord, episode_id
from eval.rollout.limits import scoring_rules
from eval.rollout.loop import rollout
from eval.run import RunConfig
from eval.scores.judge_errors import read_errors
from eval.scores.summary import MetricRow, summarise

REPORT: Final = "verified.json"
SUMMARY: Final = "summary.json"
PAUSE_S: Final = 30.0  # the longest pause between two answers that a replay at the recorded pace repeats
Verdict = Literal[
    "stands", "differs", "contradicts", "other rules", "no episode", "not replayed", "missing", "not scored"
]
FAULTS: Final = ("differs", "contradicts", "other rules", "no episode", "not replayed", "missing")


class VerifiedTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The verdict on one record, or on a task without one.

    verdict   stands: a replay got the same score; differs: no replay did; contradicts: the record and its episode say
              different things; other rules: the configuration has another task, judge, version or rule; no episode:
              none was kept; not replayed: the infrastructure failed here; missing: the configuration has a task of
              which there is no record; not scored: the record has no score
    replayed  the score of each replay, until one was the same
    why       in words, where the score does not stand
    """

    task_id: str
    seed: int
    trial: int
    score: float | None
    verdict: Verdict
    replayed: list[float | None] = []
    why: str = ""


class Verification(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """verified.json.

    records  the sha256 of the tasks.jsonl that was verified
    scored   records with a score; `stand`: those of them whose score stands
    missing  tasks of the configuration without a record: who leaves out what failed has a better rate
    summary  the metrics of summary.json that the records do not give, in words; [] where they agree or there is none
    """

    benchmark: str
    agent: str
    records: str
    scored: int
    stand: int
    missing: int
    summary: list[str]
    tasks: list[VerifiedTask]

    @property
    def whole(self) -> bool:
        """Whether there are scores, all of them stand, no task is missing, and the summary is that of the records."""
        return 0 < self.stand == self.scored and not self.missing and not self.summary


@dataclass
class ReplayAgent:
    """An agent that gives the answers of recorded episodes again, and looks at nothing.

    paced  whether it waits between two answers as long as the recorded agent did, at most PAUSE_S
    """

    name: str
    episodes: Mapping[Key, Episode]
    paced: bool
    calls_tools: bool = field(default=True, init=False)

    async def run(self, computer: Computer) -> None:
        episode, before = self.episodes[key_of(computer.task)], None
        for step in episode.steps:
            if self.paced and before is not None and step.time is not None:
                await asyncio.sleep(min(PAUSE_S, max(0.0, step.time - before)))
            before = step.time
            with contextlib.suppress(ActionRefused):  # the step tells it
                await _answer(computer, step)
            if step.refused is not None:  # by a loop of an SDK, which is not here
                computer.refuse(step.refused)
        if (why := episode.metadata.get("agent_failure")) and not computer.failed:
            computer.stop(str(why))


async def _answer(computer: Computer, step: Step) -> None:
    """Gives one answer again. Raises ActionRefused where the desktop refuses something in it."""
    own = [call.name in computer.tools for call in step.calls]
    response = step.response or ""
    if not any(own):
        # what the desktop refused is tried again; what the answer itself made impossible is not
        refused = step.refused if step.action is None else None
        told = Decision(response, step.action, None, step.parse_error, refused, further_actions=step.further_actions)
        await computer.answer(told)
        return
    computer.begin(Decision(response, None))
    actions = iter(step.actions)
    for call, is_own in zip(step.calls, own, strict=True):
        if is_own:
            await computer.call(ToolCall(name=call.name, id=call.id, arguments=call.arguments))
        elif (action := next(actions, None)) is not None:
            await computer.act(action)
    for action in actions:
        await computer.act(action)


@dataclass
class Verifier:
    """One verification: what is verified, and where the replays' records go.

    tries  replays of an episode at most, the first without pauses, the others at the recorded pace
    """

    config: RunConfig
    results: Path
    out: Path
    tries: int = 2

    def __post_init__(self) -> None:
        config = self.config
        self.world = environment(config.environment)
        count = config.tasks.number(self.world, config.options)
        drawn = repeated(tasks_of(config.environment, count, config.tasks.seed, config.options), config.trials)
        self.tasks = {key_of(task): task for task in drawn}
        self.options = written_options(config.environment, config.options)
        lenient, interface = config.prompt.lenient, config.interface
        self.rules = scoring_rules(
            config.environment, self.options, config.limits, lenient=lenient, interface=interface
        )
        self.verdicts: dict[Key, VerifiedTask] = {}

    async def report(self) -> Verification:
        """Replays what can be replayed. Raises ConfigError."""
        path = self.results / RECORDS
        try:
            data = path.read_bytes()
            records = jsonl.read(path, TaskRecord)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; name a folder of results of an evaluation") from None
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path}: {error}") from None
        if not records:
            raise ConfigError(f"{path} holds no record; name a folder of results of an evaluation")
        (place, count), *_ = Counter(map(key_of, records)).most_common(1)
        if count > 1:
            raise ConfigError(f"{path} holds {place[0]} seed {place[1]} twice, and would count it twice")
        episodes: dict[Key, Episode] = {}
        for record in records:
            self._judge(record, "stands")
            if found := self._episode(record):
                episodes[key_of(record)] = found
        for attempt in range(1, self.tries + 1):
            await self._replay(attempt, records, episodes)
        for key in self.tasks.keys() - self.verdicts.keys():
            self._tell(key, None, "missing", "the results have no record of it")
        order = [*map(key_of, records), *(key for key in self.tasks if self.verdicts[key].verdict == "missing")]
        verdicts = [self.verdicts[key] for key in order]
        counts = Counter(verdict.verdict for verdict in verdicts)
        return Verification(
            benchmark=records[0].benchmark,
            agent=records[0].agent,
            records=hashlib.sha256(data).hexdigest(),
            scored=len(records) - counts["not scored"],
            stand=counts["stands"],
            missing=counts["missing"],
            summary=list(_summary_faults(self.results / SUMMARY, records, self.config)),
            tasks=verdicts,
        )

    def _judge(
        self, record: TaskRecord, verdict: Verdict, why: str = "", replayed: Sequence[float | None] = ()
    ) -> None:
        self._tell(key_of(record), record.score, verdict, why, replayed)

    def _tell(
        self, key: Key, score: float | None, verdict: Verdict, why: str, replayed: Sequence[float | None] = ()
    ) -> None:
        task_id, seed, trial = key
        self.verdicts[key] = VerifiedTask(
            task_id=task_id, seed=seed, trial=trial, score=score, verdict=verdict, replayed=list(replayed), why=why
        )

    def _episode(self, record: TaskRecord) -> Episode | None:
        """The episode to replay; None, with a verdict, where there is none, or the record cannot be of it."""
        if record.outcome != "scored":
            self._judge(record, "not scored", record.error or record.outcome)
        elif why := self._other_rules(record):
            self._judge(record, "other rules", why)
        elif record.episode is None:
            self._judge(record, "no episode", "the evaluation kept no episode of it; see keep_episodes")
        elif record.episode != (own := f"{EPISODES}/{episode_id(self.tasks[key_of(record)])}"):
            self._judge(record, "contradicts", f"its episode would be {own}, not {record.episode}")
        else:
            try:
                episode = read_episode(self.results / own)
            except EpisodeError as error:
                self._judge(record, "no episode", str(error))
                return None
            if differs := ", ".join(_contradictions(record, episode)):
                self._judge(record, "contradicts", differs)
                return None
            return episode
        return None

    def _other_rules(self, record: TaskRecord) -> str:
        """Why the record is not by the configuration's rules; "" where it is."""
        task = self.tasks.get(key_of(record))
        if task is None:
            return "the configuration draws no such task"
        if record.benchmark != self.config.benchmark:
            return f"benchmark {record.benchmark!r}; the configuration says {self.config.benchmark!r}"
        if not record.rules:
            return "the record does not say by which rules it was scored"
        try:
            found = standing([record], [task], self.config.version, self.rules, self.config.limits.steps_of)
        except ConfigError as error:
            return str(error)
        return next((f"a task {why}" for why in found.why), "")

    async def _replay(self, attempt: int, records: Sequence[TaskRecord], episodes: Mapping[Key, Episode]) -> None:
        """Plays again what no earlier replay gave the recorded score."""
        open_ = [r for r in records if key_of(r) in episodes and (attempt == 1 or self._open(r))]
        if not open_:
            return
        name = f"replay-{attempt}"
        results = await rollout(
            ReplayAgent(name, episodes, paced=attempt > 1),
            lambda: self.world.desktop(self.config.options),
            [self.tasks[key_of(record)] for record in open_],
            out=self.out / name,
            benchmark=self.config.benchmark,
            environment=self.config.environment,
            version=self.config.version,
            options=self.options,
            interface=self.config.interface,
            limits=self.config.limits,
            keep_episodes=0,
            lenient=self.config.prompt.lenient,
        )
        for record, result in zip(open_, results, strict=True):
            again = result.record
            replayed = [*self.verdicts[key_of(record)].replayed, again.score]
            if again.outcome != "scored":
                self._judge(record, "not replayed", again.error or again.outcome, replayed)
            elif (again.score, again.success) == (record.score, record.success):
                self._judge(record, "stands", "", replayed)
            else:
                self._judge(
                    record, "differs", f"{_points(again.score)} where {_points(record.score)} is recorded", replayed
                )

    def _open(self, record: TaskRecord) -> bool:
        return self.verdicts[key_of(record)].verdict in ("differs", "not replayed")


def _points(score: float | None) -> str:
    return "no score" if score is None else f"{score:g}"


def _contradictions(record: TaskRecord, episode: Episode) -> Iterator[str]:
    """What the episode tells otherwise than its record."""
    for name in ("task_id", "seed", "score", "success", "agent"):
        was, told = getattr(record, name), getattr(episode, name)
        if was != told:
            yield f"{name} {was!r}, its episode has {told!r}"
    if record.steps != len(episode.steps):
        yield f"{record.steps} steps, its episode has {len(episode.steps)}"


def _summary_faults(path: Path, records: Sequence[TaskRecord], config: RunConfig) -> Iterator[str]:
    """The metrics of the agent in summary.json that its records do not give. Raises ConfigError."""
    if not path.is_file():
        return
    try:
        written = msgspec.json.decode(path.read_bytes(), type=list[MetricRow])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: {error}") from None
    rows = [row for row in written if row.agent == records[0].agent]
    if not rows:
        yield f"no row of {records[0].agent}"
        return
    first = rows[0]
    errors = read_errors(judge_of(config.environment, config.options))
    told_by: dict[str, Any] = {"version": first.version, "split": first.split, "seed": first.seeds[0]}
    made = summarise(records, **told_by, within=config.within, errors=errors)
    told = {row.metric: row for row in rows}
    for row in made:
        other = told.pop(row.metric, None)
        if other is None:
            yield f"{row.metric} is missing"
        elif row != other:
            yield f"{row.metric} {_points(other.value)} of {other.n}, the records give {_points(row.value)} of {row.n}"
    yield from (f"{metric} is not of these records" for metric in told)


def table(report: Verification) -> str:
    """For people: a line for each record whose score does not stand, the summary's faults, and the counts."""
    lines = [f"{t.task_id} seed {t.seed}: {t.verdict}: {t.why}" for t in report.tasks if t.verdict in FAULTS]
    lines += [f"summary.json: {fault}" for fault in report.summary]
    counts = Counter(task.verdict for task in report.tasks)
    rest = ", ".join(f"{count} {name}" for name, count in counts.items() if name != "stands")
    lines.append(f"{report.stand} of {report.scored} scores stand{f' ({rest})' if rest else ''}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = config_help.parser("eval.verify", "Play the recorded actions of an evaluation again.", RunConfig)
    out.add_argument("results", metavar="RESULTS", help="the folder of results, or of one of its baselines")
    out.add_argument("--tries", type=int, default=2, help="replays of an episode at most; default 2")
    out.add_argument(
        "--out", help="where the replays' records go; default $SLIPWAY_OUTPUTS/results in a job, else RESULTS/verified"
    )
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 every score stands, 1 not, 2 wrong arguments, 78 a wrong configuration."""
    arguments = parser().parse_args(argv)

    def run() -> int:
        if arguments.tries < 1:
            raise ConfigError(f"--tries {arguments.tries}; allowed: 1 or more")
        config = configuration.load(Path(arguments.config), RunConfig)
        results = Path(arguments.results)
        # in a job the results are an input, which cannot be written
        beside = None if "SLIPWAY_OUTPUTS" in os.environ else str(results / "verified")
        with configuration.results_folder(arguments.out or beside, "results") as out:
            report = asyncio.run(Verifier(config, results, out, arguments.tries).report())
            out.mkdir(parents=True, exist_ok=True)
            (out / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
        print(table(report))
        return int(not report.whole)

    return configuration.run(run, failures=(SetupFailed,))


if __name__ == "__main__":
    sys.exit(main())
