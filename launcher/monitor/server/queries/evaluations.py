"""What the list of evaluations and the comparison of two show, from the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import RowMapping, Select, func, literal, select

from launcher.monitor import tables as t
from launcher.monitor.server.queries.runs import Evaluation, Queries, Rows, rollouts_query
from launcher.results.rows import SUCCESS
from launcher.results.stats import few

EXAMPLES: Final = 5  # tries of a class of failures in which a picture is looked for
OFFERED: Final = 50  # evaluations that a page offers to compare with


class EvaluatedAgent(NamedTuple):
    """An agent of an evaluation.

    value, low, high  its rate of success with the interval, as summary.json has them; None before the evaluation ends
    unreliable        whether the interval is over too few clusters
    before            the newest earlier evaluation of the same benchmark: the id of its agent; 0 for none
    """

    owner: int
    agent: str
    baseline: bool
    benchmark: str
    version: str
    solved: int
    tries: int
    value: float | None
    low: float | None
    high: float | None
    unreliable: bool
    before: int = 0


class ListedEvaluation(NamedTuple):
    run: RowMapping
    agents: Sequence[EvaluatedAgent]


class EvaluationQueries:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    def evaluations(self) -> list[ListedEvaluation]:
        """The evaluations that no training tells of, the newest first."""
        runs = self.queries.evaluated()
        agents = self.agents(run["id"] for run in runs)
        before: dict[tuple[str, str], int] = {}
        found = []
        for run in reversed(runs):
            mine = agents.get(run["id"], [])
            found.append(ListedEvaluation(run, [each._replace(before=before.get(each[3:5], 0)) for each in mine]))
            before |= {each[3:5]: each.owner for each in reversed(mine) if not each.baseline}
        return found[::-1]

    def agents(self, runs: Iterable[int]) -> Mapping[int, Sequence[EvaluatedAgent]]:
        """Run -> its agents, baselines last."""
        keys = list(runs)
        owner = func.coalesce(t.groups.c.eval_id, t.groups.c.baseline_id)
        columns: list[Any] = [
            owner.label("owner"), func.count().label("tries"), func.sum(t.rollouts.c.success).label("solved")
        ]  # fmt: skip
        counted = (
            select(*columns)
            .select_from(t.rollouts)
            .join(t.groups, t.groups.c.id == t.rollouts.c.group_id)
            .where(t.rollouts.c.run_id.in_(keys), t.rollouts.c.number.is_(None))
            .group_by(owner)
        )
        tries = {row["owner"]: row for row in self.queries.all(counted)}
        told = select(t.eval_metrics).where(t.eval_metrics.c.run_id.in_(keys), t.eval_metrics.c.metric == SUCCESS)
        rates = {(row["run_id"], row["benchmark"], row["agent"]): row for row in self.queries.all(told)}
        found: dict[int, list[EvaluatedAgent]] = {}
        for baseline in (False, True):
            for row in self.queries.all(_owners(baseline).where(t.runs.c.id.in_(keys))):
                rate = rates.get((row["run_id"], row["benchmark"], row["agent"])) or rates.get(
                    (row["run_id"], row["benchmark"], "")  # of an evaluation of one agent, which names none
                )
                found.setdefault(row["run_id"], []).append(_evaluated(row, tries.get(row["owner"]), rate))
        return found

    def side(self, owner: int) -> RowMapping | None:
        """One side of a comparison: an agent of an evaluation, with its run and the store's URL."""
        return next((row for kind in (False, True) for row in self.queries.all(_owners(kind, owner))), None)

    def offered(self, run: int) -> Rows:
        """The agents with which those of this run can be compared: of the same benchmark in the same version, the
        run's own first, then the newest."""
        mine = {
            key
            for kind in (False, True)
            for row in self.queries.all(_owners(kind).where(t.runs.c.id == run))
            for key in [row["environment_id"]]
        }
        found: list[RowMapping] = []
        for kind in (False, True):
            query = _owners(kind).where(t.environments.c.id.in_(mine)).order_by(t.runs.c.created.desc())
            found += self.queries.all(query.limit(OFFERED))
        return sorted(found, key=lambda row: (row["run_id"] != run, row["baseline"], -(row["created"] or 0)))[:OFFERED]

    def rollouts(self, owner: int) -> dict[int, RowMapping]:
        """The tries of one side, by id."""
        query = rollouts_query().where(func.coalesce(t.groups.c.eval_id, t.groups.c.baseline_id) == owner)
        return {row["id"]: row for row in self.queries.all(query)}

    def examples(self, evaluation: Evaluation) -> dict[tuple[int, str], tuple[RowMapping, int]]:
        """(agent, class of failures) -> the first such try with a picture, the turn of its last one."""
        kept: dict[tuple[int, str], list[RowMapping]] = {}
        for row in evaluation.rows:
            if row["outcome"] == "failed" and row["folder"]:
                kept.setdefault((row["owner"], row["failure"]), []).append(row)
        tried = {key: rows[:EXAMPLES] for key, rows in kept.items()}
        screens = self.last_screens(row["id"] for rows in tried.values() for row in rows)
        found = {key: next((row for row in rows if row["id"] in screens), None) for key, rows in tried.items()}
        return {key: (row, screens[row["id"]]) for key, row in found.items() if row is not None}

    def last_screens(self, rollouts: Iterable[int]) -> dict[int, int]:
        """Rollout -> the turn of its last picture, of those that have one."""
        table = t.observations
        query = select(table.c.rollout_id, func.max(table.c.turn).label("turn"))
        query = query.where(table.c.rollout_id.in_(list(rollouts))).group_by(table.c.rollout_id)
        return {row["rollout_id"]: row["turn"] for row in self.queries.all(query)}


def _owners(baseline: bool, owner: int | None = None) -> Select[Any]:
    """The agents, or the baselines, of evaluations that no training tells of."""
    table = t.baselines if baseline else t.evals
    query = (
        select(
            table.c.id.label("owner"),
            table.c.run_id,
            table.c.agent,
            table.c.environment_id,
            literal(baseline).label("baseline"),
            t.environments.c.benchmark,
            t.environments.c.version,
            t.runs.c.run,
            t.runs.c.name.label("run_name"),
            t.runs.c.created,
            t.stores.c.url,
        )
        .join(t.environments, t.environments.c.id == table.c.environment_id)
        .join(t.runs, t.runs.c.id == table.c.run_id)
        .join(t.stores, t.stores.c.id == t.runs.c.store_id)
        .where(table.c.step.is_(None))
    )
    return query if owner is None else query.where(table.c.id == owner)


def _evaluated(row: RowMapping, tries: RowMapping | None, rate: RowMapping | None) -> EvaluatedAgent:
    value = rate["value"] if rate is not None else None
    clusters = rate["clusters"] if rate is not None and rate["low"] is not None else None
    return EvaluatedAgent(
        row["owner"],
        row["agent"],
        bool(row["baseline"]),
        row["benchmark"],
        row["version"],
        int(tries["solved"] or 0) if tries is not None else 0,
        tries["tries"] if tries is not None else 0,
        value,
        rate["low"] if rate is not None else None,
        rate["high"] if rate is not None else None,
        clusters is not None and value is not None and few(clusters, value),
    )
