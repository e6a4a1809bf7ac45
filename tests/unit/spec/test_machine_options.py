"""The name that a machine gives a cluster is no part of a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launcher.backends.base import backend_of
from launcher.spec.hashing import decode_job, encode_job, run_hash, run_id
from launcher.spec.profile import Profile
from launcher.userdata.cluster_contexts import reached, remember
from tests.unit.spec.support import PROFILE, group

JOB = f"name: one\ncommand: [a]\nimage: r.example/i@sha256:{'ab' * 32}\nbackend: kubernetes\nlimits: {{deadline: 1h}}\n"


def profile(**block: str) -> Profile:
    return msgspec.structs.replace(PROFILE, blocks={"kubernetes": block})


def test_two_machines_that_call_a_cluster_differently_make_one_run(tmp_path: Path) -> None:
    bare = group(JOB, tmp_path)
    named = [
        group(JOB + "kubernetes: {context: mine}\n", tmp_path),
        group(JOB + "kubernetes: {context: theirs}\n", tmp_path),
        group(JOB, tmp_path, overrides=["kubernetes.context=third"]),
        group(JOB, tmp_path, profile=profile(context="fourth")),
    ]
    assert {run_hash(run) for each in named for run in each.runs} == {run_hash(bare.runs[0])}
    assert {encode_job(run) for each in named for run in each.runs} == {encode_job(bare.runs[0])}
    run = run_id(bare.runs[0])
    assert [each.machine[run]["context"] for each in named] == ["mine", "theirs", "third", "fourth"]
    assert bare.machine == {}


def test_a_job_json_with_a_context_keeps_its_id_and_its_cluster(tmp_path: Path) -> None:
    """Launchers before this one wrote it: the id is that of all that is in the file."""
    (job,) = group(JOB, tmp_path).runs
    old = msgspec.structs.replace(job, options={"context": "mine"})
    assert decode_job(encode_job(old)) == old
    assert run_hash(old) != run_hash(job)
    assert getattr(backend_of(old, {"context": "current"}), "options")["context"] == "mine"  # noqa: B009 - no field of all backends


def test_later_verbs_find_the_cluster_of_the_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (job,) = group(JOB, tmp_path).runs
    remember([job], {})
    assert not (tmp_path / "state").exists()  # most jobs name no context
    remember([job], {"context": "mine"})
    assert reached(job) == {"context": "mine"}
    assert getattr(backend_of(job, {"context": "current"}), "options")["context"] == "mine"  # noqa: B009
    assert reached(msgspec.structs.replace(job, name="other")) == {}
    remember([job], {})
    assert reached(job) == {}
