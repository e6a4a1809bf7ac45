"""Runs that somebody applied to a backend without `launcher submit` (Argo CD, Flux, kubectl) and that have not started:
the store does not know them, so they are looked for on the backend, and their job.json is written from its objects.

Nothing is written of an object that does not run what its jobs say. A run whose pod has started is in the store: its
runtime wrote job.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from launcher.backends.abilities import CarriedRun, Carries
from launcher.backends.base import Backend, backend
from launcher.errors import BadInput, SlipwayError
from launcher.parallel import Threads
from launcher.protocol.applied import write_applied
from launcher.protocol.view import RunView
from launcher.selection.select import Selection, say, select
from launcher.spec.backends import backends
from launcher.spec.check.schema import RUN_ID
from launcher.spec.model import ResolvedJob
from launcher.spec.profile import Profile
from launcher.store.base import Store
from launcher.store.find import read_group
from launcher.store.layout import RunKeys

PARALLEL: Final = 16
Say = Callable[[str], None]


def select_runs(store: Store, wanted: Sequence[str], profile: Profile, *, say: Say = say) -> Selection:
    """As `select`, of runs that were applied as well. Raises NotFound or BadInput."""
    write_named(store, wanted, profile, say)
    return select(store, wanted, say=say)


def write_named(store: Store, wanted: Sequence[str], profile: Profile, say: Say = say) -> None:
    """Writes job.json of every run that was applied, that a name means, and that the store does not know."""
    ids, beginnings = set(), set()
    for name in wanted:
        if "/" in name or not name:
            continue  # a job of a group: submit wrote it
        job, bracket, _ = name.partition("[")
        if not bracket and re.fullmatch(RUN_ID, name) is not None:
            if store.head(RunKeys(name).job) is None and read_group(store, name) is None:
                ids.add(name)
        elif bracket or read_group(store, name) is None:
            beginnings.add(job)
    if not ids and not beginnings:
        return
    for target in _backends(profile):
        try:
            for run in sorted(ids):
                _write(store, target.carried_with(run), say)
            if beginnings:
                _write(store, target.carried(partial(_begins, tuple(sorted(beginnings))), _url(store, profile)), say)
        except BadInput:
            continue  # this machine has no SDK, or no login
        except SlipwayError as error:
            say(f"runs that were applied and have not started are not known: {_first(error)}")


def write_all(store: Store, known: Collection[str], profile: Profile, say: Say = say) -> list[str]:
    """Writes job.json of every run that was applied and is not `known`; returns these runs."""
    noted: list[str] = []
    for target in _backends(profile):
        try:
            noted += write_unknown(store, known, target, _url(store, profile), say)
        except BadInput:
            continue
        except SlipwayError as error:
            say(f"runs that were applied and have not started are not shown: {_first(error)}")
    return noted


def write_unknown(store: Store, known: Collection[str], target: Carries, url: str, say: Say) -> list[str]:
    """The same of one backend. Raises SlipwayError where it does not answer."""
    return _write(store, unknown(known, target, url), say)


def unknown(known: Collection[str], target: Carries, url: str) -> Iterator[CarriedRun]:
    """The runs on a backend that are not `known`. Raises SlipwayError where it does not answer."""
    there = set(known)
    return target.carried(lambda run: run not in there, url)


def listed_by_gitops(target: Backend, view: RunView) -> bool:
    """Whether a tool that applies objects from Git has the run's on its list. Raises SlipwayError."""
    claims = [claim for attempt in view.since_move[-1:] for claim in attempt.claims.values()]
    return isinstance(target, Carries) and target.kept(view.run, [claim.placement for claim in claims])


def _write(store: Store, carried: Iterable[CarriedRun], say: Say) -> list[str]:
    faults: dict[str, str] = {}  # of an object, once
    jobs = []
    for each in carried:
        if each.job is None:
            faults.setdefault(each.fault, each.run)
        elif _same(each.job.store, store):
            jobs.append((each.run, each.job, each.place.get("namespace", "")))
    for fault, run in faults.items():
        # a name also means runs that were submitted: of these the store has the job, whatever became of the object
        if store.head(RunKeys(run).job) is None:
            say(f"{run} is not written into the store: {fault}")
    with Threads(PARALLEL, "applied") as threads:
        written = threads.map(lambda item: _write_one(store, *item), jobs)
        return [run for (run, *_), new in zip(jobs, written, strict=True) if new]


def _write_one(store: Store, run: str, job: ResolvedJob, namespace: str) -> bool:
    if store.head(RunKeys(run).job) is not None:
        return False
    write_applied(store, run, job, namespace)
    return True


def _same(url: str, store: Store) -> bool:
    return url.partition("?")[0].rstrip("/") == store.url.partition("?")[0].rstrip("/")


def _url(store: Store, profile: Profile) -> str:
    """The store as objects name it."""
    return profile.store if _same(profile.store, store) else store.url


def _backends(profile: Profile) -> Iterator[Carries]:
    """The backends of this profile whose objects carry their jobs; none where its SDK or login is missing."""
    for name, backend_traits in backends().items():
        if not backend_traits.carries or (name != profile.backend and name not in profile.blocks):
            continue
        try:
            target = backend(name, profile.backend_options(name))
        except BadInput:
            continue
        if isinstance(target, Carries):
            yield target


def _begins(beginnings: tuple[str, ...], run: str) -> bool:
    return run.startswith(beginnings)


def _first(error: SlipwayError) -> str:
    return str(error).partition("\n")[0]
