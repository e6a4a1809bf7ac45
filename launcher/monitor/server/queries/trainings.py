"""What the pages of trainings show, from the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import RowMapping, Table, case, func, select, union

from launcher.decoding import decode
from launcher.monitor import tables as t
from launcher.monitor.server.queries.runs import OF_RUN, OPEN, Queries, Rows, rollouts_query

KINDS: Final[Mapping[str, Table]] = {"steps": t.steps, "evals": t.evals, "baselines": t.baselines}
CALLED: Final = {"steps": "step", "evals": "evaluation", "baselines": "baseline"}
SHOWN: Final = 200  # moments of one page
_INPUT: Final = "$SLIPWAY_INPUTS/"


class Moment(NamedTuple):
    """A step, an evaluation or a baseline of a training, with its rollouts counted.

    kind    steps, evals, baselines
    total   the mean return of the scored rollouts
    """

    kind: str
    step: int
    at: float | None
    figures: Mapping[str, float | None]
    groups: int
    dropped: int
    rollouts: int
    scored: int
    solved: int
    void: int
    total: float | None

    @property
    def name(self) -> str:
        return CALLED[self.kind]


class TrainingRun(NamedTuple):
    """A run that trains. `step`, `total`: of what it told of its progress; `records`: it told of its rollouts, too."""

    run: RowMapping
    method: str
    model: str
    step: float | None
    total: float | None
    records: bool


class ShownGroup(NamedTuple):
    group: RowMapping
    rollouts: Rows


class TrainingQueries:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    def trained(self) -> list[TrainingRun]:
        """Runs whose command is a trainer of ours, and those that told of a training, the newest first."""
        last = select(func.max(t.steps.c.number)).where(t.steps.c.training_id == t.trainings.c.id).scalar_subquery()
        trains = union(select(t.trainings.c.run_id), select(t.runs.c.id).where(t.runs.c.trains != ""))
        query = (
            select(
                *OF_RUN,
                t.runs.c.job,
                t.trainings.c.id.label("training"),
                t.trainings.c.method,
                t.trainings.c.model,
                last.label("last"),
            )
            .join(t.trainings, isouter=True)
            .where(t.runs.c.id.in_(trains))
        )
        return [_training_run(row) for row in self.queries.all(query.order_by(t.runs.c.created.desc()).limit(OPEN))]

    def training(self, run: int) -> RowMapping | None:
        return self.queries.one(select(t.trainings).where(t.trainings.c.run_id == run))

    def statuses(self, training: int) -> Rows:
        table = t.training_statuses
        return self.queries.all(select(table).where(table.c.training_id == training).order_by(table.c.number))

    def moments(self, run: int, kind: str | None = None, step: int | None = None) -> list[Moment]:
        """In the order of their steps; an evaluation stands after the step of which it is."""
        found = [self._moments(name, run, step) for name in KINDS if kind in (None, name)]
        order = {"baselines": 0, "steps": 1, "evals": 2}
        return sorted((one for some in found for one in some), key=lambda one: (one.step, order[one.kind]))

    def _moments(self, kind: str, run: int, step: int | None) -> list[Moment]:
        table = KINDS[kind]
        number = t.steps.c.number if kind == "steps" else table.c.step
        owner = t.groups.c[f"{kind.removesuffix('s')}_id"]
        lines = select(number.label("step"), table.c.id, table.c.at, table.c.figures)
        if kind == "steps":
            mine = t.trainings.c.run_id == run
            lines = lines.join(t.trainings, t.trainings.c.id == t.steps.c.training_id).where(mine)
        else:
            lines = lines.where(table.c.run_id == run, table.c.step.is_not(None))
        if step is not None:
            lines = lines.where(number == step)
        held = self.queries.all(lines)
        groups = (
            select(
                owner.label("owner"), func.count().label("groups"), _count(t.groups.c.dropped != "").label("dropped")
            )
            .where(owner.in_(lines.with_only_columns(table.c.id)))
            .group_by(owner)
        )
        rollouts = (
            select(
                owner.label("owner"),
                func.count().label("rollouts"),
                func.count(t.rollouts.c.success).label("scored"),
                func.sum(t.rollouts.c.success).label("solved"),
                _count(t.rollouts.c.outcome == "infra").label("void"),
                func.sum(t.rollouts.c.total).label("sum"),
                func.count(t.rollouts.c.total).label("totals"),
            )
            .join(t.groups, t.groups.c.id == t.rollouts.c.group_id)
            .where(t.rollouts.c.run_id == run, owner.in_(lines.with_only_columns(table.c.id)))
            .group_by(owner)
        )
        by_group = {row["owner"]: row for row in self.queries.all(groups)}
        by_rollout = {row["owner"]: row for row in self.queries.all(rollouts)}
        return [_moment(kind, row, by_group.get(row["id"]), by_rollout.get(row["id"])) for row in held]

    def groups(self, run: int, kind: str, step: int) -> list[ShownGroup]:
        """The groups of a step, evaluation or baseline, with their rollouts."""
        if kind == "steps":
            owners = select(t.steps.c.id).join(t.trainings, t.trainings.c.id == t.steps.c.training_id)
            owners = owners.where(t.trainings.c.run_id == run, t.steps.c.number == step)
        else:
            table = KINDS[kind]
            owners = select(table.c.id).where(table.c.run_id == run, table.c.step == step)
        column = t.groups.c[f"{kind.removesuffix('s')}_id"]
        groups = self.queries.all(
            select(t.groups, t.tasks.c.task, t.environments.c.benchmark)
            .join(t.tasks, t.tasks.c.id == t.groups.c.task_id)
            .join(t.environments, t.environments.c.id == t.tasks.c.environment_id)
            .where(column.in_(owners))
            .order_by(t.groups.c.number)
        )
        members: dict[int, list[RowMapping]] = {}
        query = rollouts_query().where(column.in_(owners)).order_by(t.rollouts.c.number)
        for row in self.queries.all(query):
            members.setdefault(row["group_id"], []).append(row)
        return [ShownGroup(group, members.get(group["id"], [])) for group in groups]

    def members(self, group: int) -> Rows:
        """The rollouts of a group, in their order."""
        return self.queries.all(
            rollouts_query().where(t.groups.c.id == group).order_by(t.rollouts.c.number, t.rollouts.c.id)
        )


class _Input(msgspec.Struct):
    url: str = ""
    output: str = ""


class _Job(msgspec.Struct):
    """What the page needs of a job.json."""

    inputs: dict[str, _Input] = {}
    config: dict[str, Any] | None = None


def _training_run(row: RowMapping) -> TrainingRun:
    try:
        job = decode(row["job"], _Job) if row["job"] else _Job()
    except msgspec.MsgspecError:  # its text was cut
        job = _Job()
    step = row["step"] if row["last"] is None else row["last"]
    told = row["training"] is not None
    return TrainingRun(row, row["method"] or row["trains"], row["model"] or _model(job), step, row["total"], told)


def _model(job: _Job) -> str:
    """The model that a job trains: where its input comes from, else as its configuration names it."""
    model = (job.config or {}).get("model")
    if not isinstance(model, str):
        return ""
    of = job.inputs.get(model.removeprefix(_INPUT)) if model.startswith(_INPUT) else None
    if of is None:
        return model
    return of.url or f"the output {of.output} of another run"


def _count(condition: Any) -> Any:
    return func.sum(case((condition, 1), else_=0))


def _moment(kind: str, row: RowMapping, groups: RowMapping | None, rollouts: RowMapping | None) -> Moment:
    totals = rollouts["totals"] if rollouts is not None else 0
    return Moment(
        kind,
        row["step"],
        row["at"],
        figures_of(row["figures"]),
        groups["groups"] if groups is not None else 0,
        int(groups["dropped"] or 0) if groups is not None else 0,
        rollouts["rollouts"] if rollouts is not None else 0,
        rollouts["scored"] if rollouts is not None else 0,
        int(rollouts["solved"] or 0) if rollouts is not None else 0,
        int(rollouts["void"] or 0) if rollouts is not None else 0,
        rollouts["sum"] / totals if rollouts is not None and totals else None,
    )


def figures_of(body: str) -> Mapping[str, float | None]:
    """Names and numbers of a column that holds them; none where it was cut."""
    try:
        return decode(body, dict[str, float | None]) if body else {}
    except msgspec.MsgspecError:
        return {}
