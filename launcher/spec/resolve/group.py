"""Loaded jobs and a profile -> runs. The same bytes give the same runs on any machine. Reads nothing from the disk but
the folders of code overlays, because only the profile says where the store and the local state are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from launcher.errors import BadInput, Problem
from launcher.spec.backends import of_machine
from launcher.spec.hashing import group_id, run_id, work_hash
from launcher.spec.model import Input, ResolvedJob
from launcher.spec.profile import Profile
from launcher.spec.read.load import Loaded, LoadedJob
from launcher.spec.read.matrix import MAX_VARIANTS
from launcher.spec.resolve.matrix_inputs import ResolvedRun, Runs, joined
from launcher.spec.resolve.matrix_inputs import label as label_of_picks
from launcher.spec.resolve.one_job import Resolver
from launcher.spec.secrets.disclosure import OF_STORE, of_store
from launcher.spec.values.problems import Problems
from launcher.spec.values.source import Route, dotted
from launcher.spec.values.types import Context

if TYPE_CHECKING:
    from launcher.spec.code.overlay import Overlay, Packed
    from launcher.spec.code.venv import VenvArchive


class Group(msgspec.Struct, frozen=True, dict=True):  # dict: for cached properties
    """The runs of one submit; each comes after the runs that it waits for."""

    id: str
    runs: tuple[ResolvedJob, ...]
    edges: Mapping[str, tuple[str, ...]]  # run -> the runs that it takes inputs from
    names: Mapping[str, str]  # run -> its name for users: sft, sft[lr=1e-05]
    code: Mapping[str, Overlay] = {}  # by digest
    environments: Mapping[str, VenvArchive] = {}  # by digest
    machine: Mapping[str, Mapping[str, Any]] = {}  # run -> options that are not part of it: `Traits.machine`
    _made: tuple[ResolvedRun, ...] = ()
    _profile: Profile | None = None

    @property
    def packed(self) -> Mapping[str, Packed]:
        """Everything that a submit uploads, by digest."""
        return {**self.code, **self.environments}

    @property
    def images(self) -> Mapping[str, str]:
        """The images that the profile has names for: name -> registry/name@sha256:..."""
        return self._profile.images if self._profile is not None else {}

    @cached_property
    def origins(self) -> dict[str, dict[str, str]]:
        """run -> field -> the origin of its value; for `launcher render --explain`."""
        from launcher.spec.resolve.explain import origins

        profile = self._profile
        return (
            {resolved.run: origins(resolved.job, resolved.source[1].at, profile) for resolved in self._made}
            if profile
            else {}
        )

    @cached_property
    def notes(self) -> list[str]:
        """What a person should know of how the job was read: files that its overlay leaves out, names given twice."""
        from launcher.spec.check.fields import repeated

        documents = {id(each.source[0].at.document): each.source[0].at for each in self._made}
        notes = [overlay.note() for overlay in self.code.values()]
        notes += [note for at in documents.values() for note in repeated(at)]
        return [note for note in dict.fromkeys(notes) if note]

    def problem(self, job: ResolvedJob, route: Route, what: str, allowed: str = "") -> Problem:
        """What is wrong with a field of one of the runs, where the user wrote it. `job`: as one of its backends has
        it; `route`: in the resolved job."""
        from launcher.spec.resolve.explain import problem

        run, profile = run_id(job), self._profile
        resolved = next((each for each in self._made if each.run == run), None)
        if resolved is not None and profile is not None:
            return problem(route, what, allowed, job, resolved.source[1].at, profile)
        return Problem(f"job {self.names.get(run, job.name)}", 0, 0, dotted(route), what, allowed)


def resolve(loaded: Loaded, profile: Profile, *, environment: str, backend: str | None = None, fresh: int = 0) -> Group:
    """Jobs and a profile -> runs. Everything that a run needs is written into its resolved job. `environment` replaces
    the image on `local`; `backend` and `fresh` come from the command line. Raises BadInput with all problems."""
    problems = Problems()
    if credentials := of_store(profile.store):  # `load_profile` checks this too; not every profile comes from there
        problems.add(profile.origins.get("store", "store"), 0, 0, "store", credentials, OF_STORE)
        problems.check()
    runs_by_job: dict[str, Runs] = {}
    overlays: dict[tuple[str, tuple[str, ...]], Overlay] = {}
    jobs = [_with_overlay(job, profile, overlays, problems) for job in loaded.jobs]
    problems.check()
    for job in jobs:
        runs_by_job[job.name] = Runs(_runs(job, runs_by_job, profile, environment, backend, fresh, problems))
    problems.check()
    all_runs = tuple(item for runs in runs_by_job.values() for item in runs.made)
    _refuse_moving_stages(all_runs, problems)
    return Group(
        id=group_id(item.run for item in all_runs),
        runs=tuple(item.job for item in all_runs),
        edges={item.run: item.upstream for item in all_runs},
        names={item.run: f"{item.job.name}[{item.label}]" if item.label else item.job.name for item in all_runs},
        code={job.code.digest(): job.code for job in jobs if job.code is not None},
        environments={made.digest(): made for item in all_runs for made in item.environments},
        machine={item.run: own for item in all_runs if (own := _machine(item, profile))},
        _made=all_runs,
        _profile=profile,
    )


def _refuse_moving_stages(runs: Iterable[ResolvedRun], problems: Problems) -> None:
    """A pipeline is one object on its backend, which orders its stages: one of them cannot leave."""
    by_run = {item.run: item for item in runs}
    stages = {run for item in by_run.values() for run in (item.run, *item.upstream) if item.upstream}
    for run in stages:
        resolved = by_run[run]
        if resolved.job.alternatives:
            at = Context(resolved.source[1].at.document, problems, resolved.source[1].at.sources)
            at.problem(("backend",), "several backends are for jobs that are no stage of a pipeline", "one backend")
    problems.check()


def _with_overlay(
    job: LoadedJob, profile: Profile, overlays: dict[tuple[str, tuple[str, ...]], Overlay], problems: Problems
) -> LoadedJob:
    """The job; its overlay then leaves out the folders that are never packed: a folder store and the launcher's own.
    Jobs of one folder share one overlay, so it is read once, and all of them run the same code."""
    if job.code is None:
        return job
    from launcher.spec.code import shadowed

    store = [Path(profile.store.removeprefix("file://"))] if profile.store.startswith("file://") else []
    apart = (*store, profile.local_state, *profile.own_folders)
    place = (os.path.realpath(job.code.folder), job.code.include)
    overlay = overlays.setdefault(place, msgspec.structs.replace(job.code, apart=apart))
    at = Context(job.at.document, problems, job.at.sources)
    try:
        overlay.files  # noqa: B018 - lists the files here, where a problem can name its line of the job
    except BadInput as error:
        at.problem(("code",), str(error).removeprefix("code: "))
        return job
    for pattern in overlay.unmatched():
        message = f"`{pattern}` names no file of the overlay; what Git ignores stays out"
        at.problem(("code", "include", overlay.include.index(pattern)), message)
    variants = ((item.values, Context(item.at.document, problems, item.at.sources)) for item in job.variants)
    shadowed.check(overlay, variants)
    return msgspec.structs.replace(job, code=overlay)


def _runs(
    job: LoadedJob,
    runs_by_job: Mapping[str, Runs],
    profile: Profile,
    environment: str,
    backend: str | None,
    fresh: int,
    problems: Problems,
) -> Iterator[ResolvedRun]:
    labels: dict[str, str] = {}
    for variant in job.variants:
        own = {(job.name, path): value for path, value in variant.chosen.items()}
        resolver = Resolver(job, variant, profile, environment, backend, fresh, problems)
        base = resolver.job()
        combinations = joined(variant.values.get("inputs", {}), runs_by_job, own, at_most=MAX_VARIANTS - len(labels))
        if combinations is None:
            message = "one run for each combination of the variants that they come from is too many"
            resolver.at.problem(("inputs",), message, f"at most {MAX_VARIANTS:,}; `all: true` makes one run of them")
            return
        for picks, inputs, upstream in combinations:
            display = {path if name == job.name else f"{name}:{path}": value for (name, path), value in picks.items()}
            complete = _build(base, inputs=inputs, variant=display)
            run = run_id(complete)
            label = label_of_picks(picks)
            if run in labels:
                resolver.at.problem(("matrix",), f"{label or job.name} is the same run as {labels[run] or job.name}")
                continue
            labels[run] = label
            made = (job, variant), tuple(resolver.environments)
            yield ResolvedRun(complete, run, work_hash(complete), picks, label, upstream, *made)


def _build(base: ResolvedJob, *, inputs: dict[str, Input], variant: dict[str, Any]) -> ResolvedJob:
    if not inputs and not variant:
        return base
    return msgspec.structs.replace(base, inputs=inputs, variant=variant)


def _machine(resolved: ResolvedRun, profile: Profile) -> dict[str, Any]:
    backend, variant = resolved.job.backend, resolved.source[1]
    return of_machine(backend, {**profile.blocks.get(backend, {}), **variant.values.get(backend, {})})


@contextmanager
def with_positions(group: Group) -> Iterator[None]:
    """A backend's BadInput names a job and a field; adds the place where the user wrote the field."""
    try:
        yield
    except BadInput as error:
        if not error.problems:
            raise
        raise BadInput([_placed(group, each) for each in error.problems]) from None


def _placed(group: Group, told: Problem) -> Problem:
    job = next((job for job in group.runs if job.name == told.file and not told.line), None)
    if job is None:
        return told
    keys = re.findall(r"[^.\[\]]+", told.field)
    route: Route = tuple(int(key) if key.isdecimal() else key for key in keys)
    if route[:1] == (job.backend,):
        route = ("options", *route[1:])
    return group.problem(job, route, told.what, told.allowed)
