"""Development sessions before anything is submitted: what is refused, and what of a job they keep."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launcher.errors import BadInput
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import Limits, Resources
from launcher.spec.profile import load_profile
from launcher.verbs.dev.session import LABEL, NAME_LENGTH, derived, session_backend
from tests.support.jobs import job


def test_a_backend_that_nobody_can_enter_is_refused_before_a_submit(tmp_path: Path) -> None:
    """Such a machine would be billed until the session's idle time is over."""
    profile = load_profile(tmp_path, None, {"HOME": str(tmp_path)})
    assert session_backend(profile, job("train", store="s3://bucket/store", backend="kubernetes"))
    with pytest.raises(BadInput, match="backend `azureml` has no processes that one can work in"):
        session_backend(profile, job("train", store="s3://bucket/store", backend="azureml"))


def test_a_session_keeps_what_the_job_needs_and_nothing_of_its_end() -> None:
    was = job(
        "a-name-of-twenty-seven-char",
        limits=Limits(deadline=60.0, retries=3, grace=7.0),
        role={"resources": Resources(cpus=2.0), "replicas": 4, "restarts": 2},
    )
    made = derived(was, "ann", role=None, deadline=3600.0, idle=60.0)
    ((name, role),) = made.roles.items()
    assert (name, role.replicas, role.restarts, role.resources) == (was.leading, 1, 0, Resources(cpus=2.0))
    assert (made.limits.deadline, made.limits.retries, made.limits.grace) == (3600.0, 0, 7.0)
    assert (made.outputs, made.labels[LABEL], made.code, made.inputs) == ({}, "ann", was.code, was.inputs)
    assert len(made.name) <= NAME_LENGTH
    assert made.fresh  # so that the work of another session is never taken for this one's
    assert work_hash(made) != work_hash(was)
    other = derived(was, "bob", role=None, deadline=3600.0, idle=60.0)
    assert run_id(other) != run_id(made)
    assert msgspec.structs.replace(other, labels=made.labels) == made
