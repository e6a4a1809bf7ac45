"""Decides what to delete and what must stay. Pure: takes a survey and the user's selection, returns names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from launcher.deleting.survey import Known


@dataclass(frozen=True)
class DeletionSelection:
    """Selects ended runs by all the given criteria together; without any criterion, none.

    older_than  seconds since their end, by the store's clock
    keep        how many runs of each job name stay: the newest of those with these labels and states
    """

    older_than: float | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    states: Collection[str] = ()
    keep: int | None = None

    @property
    def any(self) -> bool:
        return self.older_than is not None or bool(self.labels) or bool(self.states) or self.keep is not None


def selected(runs: Mapping[str, Known], wanted: DeletionSelection, now: float) -> list[str]:
    """The selected runs, the oldest first, including those that must stay."""
    if not wanted.any:
        return []
    by_name: dict[str, list[Known]] = defaultdict(list)
    for known in runs.values():
        if known.ended is not None and not known.deleted and _matches(known, wanted):
            by_name[known.name].append(known)
    chosen: list[Known] = []
    for group in by_name.values():
        group.sort(key=lambda known: (known.created, known.run), reverse=True)
        chosen += group[wanted.keep or 0 :]
    if wanted.older_than is not None:
        chosen = [known for known in chosen if now - (known.ended or 0.0) > wanted.older_than]
    return [known.run for known in sorted(chosen, key=lambda known: (known.ended, known.run))]


def _matches(known: Known, wanted: DeletionSelection) -> bool:
    if wanted.states and known.outcome not in wanted.states:
        return False
    return all(key in known.labels and value in (None, known.labels[key]) for key, value in wanted.labels.items())


def find_needed(runs: Mapping[str, Known], going: Collection[str], *, whole: bool = True) -> dict[str, str]:
    """Run -> why it must stay, for the runs of `going` that another run needs.

    whole  the runs' outputs are to be deleted; False: only some of their checkpoints

    An open run needs the runs that its inputs name, the runs that did a work which it reads, and the runs of its own
    work: it may be adopting their results now. A run whose results were adopted stays while an adopting run stays. A
    run that cannot be read may need any other: then all others stay.
    """
    named: dict[str, str] = {}
    wanted: dict[str, str] = {}
    for known in runs.values():
        if known.ended is None:
            named |= dict.fromkeys(known.runs, f"{known.run} needs it and has not ended")
            wanted |= dict.fromkeys(known.works, f"{known.run} reads it and has not ended")
            wanted.setdefault(known.work, f"{known.run} does the same work, has not ended and may take its results")
    unread = next((known.run for known in runs.values() if known.unreadable and known.run not in going), "")
    stays: dict[str, str] = {}
    for run in going:
        known = runs[run]
        if unread and not known.unreadable:
            stays[run] = unread_needs(unread)
        elif known.ended is None and not known.unreadable:
            stays[run] = f"it has not ended: launcher cancel {run}"
        elif run in named:
            stays[run] = named[run]
        elif known.outcome == "succeeded" and known.work in wanted:
            stays[run] = wanted[known.work]
    if whole:
        _keep_adopted(runs, going, stays)
    return stays


def unread_needs(run: str) -> str:
    return f"{run} cannot be read, so nobody knows what it needs: launcher rm {run}"


def _keep_adopted(runs: Mapping[str, Known], going: Collection[str], stays: dict[str, str]) -> None:
    """Adds to `stays` the runs whose results were adopted by runs that stay."""
    adopting = [known for known in runs.values() if known.adopted and not known.deleted]
    adopting = [known for known in adopting if known.run not in going or known.run in stays]
    while adopting:
        known = adopting.pop()
        run = known.adopted
        if run in going and run not in stays:
            stays[run] = f"its results are also those of {known.run}"
            if runs[run].adopted:
                adopting.append(runs[run])
