"""Retries where the packages, or the image, are others than those that the run had: what they go on from."""

from __future__ import annotations

from pathlib import Path

import msgspec

from launcher.protocol.facts import Verdict
from launcher.protocol.finish import result_of, write_result
from launcher.protocol.records import Result, Resumed
from launcher.protocol.view import RunView
from launcher.reasons import Reason
from launcher.runtime.member.adoption import find_done
from launcher.runtime.uploads.stored_checkpoints import resumed
from launcher.spec.code.environment import local_environment
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import Image, Output, ResolvedJob, Role
from launcher.verbs.retry import retry
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.memory_store import MemoryStore
from tests.unit.spec.test_distributions import add
from tests.unit.spec.test_environment import folders, named_for, site

__all__ = ["folders", "site"]


def test_a_retry_goes_on_from_others_checkpoints_only_when_it_is_told_to_and_the_result_says_so(site: Path) -> None:
    """The second retry is of a run that ended before it had a checkpoint of its own."""
    store = MemoryStore("memory:", lambda: 1000.0)
    add(site, "jinja2", "3.1.5")
    before = local_environment()
    first = msgspec.structs.replace(named_for(before), outputs={"model": Output(kind="checkpoints")})
    failed = FakeAttempt(reason=Reason.USER_ERROR, checkpoints=[3])
    run = write_run(store, first, [failed], outcome="failed")
    (site / "jinja2-3.1.5.dist-info").rename(site / "jinja2-3.1.6.dist-info")
    said: list[str] = []
    (plain,) = retry(store, [run], say=said.append).runs
    (told_to,) = retry(store, [run], resume=True, say=said.append).runs
    assert (plain.resume, plain.resume_made_with) == (None, "")
    assert (told_to.resume, told_to.resume_made_with) == (run, before.digest)
    assert f"it starts from the beginning; from its checkpoint: `launcher retry {run} --resume`" in said[0]
    assert "it goes on from its checkpoint all the same" in said[1]
    assert work_hash(plain) == work_hash(told_to)
    assert run_id(plain) != run_id(told_to)
    assert result(told_to).resumed == Resumed(run, before.digest)
    assert result(plain).resumed is None
    early = write_run(store, told_to, [FakeAttempt(reason=Reason.USER_ERROR)], outcome="failed")
    (third,) = retry(store, [early], say=said.append).runs
    assert (third.resume, third.resume_made_with, len(said)) == (early, before.digest, 2)
    assert [view.run for view in resumed(store, third.resume)] == [early, run]
    (site / "jinja2-3.1.6.dist-info").rename(site / "jinja2-3.1.7.dist-info")
    (fourth,) = retry(store, [early], resume=True).runs
    assert (fourth.resume, fourth.resume_made_with) == (early, local(told_to))
    (fifth,) = retry(store, [early]).runs
    assert (fifth.resume, fifth.resume_made_with) == (None, "")


def result(job: ResolvedJob) -> Result:
    ended = Verdict("succeeded", 1, Reason.SUCCEEDED)
    return result_of(RunView(run_id(job)), job, ended, writer="me", message="", data={})


def local(job: ResolvedJob) -> str:
    return job.roles["main"].image.environment


def test_nobody_adopts_what_went_on_from_others_checkpoints(site: Path) -> None:
    store = MemoryStore("memory:", lambda: 1000.0)
    job = named_for(local_environment())
    told_to = msgspec.structs.replace(job, resume="other-0123456789ab", resume_made_with="0" * 64)
    done = result(told_to)
    write_result(store, run_id(told_to), told_to, done)
    assert find_done(store, job, run_id(job)) is None
    write_result(store, "plain-0123456789ab", job, msgspec.structs.replace(done, resumed=None))
    assert find_done(store, job, run_id(job)) is not None


def test_a_retry_on_docker_starts_over_where_its_image_is_another_one(site: Path) -> None:
    store = MemoryStore("memory:", lambda: 1000.0)
    role = Role(("x",), image=Image(reference="mine:dev"))
    job = fake_job("one", backend="docker", roles={"main": role}, outputs={"model": Output(kind="checkpoints")})
    failed = FakeAttempt(reason=Reason.USER_ERROR, checkpoints=[3], image="sha256:old")
    run = write_run(store, job, [failed], outcome="failed")
    said: list[str] = []

    def again(image: str, *, resume: bool = False) -> ResolvedJob:
        return retry(store, [run], images=lambda job: {"main": image}, resume=resume, say=said.append).runs[0]

    same, moved, told_to = again("sha256:old"), again("sha256:new"), again("sha256:new", resume=True)
    assert (same.resume, same.fresh, same.resume_made_with) == (run, 0, "")
    assert (moved.resume, moved.fresh, moved.resume_made_with) == (None, 1, "")
    assert (told_to.resume, told_to.resume_made_with) == (run, "sha256:old")
    assert len({run, run_id(same), run_id(moved), run_id(told_to)}) == 4
    command = f"`launcher retry {run} --resume`"
    assert said[0] == (
        f"{run}: the image was sha256:old when it ran: it starts from the beginning; from its checkpoint: {command}"
    )
