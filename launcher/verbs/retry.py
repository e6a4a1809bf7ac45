"""Retry: makes a new run from one that failed or was cancelled; it starts from the newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from launcher.decoding import decode_record
from launcher.errors import BadInput, Conflict, NotFound
from launcher.protocol.deleted import read_deleted
from launcher.protocol.read import read_run
from launcher.protocol.records import Result
from launcher.runtime.uploads.stored_checkpoints import resumed
from launcher.spec.backends import of_machine, portable, without_defaults
from launcher.spec.check.schema import BLOCKS, JOB
from launcher.spec.code.environment import (
    LocalEnvironment,
    describe_changes,
    is_local,
    local_environment,
    other_packages,
    stored_environment,
)
from launcher.spec.hashing import decode_job, group_id, run_id, work_hash
from launcher.spec.model import Budget, ResolvedJob
from launcher.spec.read import override
from launcher.spec.resolve.group import Group
from launcher.spec.values.problems import Problems
from launcher.spec.values.source import YamlDocument
from launcher.spec.values.types import Context, refuse_tokens
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata.cluster_contexts import reached

SETTABLE: Final = ("limits", "labels", "resources", "timing", *BLOCKS)


def retry(
    store: Store,
    runs: Sequence[str],
    names: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    *,
    ignore: Sequence[str] = (),
    python: str = "",
    images: Callable[[ResolvedJob], Mapping[str, str]] = lambda job: {},
    resume: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Group:
    """The group of new runs to submit: one for each of `runs` that failed or was cancelled, in their order.

    One that ran with this machine's packages gets today's (`ignore`, `python`: the profile's), and one of `docker` the
    image that its name has today (`images`: role -> id). Where they differ it starts from the beginning, because others
    made what it would go on from; with `resume` it goes on all the same, and its result says so. `say` is given a line.

    `overrides` are the texts of `--set`. They may change fields that are not part of the work: limits, labels,
    resources, timing, the backend's block. A run whose outputs were deleted may be retried, too; it starts from the
    beginning. Runs that succeeded or have not ended are left out. Raises Conflict when no run is left, NotFound,
    BadInput.
    """
    jobs: dict[str, ResolvedJob] = {}
    stored: dict[str, ResolvedJob] = {}
    left_out = []
    for run in runs:
        job, outcome = _read(store, run)
        if outcome in ("failed", "cancelled") or (outcome and read_deleted(store, run) is not None):
            jobs[run], stored[run] = again(job, run, overrides), job
        else:
            left_out.append(f"{run} {outcome or 'has not ended'}")
    if not jobs:
        raise Conflict(f"nothing to run again: {', '.join(left_out)}")
    # runs of older launchers have such options in their job.json
    machine = {run: {**reached(stored[run]), **of_machine(job.backend, job.options)} for run, job in jobs.items()}
    jobs = {run: msgspec.structs.replace(job, options=portable(job.backend, job.options)) for run, job in jobs.items()}
    jobs = _with_packages(store, jobs, ignore, python, images, resume, say)
    new = {run_id(jobs[run]): options for run, options in machine.items() if options}
    return msgspec.structs.replace(group_of(jobs, names), machine=new)


def _with_packages(
    store: Store,
    jobs: Mapping[str, ResolvedJob],
    ignore: Sequence[str],
    python: str,
    images: Callable[[ResolvedJob], Mapping[str, str]],
    resume: bool,
    say: Callable[[str], None],
) -> dict[str, ResolvedJob]:
    """The jobs with today's packages. A job that reads another of them reads its new work."""

    @cache
    def instead_of(wanted: str) -> LocalEnvironment | None:
        other = other_packages(wanted, ignore, python) is not None
        return local_environment(ignore, python=python) if other else None

    works: dict[str, str] = {}  # of a job before -> now
    changed: dict[str, ResolvedJob] = {}
    for run, job in jobs.items():
        new, made_with, what = _todays(job, instead_of)
        if not made_with and (made_with := _other_image(store, run, images(job))):
            # the name tells nothing of the image: as the first one it would be the run that has ended
            new, what = msgspec.structs.replace(job, fresh=job.fresh + 1), f"the image was {made_with} when it ran"
        if made_with:
            some = any(one.checkpoints for view in resumed(store, run) for one in view.attempts)
            goes_on = some and resume
            then = "it goes on from its checkpoint all the same" if goes_on else "it starts from the beginning"
            other = f"; from its checkpoint: `launcher retry {run} --resume`" if some and not resume else ""
            say(f"{run}: {what}: {then}{other}")
            new = msgspec.structs.replace(
                new, resume=run if goes_on else None, resume_made_with=made_with if goes_on else ""
            )
        inputs = {
            name: msgspec.structs.replace(
                item,
                work=works.get(item.work, item.work) if item.work else item.work,
                works={label: works.get(work, work) for label, work in item.works.items()},
            )
            for name, item in new.inputs.items()
        }
        new = msgspec.structs.replace(new, inputs=inputs)
        works[work_hash(job)] = work_hash(new)
        changed[run] = new
    return changed


def _todays(job: ResolvedJob, instead_of: Callable[[str], LocalEnvironment | None]) -> tuple[ResolvedJob, str, str]:
    """The job with this machine's packages of today. Where they differ also the digest of those before, and a line."""
    before, what = "", ""
    for name, role in job.roles.items():
        made_with = role.image.environment
        if is_local(made_with) and (now := instead_of(made_with)) is not None:
            image = msgspec.structs.replace(role.image, environment=now.digest)
            job = msgspec.structs.replace(job, roles={**job.roles, name: msgspec.structs.replace(role, image=image)})
            old = stored_environment(made_with)
            differ = describe_changes(old and old.parts, now.parts)
            before, what = made_with, f"the packages of this machine are not those that it ran with{differ}"
    return job, before, what


def _other_image(store: Store, run: str, now: Mapping[str, str]) -> str:
    """The id of an image that the newest attempt ran with, where its name has another one now; else ""."""
    attempts = read_run(store, run, full=False).computing[-1:] if now else ()
    claims = {member: claim for attempt in attempts for member, claim in attempt.claims.items()}
    before = [(claim.image, now.get(member.rpartition("-")[0], "")) for member, claim in claims.items()]
    return next((old for old, new in before if old and new and old != new), "")


def group_of(jobs: Mapping[str, ResolvedJob], names: Mapping[str, str] | None = None) -> Group:
    """The group of resolved jobs, in their order. `names`: run -> its display name."""
    by_work: dict[str, str] = {work_hash(job): run_id(job) for job in jobs.values()}
    edges = {
        run_id(job): tuple(dict.fromkeys(by_work[work] for work in _works(job) if work in by_work))
        for job in jobs.values()
    }
    new = tuple(jobs.values())
    called = {run_id(job): (names or {}).get(run, job.name) for run, job in jobs.items()}
    return Group(group_id(edges), new, {run: others for run, others in edges.items() if others}, called)


def again(job: ResolvedJob, run: str, overrides: Sequence[str] = ()) -> ResolvedJob:
    """The same work, resumed from `run`, with other limits. Raises BadInput when an override changes the work."""
    changed = _apply(job, overrides)
    if work_hash(changed) != work_hash(job):
        raise BadInput(f"--set {' '.join(overrides)}: this changes what is computed; submit it as a job of its own")
    return msgspec.structs.replace(changed, resume=run)


def _read(store: Store, run: str) -> tuple[ResolvedJob, str]:
    stored = store.read(RunKeys(run).job)
    if stored is None:
        raise NotFound(f"no run `{run}` in {store.url}")
    result = store.read(RunKeys(run).result)
    return decode_job(stored[0]), decode_record(result[1].key, result[0], Result).outcome if result else ""


def _works(job: ResolvedJob) -> list[str]:
    return [work for item in job.inputs.values() for work in (item.work, *item.works.values()) if work]


def _apply(job: ResolvedJob, overrides: Sequence[str]) -> ResolvedJob:
    problems = Problems()
    at = Context(YamlDocument("--set", {"name": job.name}), problems)
    allowed = []
    for text in overrides:
        route = override.parse_route(text.partition("=")[0].removeprefix("+").rpartition(":")[2].strip())
        if route and route[0] in JOB.fields and route[0] not in SETTABLE:
            problems.add(f"--set {route[0]}", 0, 0, "", "cannot be changed by a retry", ", ".join(SETTABLE))
        else:
            allowed.append(text)
    override.apply(allowed, [at], problems)
    refuse_tokens(at, at.document.value)
    given: dict[str, Any] = at.document.value
    values = {key: JOB.fields[key].type.check(value, (key,), at) for key, value in given.items() if key in SETTABLE}
    problems.check()
    for key, value in values.items():
        job = _with(job, key, value)
    return job


def _with(job: ResolvedJob, key: str, value: Mapping[str, Any]) -> ResolvedJob:
    if key == "resources":
        # `nodes` is the number of replicas, which is part of the work
        if "nodes" in value:
            raise BadInput("--set resources.nodes: this changes what is computed; submit it as a job of its own")
        roles = {
            name: msgspec.structs.replace(role, resources=msgspec.structs.replace(role.resources, **value))
            for name, role in job.roles.items()
        }
        return msgspec.structs.replace(job, roles=roles)
    if key == "labels":
        return msgspec.structs.replace(job, labels={**job.labels, **value})
    if key == "timing":
        return msgspec.structs.replace(job, timing=msgspec.structs.replace(job.timing, **value))
    if key == "limits":
        return msgspec.structs.replace(job, limits=msgspec.structs.replace(job.limits, **_limits(job, value)))
    if key != job.backend:
        raise BadInput(f"--set {key}: the run is one of {job.backend}")
    return msgspec.structs.replace(job, options=without_defaults(job.backend, {**job.options, **value}))


def _limits(job: ResolvedJob, value: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(value)
    if "retry_on" in given:
        given["retry_on"] = tuple(given["retry_on"])
    if "budget" in given:
        amount, currency = given["budget"]
        old = job.limits.budget
        if old is None or old.currency != currency:
            raise BadInput(
                f"--set limits.budget: the run was submitted without a budget in {currency}; submit it again"
            )
        given["budget"] = Budget(amount, currency, old.hourly, old.listed)
    return given
