"""Jobs from Git, applied by the controllers of Argo CD and of Flux themselves, as k8s/gitops sets them up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.jobs.several import Desk, steps_in
from tests.cluster.test_gitops import OF_THE_FLAVOUR, OWN, QUEUE, spot_queue
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.gitops import TOOLS, ArgoCD, GitOpsTool
from tests.support.cluster.gitserver import GitRepository, repository
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster("jobset", "kueue"), pytest.mark.nightly, pytest.mark.timeout(900)]


class Scene:
    """A tool that follows a repository, and a user who commits rendered jobs to it."""

    def __init__(self, tool: GitOpsTool, desk: Desk, repo: GitRepository) -> None:
        self.tool, self.desk, self.repo = tool, desk, repo
        self.jobs = repo.folder / "jobs"

    def commit(self, message: str = "jobs") -> str:
        """Gives the commit once the tool has applied it as a whole."""
        commit = self.repo.commit(message)
        self.synced(commit)
        return commit

    def synced(self, commit: str, limit: float = 120) -> None:
        self.tool.poke()
        self.desk.until(f"commit {commit}", lambda: self.tool.applied() == commit or self._poked(), "", limit)

    def _poked(self) -> bool:
        self.tool.poke()
        return False

    def render(self, *jobs: Mapping[str, Any]) -> list[str]:
        """Adds the jobs' files; gives the ids of the runs, in order."""
        text = self.desk.launcher("render", self.desk.write(*jobs), "-o", self.jobs)
        names = [Path(line.partition(": ")[0]) for line in text.splitlines() if line.endswith(("written", "unchanged"))]
        rows: dict[str, str] = {}
        for path in names:
            for line in path.read_text().splitlines():
                if "slipway.dev/runs:" in line:
                    rows |= json.loads(line.partition(": ")[2].strip().strip("'"))
        return sorted(rows)

    def object(self, name: str, kind: str = "job") -> dict[str, Any] | None:
        there: dict[str, Any] | None = self.desk.cluster.get(kind, name, self.desk.namespace)
        return there

    def uid(self, name: str, kind: str = "job") -> str:
        return str((self.object(name, kind) or {}).get("metadata", {}).get("uid", ""))


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.cluster(name)) for name in ["flux"]])
def scene(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    cluster.jobset()
    cluster.kueue()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**cluster.s3.environment, "KUBECONFIG": str(cluster.kubeconfig)}.items():
            patch.setenv(name, value)
        place = tmp_path_factory.mktemp(request.param)
        desk = Desk(cluster, place / "desk")
        spot_queue(desk)
        with repository(cluster.host, place / "git") as repo:
            (repo.folder / "jobs").mkdir()
            (repo.folder / "jobs" / ".keep").touch()
            repo.commit("empty")
            tool = TOOLS[request.param](cluster)
            tool.follow(repo.url, desk.namespace)
            yield Scene(tool, desk, repo)
            tool.stop()
        for name in ("argocd", "flux-system"):
            cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


def healthy(scene: Scene, name: str, status: str, words: str = "") -> None:
    """Flux knows no health of Jobs here (`wait: false`)."""
    if isinstance(tool := scene.tool, ArgoCD):
        until(lambda: tool.health(name)[0] == status)
        assert words in tool.health(name)[1]


def test_a_job_an_array_and_a_pipeline_run_to_their_end(scene: Scene) -> None:
    desk = scene.desk
    (single,) = scene.render(desk.job("single", "print(1)"))
    array = scene.render(
        desk.job("array", "print(E['N'])", env={"N": "1"}, matrix={"env.N": ["1", "2"]}, kubernetes={"array": True})
    )
    first = desk.job("first", "(out / 'x').write_text('42')")
    pipeline = scene.render(
        first, desk.job("second", "time.sleep(1)", inputs={"a": {"job": "first", "output": "results"}})
    )
    scene.commit()
    assert (len(array), len(pipeline)) == (2, 2)
    for run in (single, *array, *pipeline):
        assert desk.result(run).outcome == "succeeded"
    healthy(scene, single, "Healthy")
    before = scene.uid(single)
    # a label that somebody changed is healed, and nothing starts again
    desk.cluster.kubectl("label", "job", single, "slipway.dev/run=other", "--overwrite", "-n", desk.namespace)
    scene.commit("nothing")
    assert scene.uid(single) == before
    assert len(desk.view(single).attempts) == 1


def test_a_finished_job_that_is_deleted_does_no_work_twice(scene: Scene) -> None:
    desk = scene.desk
    (run,) = scene.render(desk.job("again", "print('once')"))
    scene.commit()
    desk.result(run)
    desk.ended_job(run)
    before = scene.uid(run)
    desk.cluster.kubectl("delete", "job", run, "-n", desk.namespace)
    scene.tool.poke()
    desk.until("the Job again", lambda: scene.uid(run) not in ("", before), run)
    assert desk.ended_job(run)["type"] == "Complete"
    assert len(desk.view(run).attempts) == 1


def test_a_running_job_that_is_deleted_goes_on_from_its_checkpoint(scene: Scene) -> None:
    desk = scene.desk
    (run,) = scene.render(desk.counting("count", 40))
    scene.commit()
    desk.until("a checkpoint", lambda: max(desk.checkpoints(run), default=0) >= 3, run)
    before = scene.uid(run)
    desk.cluster.kubectl("delete", "job", run, "-n", desk.namespace, "--wait=false")
    scene.tool.poke()
    desk.until("the Job again", lambda: scene.uid(run) not in ("", before), run)
    assert desk.result(run).outcome == "succeeded"
    attempts = len(desk.view(run).attempts)
    desk.goes_on_from_its_newest_checkpoint(run, attempts)
    assert len(steps_in(desk.log(run, attempts))) < 40


def test_a_removed_file_keeps_its_job_and_stops_no_later_commit(scene: Scene) -> None:
    desk = scene.desk
    (stays,) = scene.render(desk.until_told("stays"))
    scene.commit()
    desk.wait_for_log(stays, "up")
    for file in scene.jobs.glob(f"{stays}*"):
        file.unlink()
    scene.repo.commit("removed")
    (later,) = scene.render(desk.job("later", "print(2)"))
    scene.commit()
    assert desk.result(later).outcome == "succeeded"
    assert scene.uid(stays)
    desk.let_go(stays)
    assert desk.result(stays).outcome == "succeeded"


def test_an_admitted_job_with_its_flavours_toleration_keeps_back_no_later_job(scene: Scene) -> None:
    desk = scene.desk
    (queued,) = scene.render(desk.until_told("queued", kubernetes={"queue": QUEUE, "tolerations": [OWN]}))
    scene.commit()
    desk.wait_for_log(queued, "up")
    pod = (scene.object(queued) or {})["spec"]["template"]["spec"]
    assert pod["tolerations"] == [OWN, OF_THE_FLAVOUR]
    before = scene.uid(queued)
    (after,) = scene.render(desk.job("after", "print(3)"))
    scene.commit()
    assert desk.result(after).outcome == "succeeded"
    assert (scene.uid(queued), (scene.object(queued) or {})["spec"]["suspend"]) == (before, False)
    desk.let_go(queued)
    assert desk.result(queued).outcome == "succeeded"
    assert len(desk.view(queued).attempts) == 1


def test_the_fix_of_a_bad_commit_is_taken(scene: Scene) -> None:
    desk = scene.desk
    bad = scene.jobs / "bad.yaml"
    bad.write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad}\nspec: {template: {spec: {containers: 1}}}\n"
    )
    scene.repo.commit("bad")
    scene.tool.poke()
    bad.unlink()
    (fixed,) = scene.render(desk.job("fixed", "print(4)"))
    scene.commit("fixed")
    assert desk.result(fixed).outcome == "succeeded"


def test_a_cancelled_run_stays_cancelled(scene: Scene) -> None:
    desk = scene.desk
    (run,) = scene.render(desk.until_told("cancelled"))
    scene.commit()
    desk.wait_for_log(run, "up")
    desk.launcher("cancel", run)
    assert desk.result(run).outcome == "cancelled"
    scene.commit("nothing")
    ended: Callable[[], Any] = lambda: (scene.object(run) or {}).get("status", {}).get("failed")  # noqa: E731
    desk.until("the end of the Job that was made again", ended, run)
    assert desk.status(run)["state"] == "cancelled"
    assert len(desk.view(run).attempts) == 1
    healthy(scene, run, "Degraded", "cancelled")
