"""Jobs from Git, applied by the controllers of Argo CD and of Flux themselves, as k8s/gitops sets them up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from launcher.cli import main
from launcher.protocol import decide
from launcher.store.layout import RunKeys
from tests.cluster.jobs.several import TUNING, Desk, steps_in
from tests.cluster.scene import Scene, scene_of
from tests.cluster.test_gitops import OF_THE_FLAVOUR, OWN, QUEUE, spot_queue
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.gitops import TOOLS, ArgoCD, Flux

pytestmark = [pytest.mark.cluster("jobset", "kueue"), pytest.mark.nightly, pytest.mark.timeout(900)]
LABEL = "slipway.dev/run"
ENDED = ("succeeded", "failed", "cancelled")


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.cluster(name)) for name in sorted(TOOLS)])
def scene(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    cluster.jobset()
    cluster.kueue()
    with scene_of(request.param, cluster, tmp_path_factory.mktemp(request.param)) as scene:
        spot_queue(scene.desk)
        yield scene


def healthy(scene: Scene, name: str, status: str, *words: str) -> None:
    """What Argo CD tells of an object in the end. Flux knows no health of Jobs here (`wait: false`)."""
    tool = scene.tool
    if isinstance(tool, ArgoCD):
        scene.until(f"{name}: {status}", lambda: tool.health(name)[0] == status)
        scene.until(f"{name}: {words}", lambda: all(word in tool.health(name)[1] for word in words))


def array_of(desk: Desk, name: str) -> dict[str, Any]:
    return desk.job(name, "print(E['N'])", env={"N": "1"}, matrix={"env.N": ["1", "2"]}, kubernetes={"array": True})


def test_a_job_an_array_and_a_pipeline_run_to_their_end(scene: Scene) -> None:
    desk = scene.desk
    (single,) = scene.render(desk.job("single", "print(1)"))
    array = scene.render(array_of(desk, "array"))
    first = desk.job("first", "(out / 'x').write_text('42')")
    pipeline = scene.render(
        first, desk.job("second", "time.sleep(1)", inputs={"a": {"job": "first", "output": "results"}})
    )
    scene.commit()
    assert (len(array), len(pipeline)) == (2, 2)
    for run in (single, *array, *pipeline):
        assert desk.result(run).outcome == "succeeded"
    assert scene.uid(scene.files[array[0]])
    assert scene.uid(scene.files[pipeline[0]], "jobset")
    for run in (single, *array, *pipeline):
        healthy(scene, scene.files[run], "Healthy")


def test_a_changed_label_starts_nothing_again(scene: Scene) -> None:
    """Argo CD's selfHeal brings it back; Flux sends nothing to a Job that is there (`ssa: IfNotPresent`)."""
    desk = scene.desk
    (run,) = scene.render(desk.until_told("healed"))
    scene.commit()
    desk.wait_for_log(run, "up")
    before = scene.uid(run)
    desk.cluster.kubectl("label", "job", run, f"{LABEL}=other", "--overwrite", "-n", desk.namespace)
    scene.commit("nothing")
    if isinstance(scene.tool, ArgoCD):
        scene.until("the label", lambda: label(scene, run) == run)
    else:
        assert label(scene, run) == "other"
    assert scene.uid(run) == before
    desk.let_go(run)
    assert desk.result(run).outcome == "succeeded"
    assert len(desk.view(run).attempts) == 1


def label(scene: Scene, run: str) -> str:
    return str((scene.object(run) or {})["metadata"]["labels"][LABEL])


def test_what_the_tool_tells_of_a_job_that_runs_and_of_one_that_failed(scene: Scene) -> None:
    desk = scene.desk
    (running,) = scene.render(desk.until_told("runs"))
    (failed,) = scene.render(desk.job("fails", "sys.exit(3)"))
    scene.commit()
    desk.wait_for_log(running, "up")
    assert desk.result(failed).outcome == "failed"
    assert desk.ended_job(failed)["type"] == "Failed"
    healthy(scene, running, "Progressing", "1 active")
    healthy(scene, failed, "Degraded", "failed for good", f"launcher status {failed}")
    if isinstance(scene.tool, Flux):  # only whether the folder was applied
        scene.commit("nothing")
        assert scene.tool.ready()[:2] == ("True", "ReconciliationSucceeded")
    desk.let_go(running)
    assert desk.result(running).outcome == "succeeded"
    healthy(scene, running, "Healthy")


def test_a_tool_that_waits_for_jobs_calls_a_commit_failed_whose_job_runs(scene: Scene) -> None:
    """The reason for `wait: false`. Argo CD waits for nothing: the commit is synced, the Job is Progressing."""
    desk, tool = scene.desk, scene.tool
    if isinstance(tool, Flux):
        tool.wait_for_jobs("5s")
    (run,) = scene.render(desk.until_told("long"))
    if isinstance(tool, Flux):
        scene.repo.commit("long")
        tool.poke()  # once: another one would interrupt the wait
        scene.until("its failure", tool.health_failed)
        assert f"Job/{desk.namespace}/{run} status: 'InProgress'" in tool.told()
        tool.wait_for_jobs(None)
    scene.commit("nothing")
    desk.wait_for_log(run, "up")
    healthy(scene, run, "Progressing")
    desk.let_go(run)
    assert desk.result(run).outcome == "succeeded"


def test_a_changed_job_is_a_second_run_beside_the_first(scene: Scene) -> None:
    desk = scene.desk
    job = desk.job("changed", "print(E['N'])", env={"N": "1"})
    (first,) = scene.render(job)
    scene.commit()
    assert desk.result(first).outcome == "succeeded"
    before = scene.uid(first)
    (second,) = scene.render({**job, "env": {**job["env"], "N": "2"}})
    scene.commit()
    assert second != first
    assert desk.result(second).outcome == "succeeded"
    assert scene.uid(first) == before
    assert len(desk.view(first).attempts) == 1


def test_a_finished_job_that_is_deleted_does_no_work_twice(scene: Scene) -> None:
    desk = scene.desk
    (run,) = scene.render(desk.job("again", "print('once')"))
    scene.commit()
    desk.result(run)
    desk.ended_job(run)
    before = scene.uid(run)
    desk.cluster.kubectl("delete", "job", run, "-n", desk.namespace)
    scene.made_again(run, before)
    assert desk.ended_job(run)["type"] == "Complete"
    assert len(desk.view(run).attempts) == 1


def test_a_running_job_that_is_deleted_goes_on_from_its_checkpoint(scene: Scene) -> None:
    desk = scene.desk
    (run,) = scene.render(desk.counting("count", 120))  # a cluster may be slow to end a deleted Job's pod
    scene.commit()
    desk.until("a checkpoint", lambda: max(desk.checkpoints(run), default=0) >= 3, run)
    before = scene.uid(run)
    desk.cluster.kubectl("delete", "job", run, "-n", desk.namespace, "--wait=false")
    scene.made_again(run, before)
    assert desk.result(run).outcome == "succeeded"
    attempts = len(desk.view(run).attempts)
    desk.goes_on_from_its_newest_checkpoint(run, attempts)
    assert len(steps_in(desk.log(run, attempts))) < 120


def test_a_removed_file_keeps_its_job_and_stops_no_later_commit(scene: Scene) -> None:
    desk = scene.desk
    (stays,) = scene.render(desk.until_told("stays"))
    scene.commit()
    desk.wait_for_log(stays, "up")
    scene.remove(stays)
    scene.commit("removed")
    for name in (
        "later",
        "latest",
    ):  # a sync that waits for a confirmation to prune keeps back the second, not the first
        (later,) = scene.render(desk.job(name, "print(2)"))
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
    # it can be read, and the API server refuses it
    pod = {"restartPolicy": "Always", "containers": [{"name": "a", "image": "a"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "bad"}, "spec": {"template": {"spec": pod}}}
    bad.write_text(json.dumps(job))
    commit = scene.repo.commit("bad")
    scene.until("a try of the bad commit", lambda: scene.tool.attempted() == commit or scene.poked())
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
    assert desk.ended_job(run)["type"] == "Failed"
    assert desk.status(run)["state"] == "cancelled"
    assert len(desk.view(run).attempts) == 1
    healthy(scene, run, "Degraded", "cancelled")


def test_a_job_that_kueue_stops_is_left_stopped_and_goes_on_when_kueue_says_so(scene: Scene) -> None:
    desk = scene.desk
    (run,) = scene.render(desk.counting("held", 60, kubernetes={"queue": QUEUE}))
    scene.commit()
    desk.until("a checkpoint", lambda: max(desk.checkpoints(run), default=0) >= 3, run)
    before = scene.uid(run)
    activate(desk, before, False)
    desk.until("its stop", lambda: (scene.object(run) or {})["spec"]["suspend"] and not desk.pods(run), run)
    # something to heal, and a sync
    desk.cluster.kubectl("label", "job", run, f"{LABEL}=other", "--overwrite", "-n", desk.namespace)
    scene.commit("nothing")
    assert ((scene.object(run) or {})["spec"]["suspend"], scene.uid(run)) == (True, before)
    healthy(scene, run, "Progressing", f"waits in the queue {QUEUE}")
    desk.cluster.kubectl("label", "job", run, f"{LABEL}={run}", "--overwrite", "-n", desk.namespace)
    activate(desk, before, True)
    assert desk.result(run).outcome == "succeeded"
    attempts = len(desk.view(run).attempts)
    desk.goes_on_from_its_newest_checkpoint(run, attempts)
    assert (attempts, scene.uid(run)) == (2, before)


def activate(desk: Desk, uid: str, active: bool) -> None:
    """Stops the Workload of a Job, or lets it go on, as an administrator of Kueue does."""
    (workload,) = desk.cluster.get("workload", namespace=desk.namespace, selector=f"kueue.x-k8s.io/job-uid={uid}")
    patch = json.dumps({"spec": {"active": active}})
    name = workload["metadata"]["name"]
    desk.cluster.kubectl("patch", "workload", name, "-n", desk.namespace, "--type=merge", "-p", patch)


def test_what_is_pruned_with_its_file_ends_as_cancelled_and_takes_its_config_map_along(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Argo CD by a sync with `--prune`, Flux by the command of k8s/gitops/README.md."""
    desk, tool = scene.desk, scene.tool
    (run,) = scene.render(desk.until_told("pruned"))
    array = scene.render(array_of(desk, "swept"))
    name = scene.files[array[0]]
    scene.commit()
    desk.wait_for_log(run, "up")
    for each in array:
        assert desk.result(each).outcome == "succeeded"
    scene.remove(run, array[0])
    scene.commit("removed")
    assert scene.uid(run)
    # the array's Job alone: its ConfigMap has no owner
    desk.cluster.kubectl("delete", "job", name, "-n", desk.namespace)
    assert config_maps(desk, name)
    if isinstance(tool, ArgoCD):
        tool.prune()
    else:
        scene.delete_as_documented(run)
        scene.delete_as_documented(array[0])
    scene.until("the end of the Job", lambda: not scene.uid(run))
    scene.until("the end of the ConfigMap", lambda: not config_maps(desk, name))
    # for all that the cluster tells, it may come back: Git decides
    assert desk.status(run)["state"] not in ENDED
    monkeypatch.setattr(decide, "GONE_FOR_GOOD", 1.0)
    monkeypatch.chdir(desk.path)
    for variable, value in desk.environment.items():
        monkeypatch.setenv(variable, value)
    desk.until("its result", lambda: ended(desk, run, capsys), run)
    result = desk.result(run)
    assert (result.outcome, result.reason) == ("cancelled", "cancelled")
    assert "its file was removed from Git" in result.message
    (later,) = scene.render(desk.job("after-pruning", "print(5)"))
    scene.commit()
    assert desk.result(later).outcome == "succeeded"


def config_maps(desk: Desk, array: str) -> list[Any]:
    there: list[Any] = desk.cluster.get("configmap", namespace=desk.namespace, selector=f"slipway.dev/array={array}")
    return there


def ended(desk: Desk, run: str, capsys: pytest.CaptureFixture[str]) -> bool:
    main(["status", run])
    capsys.readouterr()
    return desk.store.head(RunKeys(run).result) is not None


def test_two_clusters_follow_one_repository_with_one_store(
    scene: Scene, cluster: Cluster, other_cluster: Cluster
) -> None:
    desk = scene.desk
    assert other_cluster.launcher() == cluster.launcher()  # made of the same files, so the same digest
    other_cluster.namespace(desk.namespace)
    secret = {**cluster.s3.environment, "SLIPWAY_TUNING": json.dumps(TUNING)}
    other_cluster.secret(desk.namespace, "store", secret)
    scene.remove()
    (run,) = scene.render(desk.until_told("shared"))
    scene.commit()
    desk.wait_for_log(run, "up")
    second = TOOLS[scene.tool.name](other_cluster)
    try:
        second.follow(scene.repo.url, desk.namespace)
        there = desk.ended_job(run, 240, other_cluster)
        assert (there["type"], there["reason"]) == ("Failed", "PodFailurePolicy")
        assert "duplicate" in logs_of(other_cluster, run, desk.namespace)
        desk.let_go(run)
        assert desk.result(run).outcome == "succeeded"
        assert desk.ended_job(run)["type"] == "Complete"
        # the other cluster makes its Job again: the work is done, and is not done twice
        other_cluster.kubectl("delete", "job", run, "-n", desk.namespace)
        second.poke()
        assert desk.ended_job(run, 240, other_cluster)["type"] == "Complete"
        assert len(desk.view(run).attempts) == 1
    finally:
        second.stop()


def logs_of(cluster: Cluster, run: str, namespace: str) -> str:
    return cluster.kubectl("logs", "-n", namespace, "-l", f"{LABEL}={run}", "--tail=-1")
