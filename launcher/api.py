"""The verbs as functions, for scripts and notebooks. docs/reference/python.md shows how to use them.

    from launcher import load, submit, wait, results

No function prints or ends the process. Errors are `SlipwayError`s: `BadInput` (your input is wrong), `NotFound`,
`Unreachable` (the store, a backend), `Conflict` (something else already has the name).

`names` are the same as on the command line (a run, a group, a job's name, the unique beginning of an id, `GROUP/NAME`),
one or several, or the `Jobs` that were submitted. `store` and `profile` are `--store` and `--profile` of the command
line. `cwd` is the folder with the `slipway.yaml` to use, from which relative paths start; None: the working folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from launcher.errors import BadInput, NoCapacity, NotFound

if TYPE_CHECKING:  # each function imports what it needs, so that `from launcher import load` stays fast
    from launcher.selection.select import Selection
    from launcher.spec.profile import Profile
    from launcher.spec.read.load import Loaded
    from launcher.spec.resolve.group import Group
    from launcher.store.base import Store
    from launcher.verbs.cancel import Cancelled
    from launcher.verbs.gather import Gathered
    from launcher.verbs.status import Line
    from launcher.verbs.submit import Submitted


class Jobs(msgspec.Struct, frozen=True):
    """Loaded and resolved jobs, not yet submitted.

    runs      the runs' ids; a run comes after those whose outputs it reads
    names     run -> its display name: `train`, `train[lr=0.1]`
    variants  run -> its matrix values: {"config.lr": 0.1}; empty without a matrix
    group     the same as the launcher's own structure
    profile   the store, the backend's settings and prices
    """

    group: Group
    profile: Profile

    def __repr__(self) -> str:
        return "Jobs()"

    @property
    def runs(self) -> tuple[str, ...]:
        from launcher.spec.hashing import run_id

        return tuple(run_id(job) for job in self.group.runs)

    @property
    def names(self) -> Mapping[str, str]:
        return dict(self.group.names)

    @property
    def variants(self) -> Mapping[str, Mapping[str, Any]]:
        return {run: dict(job.variant) for run, job in zip(self.runs, self.group.runs, strict=True)}


Names = str | Jobs | Iterable[str | Jobs]


def load(
    jobs: str | Path | Mapping[str, Any] | Sequence[str | Path],
    *,
    overrides: Sequence[str] = (),
    backend: str | None = None,
    fresh: int = 0,
    store: str | None = None,
    profile: str | None = None,
    cwd: Path | str | None = None,
) -> Jobs:
    """Reads job files and folders, or one job as a mapping with the fields of a file, and resolves them.

    docs/reference/job.md lists the fields.

    `overrides` are texts as for `--set` (`limits.deadline=1h`); another number for `fresh` runs the same work once
    more. Raises BadInput with every problem found. Uses no network and no clock.
    """
    from launcher.spec.read.load import load as read
    from launcher.spec.read.load import load_value

    _check_options(backend, fresh)
    where = _folder(cwd)
    if isinstance(jobs, Mapping):
        loaded = load_value(jobs, {}, cwd=where, overrides=overrides)
    else:
        paths = [jobs] if isinstance(jobs, str | Path) else jobs
        loaded = read([str(path) for path in paths], overrides=overrides, cwd=where)
    return resolve_loaded(loaded, backend=backend, fresh=fresh, store=store, profile=profile, cwd=where)


def _check_options(backend: str | None, fresh: int) -> None:
    from launcher.spec.backends import backends as known

    if backend is not None and backend not in known():
        from launcher.spec.values.problems import near

        hint = near(backend, known())
        raise BadInput(f"--backend: `{backend}` is not known{hint}; allowed: {', '.join(known())}")
    if fresh < 0:
        raise BadInput("--fresh: a number from 0")


def resolve_loaded(
    loaded: Loaded,
    *,
    backend: str | None = None,
    fresh: int = 0,
    store: str | None = None,
    profile: str | None = None,
    cwd: Path,
) -> Jobs:
    """Resolves jobs that were read already, as `load` does. Raises BadInput."""
    from launcher.spec.backends import traits
    from launcher.spec.model import named_backends
    from launcher.spec.profile import load_profile
    from launcher.spec.resolve.group import resolve

    settings = load_profile(cwd, profile, os.environ, store)
    said = [
        named_backends(one.values.get("backend")) or (settings.backend,) for job in loaded.jobs for one in job.variants
    ]
    environment = ""
    if not all(traits(name).runs_images for names in ([(backend,)] if backend else said) for name in names):
        from launcher.spec.code.environment import local_environment

        environment = local_environment(settings.local.ignore, python=settings.local.python).digest
    return Jobs(resolve(loaded, settings, environment=environment, backend=backend, fresh=fresh), settings)


def render(jobs: Jobs) -> dict[str, str]:
    """Returns exactly what `submit` would send: file name -> YAML text. Changes nothing and uses no network. Raises
    BadInput."""
    from launcher.backends.base import renderer
    from launcher.spec.resolve.group import with_positions

    documents: dict[str, str] = {}
    for name in dict.fromkeys(job.backend for job in jobs.group.runs):
        some = [job for job in jobs.group.runs if job.backend == name]
        with with_positions(jobs.group):
            documents.update(renderer(name, jobs.profile.backend_options(name))(some).documents)
    return documents


def submit(
    jobs: Jobs,
    *,
    dry_run: bool = False,
    budget: str | None = None,
    ceiling: str | None = None,
    without_price: bool = False,
    wait_for_capacity: float | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[Submitted]:
    """Submits, exactly once: the same jobs again find the same runs, and work that has succeeded is not done again.

    Returns one `Submitted` per run, in the order of `jobs.runs`. `state` is submitted, attached (it exists already),
    succeeded, failed or cancelled (it had ended before; `reason` and `message` say why). `dry_run` writes nothing.
    `budget` (`200 USD`): refuse unless all runs together cost at most this. `ceiling` (`200 USD`): all runs are
    stopped, checkpoint first, before they have cost more together; another submit of the same jobs changes it.
    `without_price`: submit although what a machine costs is not known. `wait_for_capacity`: seconds to wait for a free
    machine, in place of those that the jobs name, and no part of the run. `tell` is given a line for each new run of
    which only the code, the image or the packages differ from the newest of its name that was submitted here. Raises
    BadInput, Conflict, Unreachable.
    """
    from launcher.backends.base import backend
    from launcher.spec.backends import check_wait, of_machine, traits
    from launcher.spec.code.environment import check_environment, local_environment, store_environment
    from launcher.spec.code.own_files import remember_outputs
    from launcher.spec.resolve.group import with_positions
    from launcher.store import open_store
    from launcher.store.opening import memory
    from launcher.userdata.cluster_contexts import remember
    from launcher.userdata.submits import folder
    from launcher.userdata.submits import remember as keep_newest
    from launcher.verbs.estimate import check_price, plan_ceiling
    from launcher.verbs.submit import Submitted
    from launcher.verbs.submit import submit as send

    group, settings = jobs.group, jobs.profile
    check_price(group, settings.prices, budget, without_price=without_price)
    most = plan_ceiling(group, settings.prices, ceiling) if ceiling is not None else None
    names = sorted({job.backend for job in group.runs})
    if len(names) > 1:
        raise BadInput(f"one submit goes to one backend; these jobs name {', '.join(names)}: give --backend")
    options = settings.backend_options(names[0])
    ways = [dict(group.machine.get(run, {})) for run in jobs.runs]
    if any(way != ways[0] for way in ways):
        told = ", ".join(sorted({"; ".join(f"{k}: {v}" for k, v in way.items()) or "none" for way in ways}))
        raise BadInput(f"one submit goes to one cluster; these jobs name several: {told}")
    waiting = {} if wait_for_capacity is None else {"waiting": check_wait(group.runs, wait_for_capacity)}
    target = backend(names[0], {**options, **ways[0], **group.runs[0].options, **waiting})
    cache = memory(os.environ)
    if not dry_run and traits(names[0]).machine:
        remember(group.runs, ways[0] if ways[0] != of_machine(names[0], options) else {})
    store = open_store(settings.store)
    environment = None
    if not traits(names[0]).runs_images:
        environment = local_environment(settings.local.ignore, python=settings.local.python, remember=not dry_run)
        check_environment(group.runs, environment)
        if not dry_run:  # before the runtime compares with it
            store_environment(environment)
    try:
        overlays = group.packed
        with with_positions(group):
            done = send(
                group,
                store,
                target,
                overlays=overlays,
                checked=cache,
                plan=dry_run,
                notes=folder(),
                ceiling=most,
                tell=tell or (lambda line: None),
                environment=environment,
            )
        if not dry_run:
            remember_outputs()
            keep_newest(
                store.url, {group.names.get(run, run): job for run, job in zip(jobs.runs, group.runs, strict=True)}
            )
        return done
    except NoCapacity as error:
        if len(group.runs) > 1 or not group.runs[0].alternatives:
            raise
        from launcher.verbs.ask_backend import backends
        from launcher.verbs.move import move_until_placed

        (run,) = jobs.runs
        moved = move_until_placed(store, run, backends(settings), error)
        return [Submitted(run, group.names.get(run, run), "submitted", message=f"moved to {moved.backend}: {error}")]


def status(
    names: Names | None = None,
    *,
    labels: Mapping[str, str | None] | None = None,
    states: Collection[str] = (),
    store: str | None = None,
    profile: str | None = None,
    cwd: Path | str | None = None,
) -> list[Line]:
    """Returns the state of runs, one `Line` each (`run`, `name`, `state`, `step`, `progress`, `reason`, ...; times are
    seconds since the epoch): those of `names` in their order, or all runs, oldest first.

    `labels` (label -> value, None: any value) and `states` select runs. Like `launcher status`, it writes the final
    record of a run whose processes died before they could. A run that cannot be read has the state "damaged". Raises
    NotFound, Unreachable.
    """
    from launcher.userdata.cache import Cache
    from launcher.verbs.applied import write_all
    from launcher.verbs.ask_backend import backends
    from launcher.verbs.status import damaged, list_runs, matches, read_lines

    opened, settings, chosen = _chosen(names, store, profile, cwd)
    runs = chosen.runs if chosen is not None else tuple(list_runs(opened))
    if chosen is None:
        runs = (*runs, *write_all(opened, runs, settings, say=lambda text: None))
    with Cache() as cache:
        lines, problems = read_lines(opened, runs, cache=cache, backend_of=backends(settings))
    by_run = {line.run: line for line in (*lines, *map(damaged, problems))}
    lines = [by_run[run] for run in runs if run in by_run and matches(by_run[run], labels or {}, tuple(states))]
    return lines if chosen is not None else sorted(lines, key=lambda line: (line.created or 0.0, line.run))


def wait(
    names: Names,
    *,
    timeout: float | None = None,
    ended: Callable[[Line], None] = lambda line: None,
    store: str | None = None,
    profile: str | None = None,
    cwd: Path | str | None = None,
) -> list[Line]:
    """Returns the lines of runs when all have ended, or after `timeout` seconds; then `line.final` is False for some.

    `ended` is called once for each run that ends, with its line. Raises NotFound, Unreachable.
    """
    from launcher.verbs.ask_backend import backends
    from launcher.verbs.wait import wait_for

    opened, settings, chosen = _chosen(names, store, profile, cwd)
    assert chosen is not None
    deadline = None if timeout is None else time.monotonic() + timeout
    return wait_for(opened, chosen.runs, backends(settings), deadline, ended)


def results(
    names: Names,
    *,
    store: str | None = None,
    profile: str | None = None,
    cwd: Path | str | None = None,
) -> list[dict[str, Any]]:
    """Returns one row per metric of every run, with its interval and origin; a run without metrics is one row with
    `problem`. The keys are the columns of `launcher results -o csv`: `benchmark`, `metric`, `value`, `ci_low`,
    `ci_high`, `n`, `run`, `name`, `variant`, `cost`, ... Raises NotFound, Unreachable."""
    from launcher.results.facts import load_facts
    from launcher.results.rows import by_depth, load_rows

    opened, settings, chosen = _chosen(names, store, profile, cwd)
    assert chosen is not None
    facts = load_facts(opened, by_depth(chosen.runs, chosen.edges), chosen.names, settings.prices)
    return [row.flat() for row in load_rows(opened, facts)]


def gather(
    names: Names,
    to: str | Path,
    *,
    what: Iterable[str] = ("all",),
    store: str | None = None,
    profile: str | None = None,
    cwd: Path | str | None = None,
) -> list[Gathered]:
    """Copies runs to a folder or to another store (its URL) and verifies them; a second call copies only what is new.

    `what`: results, checkpoints, logs, metrics, or all. If a part of a run cannot be copied, its `error` says so.
    Raises BadInput, NotFound, Unreachable.
    """
    from launcher.verbs.gather import gather as copy

    opened, _, chosen = _chosen(names, store, profile, cwd)
    assert chosen is not None
    target = to if isinstance(to, str) and "://" in to else str(_folder(cwd) / to)
    return copy(opened, chosen.runs, target, what=what, groups=chosen.groups)


def cancel(
    names: Names,
    *,
    reason: str = "",
    store: str | None = None,
    profile: str | None = None,
    cwd: Path | str | None = None,
) -> list[Cancelled]:
    """Cancels runs: `state` is `stopping`, or the final state of a run that had ended before. Raises NotFound,
    Unreachable."""
    from launcher.userdata.record_cache import Memory
    from launcher.verbs.cancel import cancel_jobs, cancel_unread, named_jobs

    opened, settings, chosen = _chosen(names, store, profile, cwd)
    assert chosen is not None
    found = named_jobs(opened, chosen.runs, Memory(opened))
    asked = cancel_unread(opened, found.unread, reason=reason)
    return [*cancel_jobs(opened, found.jobs, settings, reason=reason), *asked]


def logs(
    name: str | Jobs,
    *,
    role: str | None = None,
    rank: int = 0,
    attempt: int | None = None,
    store: str | None = None,
    profile: str | None = None,
    cwd: Path | str | None = None,
) -> Iterator[str]:
    """Yields the lines (without line ends) that one rank of one run has printed so far; `attempt`: the last by default.
    Invalid UTF-8 becomes U+FFFD. Raises BadInput when `name` means several runs, NotFound."""
    opened, _, chosen = _chosen(name, store, profile, cwd)
    assert chosen is not None
    run = chosen.only(name if isinstance(name, str) else name.runs[0])
    return _lines(opened, run, role, rank, attempt)


def _lines(store: Store, run: str, role: str | None, rank: int, attempt: int | None) -> Iterator[str]:
    from launcher.protocol.deleted import why_missing
    from launcher.protocol.read import read_run
    from launcher.store.layout import RunKeys
    from launcher.store.logs import Log

    view = read_run(store, run, full=False)
    if view.result is not None and view.result.adopted is not None:
        run, adopted = view.result.source(run)
        view, attempt = read_run(store, run, full=False), attempt or adopted
    numbers = [one.number for one in view.computing]
    number = attempt if attempt is not None else max(numbers, default=0)
    if number not in numbers:
        raise NotFound(f"{run}: {why_missing(store, run) or f'no attempt {number}' if number else 'it has not begun'}")
    assert view.job is not None
    member = f"{role or view.job.leading}-{rank}"
    if member not in view.job.members():
        raise NotFound(f"{run} has no member {member}; it has {', '.join(view.job.members())}")
    rest = b""
    for piece in Log(store, RunKeys(run).attempt(number), member).more():
        *whole, rest = (rest + piece.body).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def _folder(cwd: Path | str | None) -> Path:
    folder = Path.cwd() if cwd is None else Path(cwd).absolute()
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a name that no system allows
        raise BadInput(f"cwd: {folder} is not a folder")
    return folder


def _chosen(
    names: Names | None, store: str | None, profile: str | None, cwd: Path | str | None
) -> tuple[Store, Profile, Selection | None]:
    """The store, the profile, and the runs that `names` means; `Jobs` use their own store."""
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.verbs.applied import select_runs

    given: list[str | Jobs] = [] if names is None else [names] if isinstance(names, str | Jobs) else list(names)
    jobs = [item for item in given if isinstance(item, Jobs)]
    where = store or (jobs[0].profile.store if jobs else None)
    settings = load_profile(_folder(cwd), profile, os.environ, where)
    opened = open_known(settings.store)
    wanted = [name for item in given for name in (item.runs if isinstance(item, Jobs) else (item,))]
    chosen = select_runs(opened, wanted, settings, say=lambda text: None) if names is not None else None
    if chosen is not None and jobs:
        from msgspec.structs import replace

        called = {run: name for item in jobs for run, name in item.names.items()}
        edges = {run: above for item in jobs for run, above in item.group.edges.items()}
        chosen = replace(chosen, names={**called, **chosen.names}, edges={**edges, **chosen.edges})
    return opened, settings, chosen
