"""What the pages show, from the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Engine, RowMapping, Select, Table, and_, case, func, or_, select

from launcher.monitor import tables as t
from launcher.monitor.rows import ENDED, GOING_ON
from launcher.monitor.search_index import holding
from launcher.monitor.tables import METADATA

RECENT: Final = 50  # ended runs on the first page
OPEN: Final = 200  # runs on the first page that have not ended
TOLD: Final = 20  # tries to tell people
FOUND: Final = 100  # answers of a search
Rows = Sequence[RowMapping]
# everything of a run but its job, which may be long
OF_RUN: Final = [column for column in t.runs.c if column.name not in ("job", "digest")]


class RunFilters(NamedTuple):
    """Which runs are shown; "" for any. `name`: a part of a run's name or id; `label`: KEY or KEY=VALUE."""

    name: str = ""
    state: str = ""
    label: str = ""

    def conditions(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        if self.name:
            found.append(
                or_(*(column.icontains(self.name, autoescape=True) for column in (t.runs.c.name, t.runs.c.run)))
            )
        if self.state:
            found.append(t.runs.c.state == self.state)
        if self.label:
            key, equals, value = self.label.partition("=")
            held = f"{_quoted(key.strip())}:" + (_quoted(value.strip()) if equals else "")
            found.append(t.runs.c.labels.contains(held, autoescape=True))
        return found


def _quoted(text: str) -> str:
    """As `runs.labels` has it."""
    return msgspec.json.encode(text).decode()


class Overview(NamedTuple):
    open: Rows
    ended: Rows
    counts: Mapping[str, int]


@dataclass
class Cell:
    """The tries of one agent at one task."""

    solved: int = 0
    rollouts: list[RowMapping] = field(default_factory=list)


class AgentColumn(NamedTuple):
    """An agent's tries. Those that the infrastructure broke (`infra`) and those that could not run (`not_run`) count
    among the `tries`, as in the report."""

    owner: int
    name: str
    baseline: bool
    solved: int
    tries: int
    infra: int
    not_run: int
    failures: Sequence[tuple[str, int]]  # the commonest first
    lacking: Sequence[tuple[str, int]]  # why tries could not run, the commonest first


class Evaluation(NamedTuple):
    """`cells`: (task, agent's owner) -> tries; `rows`: all of them."""

    agents: Sequence[AgentColumn]
    tasks: Sequence[tuple[int, str]]
    cells: Mapping[tuple[int, int], Cell]
    rows: Rows

    @property
    def failures_first(self) -> Sequence[tuple[int, str]]:
        """The tasks, before all others those that an agent did not solve every time; a baseline decides nothing. The
        order tells outcomes: not for who judges blindly."""
        owners = [agent.owner for agent in self.agents if not agent.baseline]

        def solved(task: tuple[int, str]) -> bool:
            cells = [self.cells[key] for owner in owners if (key := (task[0], owner)) in self.cells]
            return all(row["outcome"] == "solved" for cell in cells for row in cell.rollouts)

        return sorted(self.tasks, key=solved)

    @property
    def outcomes(self) -> Sequence[str]:
        return sorted({row["outcome"] for row in self.rows})

    @property
    def programs(self) -> Sequence[str]:
        return sorted({row["programs"] for row in self.rows} - {""})

    def only(self, outcome: str, failure: str, program: str) -> Evaluation:
        """With the tasks of this program of which a try ended so, and failed for that reason; "" for any."""
        wanted = {
            row["task_id"]
            for row in self.rows
            if outcome in ("", row["outcome"])
            and failure in ("", row["failure"] if row["outcome"] == "failed" else "")
            and program in ("", row["programs"])
        }
        return self._replace(tasks=[task for task in self.tasks if task[0] in wanted])


class ShownTurn(NamedTuple):
    number: int
    turn: RowMapping | None  # None: the last screen, after all turns
    actions: Rows
    picture: bool


class RolloutDifference(NamedTuple):
    """Two rollouts beside each other. `same`: how many turns are alike before they part; `rows`: the turns after."""

    same: int
    rows: Sequence[tuple[ShownTurn | None, ShownTurn | None]]


class Queries:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def all(self, query: Select[Any]) -> Rows:
        with self.engine.connect() as connection:
            return connection.execute(query).mappings().all()

    def one(self, query: Select[Any]) -> RowMapping | None:
        with self.engine.connect() as connection:
            return connection.execute(query).mappings().first()

    def overview(self, filters: RunFilters | None = None) -> Overview:
        mine = filters.conditions() if filters is not None else []
        counts = self.all(select(t.runs.c.state, func.count().label("count")).where(*mine).group_by(t.runs.c.state))
        ended, goes_on = t.runs.c.state.in_(ENDED), t.runs.c.state.in_(GOING_ON)
        waits = case((t.runs.c.state == "queued", 1), else_=0)
        newest = t.runs.c.ended.desc()
        # found by the index alone: rows are long
        recent = select(t.runs.c.id).where(ended, *mine).order_by(newest).limit(RECENT)
        return Overview(
            self.all(select(*OF_RUN).where(goes_on, *mine).order_by(waits, t.runs.c.created.desc()).limit(OPEN)),
            self.all(select(*OF_RUN).where(t.runs.c.id.in_(recent)).order_by(newest)),
            {row["state"]: row["count"] for row in counts},
        )

    def usage(self, runs: Iterable[int]) -> dict[int, RowMapping]:
        """Run -> mean GPU share and sums over the members of its newest attempt."""
        table = t.members
        query = (
            select(
                table.c.run_id,
                func.avg(table.c.gpu).label("gpu"),
                func.sum(table.c.gpu_memory).label("gpu_memory"),
                func.sum(table.c.cpus).label("cpus"),
                func.sum(table.c.memory).label("memory"),
            )
            .join(t.runs, and_(t.runs.c.id == table.c.run_id, t.runs.c.attempt == table.c.attempt))
            .where(table.c.run_id.in_(list(runs)))
            .group_by(table.c.run_id)
        )
        return {row["run_id"]: row for row in self.all(query)}

    def run(self, key: int) -> RowMapping | None:
        query = select(t.runs, t.stores.c.url).join(t.stores, t.stores.c.id == t.runs.c.store_id)
        return self.one(query.where(t.runs.c.id == key))

    def named(self, run: str) -> Sequence[int]:
        """The ids of the runs of that name: one for each store that has it."""
        return [row["id"] for row in self.all(select(t.runs.c.id).where(t.runs.c.run == run).order_by(t.runs.c.id))]

    def parts(self, name: str, key: int) -> Rows:
        """The rows of a run in one of its tables, in the order of their keys."""
        table: Table = METADATA.tables[name]
        return self.all(select(table).where(table.c.run_id == key).order_by(*table.primary_key))

    def told(self, run: int | None = None) -> Rows:
        """Tries to tell people, of a run or the newest of all, the newest first."""
        table = t.notices
        query = select(table, t.runs.c.name, t.runs.c.run, t.runs.c.id).join(t.runs, t.runs.c.id == table.c.run_id)
        if run is not None:
            query = query.where(table.c.run_id == run)
        order = (table.c.at.desc(), *table.primary_key)
        return self.all(query.order_by(*order).limit(TOLD))

    def evaluated(self) -> Rows:
        """Runs with rollouts that no training tells of, the newest first, with their counts."""
        table = t.rollouts
        solved = func.sum(table.c.success).label("solved")
        counted = (
            select(table.c.run_id, func.count().label("rollouts"), solved)
            .where(table.c.number.is_(None))  # a training numbers its own
            .group_by(table.c.run_id)
            .subquery()
        )
        query = select(*OF_RUN, counted.c.rollouts, counted.c.solved)
        return self.all(
            query.join(counted, counted.c.run_id == t.runs.c.id).order_by(t.runs.c.created.desc()).limit(OPEN)
        )

    def tried(self, key: int) -> bool:
        """Whether a run has rollouts of evaluations that no training tells of."""
        mine = select(t.rollouts.c.id).where(t.rollouts.c.run_id == key, t.rollouts.c.number.is_(None))
        return self.one(mine.limit(1)) is not None

    def rollouts(self, key: int) -> Rows:
        """All rollouts of a run's evaluations, with who tried what."""
        query = rollouts_query().where(t.rollouts.c.run_id == key, t.groups.c.number.is_(None))
        return self.all(query.order_by(t.environments.c.benchmark, t.tasks.c.task, t.rollouts.c.seed, t.rollouts.c.id))

    def rollout(self, key: int) -> RowMapping | None:
        return self.one(rollouts_query().where(t.rollouts.c.id == key))

    def evaluation(self, key: int) -> Evaluation:
        rows = self.rollouts(key)
        cells: dict[tuple[int, int], Cell] = {}
        by_owner: dict[int, list[RowMapping]] = {}
        tasks: dict[int, str] = {}
        for row in rows:
            tasks[row["task_id"]] = row["task"]
            by_owner.setdefault(row["owner"], []).append(row)
            cell = cells.setdefault((row["task_id"], row["owner"]), Cell())
            cell.rollouts.append(row)
            cell.solved += row["success"] or 0
        agents = [_agent(owner, mine) for owner, mine in by_owner.items()]
        return Evaluation(
            sorted(agents, key=lambda agent: (agent.baseline, agent.name)), list(tasks.items()), cells, rows
        )

    def turns(self, key: int) -> list[ShownTurn]:
        turns = self.all(select(t.turns).where(t.turns.c.rollout_id == key).order_by(t.turns.c.number))
        actions: dict[int, list[RowMapping]] = {}
        query = select(t.actions).where(t.actions.c.rollout_id == key).order_by(t.actions.c.turn, t.actions.c.number)
        for row in self.all(query):
            actions.setdefault(row["turn"], []).append(row)
        seen = {
            row["turn"] for row in self.all(select(t.observations.c.turn).where(t.observations.c.rollout_id == key))
        }
        found = [ShownTurn(row["number"], row, actions.get(row["number"], []), row["number"] in seen) for row in turns]
        if len(turns) in seen:
            found.append(ShownTurn(len(turns), None, [], True))
        return found

    def parting(self, left: int, right: int) -> RolloutDifference:
        a, b = self.turns(left), self.turns(right)
        same = 0
        while same < min(len(a), len(b)) and _said(a[same]) == _said(b[same]) is not None:
            same += 1
        rows = [
            (a[at] if at < len(a) else None, b[at] if at < len(b) else None) for at in range(same, max(len(a), len(b)))
        ]
        return RolloutDifference(same, rows)

    def observation(self, rollout: int, turn: int) -> RowMapping | None:
        """Where a picture lies: the key, its sha256, and the URL of the store."""
        return self.one(
            select(t.observations.c.key, t.observations.c.sha256, t.stores.c.url)
            .join(t.rollouts, t.rollouts.c.id == t.observations.c.rollout_id)
            .join(t.runs, t.runs.c.id == t.rollouts.c.run_id)
            .join(t.stores, t.stores.c.id == t.runs.c.store_id)
            .where(t.observations.c.rollout_id == rollout, t.observations.c.turn == turn)
        )

    def validations(self, key: int) -> Rows:
        query = select(t.validations, t.validators.c.kind).join(t.validators)
        return self.all(query.where(t.validations.c.rollout_id == key).order_by(t.validators.c.kind))

    def runs_with(self, words: str) -> Rows:
        """Runs whose name, id, group or labels hold the words, the newest first."""
        where = (t.runs.c.name, t.runs.c.run, t.runs.c.group_name, t.runs.c.labels)
        key, equals, value = words.partition("=")  # a label as users write it
        wanted = [column.icontains(words, autoescape=True) for column in where]
        if equals:
            wanted.append(t.runs.c.labels.contains(f"{_quoted(key)}:{_quoted(value)}", autoescape=True))
        return self.all(select(*OF_RUN).where(or_(*wanted)).order_by(t.runs.c.created.desc()).limit(FOUND))

    def search(self, words: str, run: int | None = None) -> Rows:
        """Rollouts whose task, instruction, error, or an answer or a thought holds the words."""
        with self.engine.connect() as connection:
            ids = holding(connection, words, FOUND, run)
        rows = {row["id"]: row for row in self.all(rollouts_query().where(t.rollouts.c.id.in_(ids)))}
        return [rows[key] for key in ids if key in rows]


def rollouts_query() -> Select[Any]:
    """Rollouts, with who tried what, and of which step where a training tells of them."""
    return (
        select(
            t.rollouts,
            t.tasks.c.id.label("task_id"),
            t.tasks.c.task,
            t.environments.c.benchmark,
            t.environments.c.version,
            func.coalesce(t.groups.c.eval_id, t.groups.c.baseline_id).label("owner"),
            t.groups.c.baseline_id,
            t.groups.c.step_id,
            t.groups.c.number.label("group_number"),
            t.groups.c.dropped,
            func.coalesce(t.steps.c.number, t.evals.c.step, t.baselines.c.step).label("step"),
            func.coalesce(t.evals.c.agent, t.baselines.c.agent, "").label("agent"),
            t.runs.c.name.label("run_name"),
            t.runs.c.run,
        )
        .join(t.groups, t.groups.c.id == t.rollouts.c.group_id)
        .join(t.tasks, t.tasks.c.id == t.groups.c.task_id)
        .join(t.environments, t.environments.c.id == t.tasks.c.environment_id)
        .join(t.runs, t.runs.c.id == t.rollouts.c.run_id)
        .join(t.evals, t.evals.c.id == t.groups.c.eval_id, isouter=True)
        .join(t.baselines, t.baselines.c.id == t.groups.c.baseline_id, isouter=True)
        .join(t.steps, t.steps.c.id == t.groups.c.step_id, isouter=True)
    )


def _said(turn: ShownTurn) -> tuple[Any, ...] | None:
    """What makes two turns the same; None for the last screen, which is no turn."""
    if turn.turn is None:
        return None
    return turn.turn["answer"], [(each["words"], each["refused"]) for each in turn.actions]


def _agent(owner: int, rows: Sequence[RowMapping]) -> AgentColumn:
    failures = Counter(row["failure"] for row in rows if row["failure"] and row["outcome"] == "failed")
    lacking = Counter(row["error"] or "no reason was told" for row in rows if row["outcome"] == "not run")
    return AgentColumn(
        owner,
        rows[0]["agent"] or rows[0]["run_name"],
        rows[0]["baseline_id"] is not None,
        sum(row["success"] or 0 for row in rows),
        len(rows),
        sum(row["outcome"] == "infra" for row in rows),
        lacking.total(),
        *(sorted(counts.items(), key=lambda item: (-item[1], item[0])) for counts in (failures, lacking)),
    )
