"""What an audit found: audit.json, its table for people, and for a page beside a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from eval.audit.families import FAMILIES, PlayerFamily
from eval.records.task_record import TaskRecord
from eval.scores.stats import by_cluster, wilson

Verdict = Literal["sound", "hole", "allowed", "measured", "incomplete", "not played"]
FAULTS: Final = ("hole", "incomplete")


class AuditedTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one family got in one task.

    tries   that were judged; `passed`: of them, those that solved the task; `paid`: those that got any score
    bound   the upper end of Wilson's 95 % interval of passed / tries; 1 where nothing was judged
    infra   tries that the infrastructure failed, or that could not run: neither a pass nor a failure
    ways    the ways that passed, or were paid
    """

    task_id: str
    seed: int
    tries: int
    passed: int
    paid: int
    bound: float
    infra: int = 0
    ways: list[str] = []


class FamilyVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one family got in all tasks.

    verdict  sound: it passed nowhere; hole: it passed, or earned partial credit where nothing was done; allowed: not
             more often than `allowed`; measured: a pass is no fault; incomplete: something was not judged, and nothing
             passed; not played: `why` says what is missing
    bound    the upper end of the 95 % interval of the share of tries that pass, by cluster; 1 where nothing was judged
    """

    family: str
    does: str
    verdict: Verdict
    why: str = ""
    allowed: float = 0.0
    tries: int = 0
    passed: int = 0
    paid: int = 0
    bound: float = 1.0
    infra: int = 0
    tasks: list[AuditedTask] = []


class AuditReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An audit of some tasks of an environment.

    tasks   how many were audited; `feasible`: of them, those that can be done, or of which it is not known
    """

    benchmark: str
    version: str
    environment: str
    tasks: int
    feasible: int
    families: list[FamilyVerdict]

    @property
    def faults(self) -> list[FamilyVerdict]:
        """The families that found a hole, or were not judged to the end."""
        return [each for each in self.families if each.verdict in FAULTS]


def not_played(family: PlayerFamily, why: str) -> FamilyVerdict:
    return FamilyVerdict(family=family.name, does=family.does, verdict="not played", why=why, allowed=family.allowed)


def verdict_of(
    family: PlayerFamily, records: Sequence[tuple[TaskRecord, str]], allowed: float, without: Sequence[str] = ()
) -> FamilyVerdict:
    """The verdict over the records of a family, each with the name of its way. `without`: why tasks were not tried."""
    found: dict[tuple[str, int], list[tuple[TaskRecord, str]]] = {}
    for record, way in records:
        found.setdefault((record.task_id, record.seed), []).append((record, way))
    tasks = [_task(some) for some in found.values()]
    judged = [record for record, _ in records if record.outcome == "scored"]
    rate = by_cluster([(_cluster(record), float(bool(record.success))) for record in judged])
    tries, passed = len(judged), sum(bool(record.success) for record in judged)
    paid, infra = sum(task.paid for task in tasks), len(records) - tries
    whys = dict.fromkeys([*without, *(record.error or "" for record, _ in records if record.outcome != "scored")])
    return FamilyVerdict(
        family=family.name,
        does=family.does,
        verdict=_verdict(family, tries, passed, paid, infra, allowed),
        why="; ".join(filter(None, whys)),
        allowed=allowed,
        tries=tries,
        passed=passed,
        paid=paid,
        bound=1.0 if rate is None else rate.high,
        infra=infra,
        tasks=tasks,
    )


def _verdict(family: PlayerFamily, tries: int, passed: int, paid: int, infra: int, allowed: float) -> Verdict:
    counted = paid if family.partial else passed
    if not family.judged:
        return "measured" if tries else "not played"
    if tries and counted > allowed * tries:
        return "hole"
    if infra or not tries:
        return "incomplete"
    return "allowed" if counted else "sound"


def _task(some: Sequence[tuple[TaskRecord, str]]) -> AuditedTask:
    judged = [(record, way) for record, way in some if record.outcome == "scored"]
    passed = sum(bool(record.success) for record, _ in judged)
    estimate = wilson(passed, len(judged))
    return AuditedTask(
        task_id=some[0][0].task_id,
        seed=some[0][0].seed,
        tries=len(judged),
        passed=passed,
        paid=sum(bool(record.score) for record, _ in judged),
        bound=1.0 if estimate is None else estimate.high,
        infra=len(some) - len(judged),
        ways=[way for record, way in judged if record.score],
    )


def _cluster(record: TaskRecord) -> str:
    return record.cluster or f"{record.task_id} {record.seed}"


def table(report: AuditReport) -> str:
    """A line for each family, and one for each task in which a player got anything that it should not."""
    lines = [f"{'family':12} {'passed':>9}  {'at most':>8}  {'infra':>5}  verdict"]
    for each in report.families:
        why = f": {each.why}" if each.why else ""
        lines.append(f"{each.family:12} {_share(each):>9}  {_bound(each):>8}  {each.infra:>5}  {each.verdict}{why}")
    for each in report.families:
        lines += [
            f"{each.family}: {task.task_id} with seed {task.seed}: {task.passed} of {task.tries} passed, "
            f"{task.paid} paid, at most {100 * task.bound:.0f} %: {', '.join(dict.fromkeys(task.ways))}"
            for task in each.tasks
            if task.paid and each.verdict != "measured"
        ]
    return "\n".join(lines)


def markdown(report: AuditReport) -> str:
    """The same as tables of a page: the families, and each task with what passed there."""
    head = f"{report.benchmark} {report.version}: {report.tasks} tasks of {report.environment}, {report.feasible} of"
    lines = [f"{head} which can be done, or are not said to be impossible.", ""]
    lines += ["| player | what it does | passed | at most (95 %) | verdict |", "|---|---|---|---|---|"]
    for each in report.families:
        told = f"{each.verdict}: {each.why}" if each.why else each.verdict
        lines.append(f"| {each.family} | {each.does} | {_share(each)} | {_bound(each)} | {told} |")
    played = [each for each in report.families if each.tries]
    lines += ["", f"| task | seed | {' | '.join(each.family for each in played)} |", "|---" * (len(played) + 2) + "|"]
    keys = dict.fromkeys((task.task_id, task.seed) for each in played for task in each.tasks)
    for key in keys:
        cells = [next((_cell(t) for t in each.tasks if (t.task_id, t.seed) == key), "") for each in played]
        lines.append(f"| {key[0]} | {key[1]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(each: FamilyVerdict) -> str:
    return f"{each.passed}/{each.tries}" if each.tries else ""


def _bound(each: FamilyVerdict) -> str:
    return f"{100 * each.bound:.1f} %" if each.tries else ""


def _cell(task: AuditedTask) -> str:
    return f"{task.passed}/{task.tries}" if task.tries else "infra"


def allowed_rates(given: Sequence[str]) -> dict[str, float]:
    """`FAMILY=RATE` for each. Raises ValueError, with what is wrong."""
    rates = {}
    for text in given:
        name, _, rate = text.partition("=")
        try:
            value = float(rate)
        except ValueError:
            value = -1.0
        if name not in FAMILIES or not 0 <= value <= 1:
            raise ValueError(
                f"--allow {text}; allowed: FAMILY=RATE, a family of {', '.join(FAMILIES)}, a rate of 0 to 1"
            )
        rates[name] = value
    return rates
