"""What people said of rollouts, beside what the checkers said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import RowMapping, Select, and_, func, select

from launcher.monitor import tables as t
from launcher.monitor.server.queries.runs import Queries, Rows
from launcher.results.stats import Interval, wilson

SHOWN: Final = 200
Judged = Mapping[tuple[int, str], Sequence[RowMapping]]


class Agreement(NamedTuple):
    """Of rollouts that a person and a checker judged: in how many both say the same, with Wilson's interval.

    both, neither             both say solved; both say failed
    only_person, only_checker who says solved, where the other says failed
    """

    both: int
    neither: int
    only_person: int
    only_checker: int

    @property
    def judged(self) -> int:
        return sum(self)

    @property
    def same(self) -> int:
        return self.both + self.neither

    @property
    def interval(self) -> Interval | None:
        return wilson(self.same, self.judged)


class VerdictQueries:
    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    def of(self, runs: Iterable[int]) -> Judged:
        """(run, place) -> the verdict of each person that counts, the newest first."""
        query = _verdicts().where(t.runs.c.id.in_(sorted(set(runs))))
        found: dict[tuple[int, str], list[RowMapping]] = {}
        for row in self.queries.all(query.order_by(t.verdicts.c.name.desc())):
            mine = found.setdefault((row["run_id"], row["place"]), [])
            if all(other["person"] != row["person"] for other in mine):
                mine.append(row)
        return found

    def trail(self, page: int = 0) -> Rows:
        """All that was ever said, the newest first."""
        query = _verdicts().order_by(t.verdicts.c.name.desc(), t.verdicts.c.run)
        return self.queries.all(query.limit(SHOWN).offset(page * SHOWN))

    def of_rollout(self, run: int, place: str) -> Rows:
        """All that was said of a rollout, the newest first; with what does not count any more."""
        query = _verdicts().where(t.runs.c.id == run, t.verdicts.c.place == place)
        return self.queries.all(query.order_by(t.verdicts.c.name.desc()))

    def count(self) -> int:
        found = self.queries.one(select(func.count().label("count")).select_from(t.verdicts))
        return int(found["count"]) if found is not None else 0

    def agreement(self, run: int | None = None, *, blind: bool = False) -> Agreement:
        """Each rollout counts once: by the newest verdict that says solved or failed."""
        query = (
            select(t.rollouts.c.id, t.rollouts.c.success.label("checked"), t.verdicts.c.success)
            .select_from(t.verdicts)
            .join(t.runs, and_(t.runs.c.store_id == t.verdicts.c.store_id, t.runs.c.run == t.verdicts.c.run))
            .join(t.rollouts, and_(t.rollouts.c.run_id == t.runs.c.id, t.rollouts.c.place == t.verdicts.c.place))
            .where(t.rollouts.c.success.is_not(None), t.verdicts.c.success.is_not(None))
            .order_by(t.verdicts.c.name)
        )
        if run is not None:
            query = query.where(t.runs.c.id == run)
        if blind:
            query = query.where(t.verdicts.c.blind == 1)
        newest = {row["id"]: (bool(row["success"]), bool(row["checked"])) for row in self.queries.all(query)}
        pairs = list(newest.values())
        return Agreement(*(pairs.count(pair) for pair in ((True, True), (False, False), (True, False), (False, True))))

    def runs(self) -> Rows:
        """Runs of whose rollouts somebody said something."""
        query = (
            select(t.runs.c.id, t.runs.c.name, t.runs.c.run, func.count().label("verdicts"))
            .join(t.verdicts, and_(t.verdicts.c.store_id == t.runs.c.store_id, t.verdicts.c.run == t.runs.c.run))
            .group_by(t.runs.c.id, t.runs.c.name, t.runs.c.run)
        )
        return self.queries.all(query.order_by(t.runs.c.created.desc(), t.runs.c.id))

    def unjudged(self, run: int, person: str) -> int | None:
        """A rollout of the run with turns that the person has not judged; in an order that says nothing."""
        said = (
            select(t.verdicts.c.place)
            .join(t.runs, and_(t.runs.c.store_id == t.verdicts.c.store_id, t.runs.c.run == t.verdicts.c.run))
            .where(t.runs.c.id == run, t.verdicts.c.person == person)
        )
        query = select(t.rollouts.c.id).where(
            t.rollouts.c.run_id == run,
            t.rollouts.c.success.is_not(None),
            t.rollouts.c.place.not_in(said),
            t.rollouts.c.id.in_(select(t.turns.c.rollout_id)),
        )
        found = self.queries.one(query.order_by(t.rollouts.c.id).limit(1))  # ids are hashes
        return int(found["id"]) if found is not None else None


def _verdicts() -> Select[Any]:
    """Verdicts with their run and rollout, where these are there."""
    return (
        select(
            t.verdicts,
            t.runs.c.id.label("run_id"),
            t.runs.c.name.label("run_name"),
            t.rollouts.c.id.label("rollout"),
            t.rollouts.c.outcome,
            t.rollouts.c.success.label("checked"),
        )
        .join(
            t.runs,
            and_(t.runs.c.store_id == t.verdicts.c.store_id, t.runs.c.run == t.verdicts.c.run),
            isouter=True,
        )
        .join(
            t.rollouts,
            and_(t.rollouts.c.run_id == t.runs.c.id, t.rollouts.c.place == t.verdicts.c.place),
            isouter=True,
        )
    )
