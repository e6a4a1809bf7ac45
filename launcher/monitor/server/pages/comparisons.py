"""Two agents on the same tasks: the difference as `launcher compare` computes it, and the tasks that changed side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import RowMapping
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from launcher.errors import BadInput
from launcher.monitor.episodes import sources
from launcher.monitor.rows import text
from launcher.monitor.server.blind_mode import Hiding
from launcher.monitor.server.pages.formats import row_id
from launcher.monitor.server.queries.evaluations import EvaluationQueries
from launcher.monitor.server.queries.runs import Queries
from launcher.monitor.server.queries.verdicts import VerdictQueries
from launcher.results import identity
from launcher.results.compare import Comparison, compare
from launcher.results.read import RESULTS, DetailedResult, StoredOutput, open_output
from launcher.results.rows import SUCCESS
from launcher.store.base import Store

PICTURED: Final = 50  # changed tasks that are shown with their last screens; the others are named


class ChangedTask(NamedTuple):
    """A task that one side solved and the other did not. `gained`: the right side solved it."""

    gained: bool
    left: RowMapping
    right: RowMapping


class Side(NamedTuple):
    of: RowMapping
    name: str
    tasks: dict[int, DetailedResult]  # by the id of the try
    rows: dict[int, RowMapping]


@dataclass
class ComparisonPages:
    """`page` renders a template, `store` gives the store of a URL or raises 404."""

    queries: Queries
    verdicts: VerdictQueries
    page: Callable[..., HTMLResponse]
    store: Callable[[str], Store]
    person: str

    def __post_init__(self) -> None:
        self.of = EvaluationQueries(self.queries)

    def evaluations(self, request: Request) -> Response:
        return self.page("evaluations.html", evaluations=self.of.evaluations())

    def compare(self, request: Request) -> Response:
        left, right = (self._side(request.query_params.get(name, "")) for name in ("a", "b"))
        if left.name == right.name:
            raise HTTPException(404, "these two are the same agent of the same run")
        judged = self.verdicts.of({left.of["run_id"], right.of["run_id"]})
        values: dict[str, Any] = {"left": left, "right": right, "judged": judged, "problem": ""}
        values |= {"comparisons": [], "changed": [], "screens": {}}
        if not Hiding(self.person, judged).any([*left.rows.values(), *right.rows.values()]):
            try:
                values["comparisons"] = _comparisons(left, right)
            except BadInput as error:
                values["problem"] = str(error)
            else:
                values["changed"] = changed = changed_tasks(left, right)
                first = [row["id"] for each in changed[:PICTURED] for row in (each.left, each.right)]
                values["screens"] = self.of.last_screens(first)
        return self.page("comparison.html", **values)

    def _side(self, owner: str) -> Side:
        found = self.of.side(row_id(owner))
        if found is None:
            raise HTTPException(404, "no such agent of an evaluation")
        name = f"{found['agent']} of {found['run']}" if found["agent"] else found["run"]
        return Side(found, name, self._tasks(found), self.of.rollouts(found["owner"]))

    def _tasks(self, side: RowMapping) -> dict[int, DetailedResult]:
        """The results of one side, from the store: the database has not all that a comparison needs."""
        held = next((row for row in self.queries.parts("outputs", side["run_id"]) if row["name"] == RESULTS), None)
        output = open_output(self.store(side["url"]), side["run"], held["attempt"]) if held is not None else None
        return _of_side(side, output) if output is not None else {}

    def pair(self, request: Request) -> Response:
        """Two tries side by side, of whatever runs."""
        names = ("left", "right")
        left, right = (self.queries.rollout(row_id(request.query_params.get(name, ""))) for name in names)
        if left is None or right is None:
            raise HTTPException(404, "no such try")
        parting = self.queries.parting(left["id"], right["id"])
        judged = self.verdicts.of({left["run_id"], right["run_id"]})
        return self.page("pair.html", left=left, right=right, parting=parting, judged=judged)


def _of_side(side: RowMapping, output: StoredOutput) -> dict[int, DetailedResult]:
    wanted = (bool(side["baseline"]), side["agent"], side["benchmark"], side["version"])
    return {
        source.id: task
        for source in sources(side["run_id"], output)
        if (task := source.task) is not None
        and (source.baseline, text(task.agent), text(task.benchmark), text(task.version)) == wanted
    }


def _comparisons(left: Side, right: Side) -> Sequence[Comparison]:
    return compare(left.name, list(left.tasks.values()), right.name, list(right.tasks.values()), SUCCESS)


def changed_tasks(left: Side, right: Side) -> list[ChangedTask]:
    """The tasks that changed side, among those that `compare` pairs; the lost ones first."""
    others = {task.key: (key, task) for key, task in right.tasks.items()}
    found = []
    for key, task in left.tasks.items():
        other, same = others.get(task.key, (0, None))
        if same is None or not identity.same_task(task, same) or key not in left.rows or other not in right.rows:
            continue
        values = task.value(SUCCESS), same.value(SUCCESS)
        if None not in values and values[0] != values[1]:
            found.append(ChangedTask(values[1] == 1.0, left.rows[key], right.rows[other]))
    return sorted(found, key=lambda each: (each.gained, each.left["task"], each.left["seed"]))
