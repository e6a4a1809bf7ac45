"""Small resolved jobs for tests of what submits and runs them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from launcher.spec.hashing import decode_job, encode_job, group_id, run_id, work_hash
from launcher.spec.model import Image, Input, Limits, Output, ResolvedJob, Resources, Role, Timing
from launcher.spec.resolve.group import Group

QUICK = Timing(beat=0.2, stale=30.0, fence=20.0)


def job(name: str, script: str = "", *, store: str = "file:///nowhere", **changes: Any) -> ResolvedJob:
    """A job of one rank that runs a Python script. `changes` are fields of ResolvedJob, `role` those of its role. Jobs
    of different names are different work: otherwise one would adopt what the other has computed."""
    given = changes.pop("role", {})
    role = {
        "command": (sys.executable, "-c", script or "pass"),
        "image": Image(environment="test"),
        "leader": True,
        "resources": Resources(cpus=0.1),
        **given,
        "env": {"TEST_JOB": name, **given.get("env", {})},
    }
    base: dict[str, Any] = {
        "name": name,
        "roles": {"main": Role(**role)},
        "store": store,
        "backend": "local",
        "limits": Limits(grace=2.0),
        "timing": QUICK,
    }
    # read back, so that whole numbers in fields of fractions are what a resolved job holds
    return decode_job(encode_job(ResolvedJob(**{**base, **changes})))


def reads(upstream: ResolvedJob, output: str = "out") -> Input:
    """An input that is another job's output."""
    return Input(work=work_hash(upstream), output=output, job=upstream.name)


OUT: Mapping[str, Output] = {"out": Output()}


def group(*jobs: ResolvedJob) -> Group:
    """The jobs of one submit, in the order given, which must be topological."""
    by_work = {work_hash(one): run_id(one) for one in jobs}
    edges = {
        run_id(one): tuple(by_work[item.work] for item in one.inputs.values() if item.work in by_work) for one in jobs
    }
    runs = [run_id(one) for one in jobs]
    return Group(
        group_id(runs),
        tuple(jobs),
        {run: up for run, up in edges.items() if up},
        {run_id(one): one.name for one in jobs},
    )


def changed(one: ResolvedJob, **fields: Any) -> ResolvedJob:
    return msgspec.structs.replace(one, **fields)


def ids(jobs: Sequence[ResolvedJob]) -> list[str]:
    return [run_id(one) for one in jobs]
