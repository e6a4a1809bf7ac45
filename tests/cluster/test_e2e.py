"""From `launcher submit` to a result, on a real control plane and a real node: what goes well, and each way it ends."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from launcher.protocol.read import read_run
from launcher.reasons import Reason
from launcher.store.layout import RunKeys
from tests.cluster.laptop import Laptop
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.pods import stuck

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_job_runs_once_and_its_results_come_back(laptop: Laptop) -> None:
    script = "print('computed'); (out / 'answer').write_text('42')"
    (run,) = laptop.submit(laptop.job("hello", script), options=("--follow",))
    result = laptop.result(run)
    assert (result.outcome, result.attempt) == ("succeeded", 1)
    assert "computed" in laptop.launcher("logs", run)
    laptop.launcher("gather", run, "--to", "gathered")
    (answer,) = (laptop.path / "gathered").rglob("answer")
    assert answer.read_text() == "42"
    assert "nothing to run" in laptop.launcher("submit", "job.yaml")
    assert len(laptop.cluster.get("jobs", namespace=laptop.namespace)) == 1
    laptop.ended_pod(run)


def test_a_deleted_pod_saves_and_its_successor_goes_on_from_the_checkpoint(laptop: Laptop) -> None:
    (run,) = laptop.submit(laptop.counting("count", steps=40))
    laptop.wait_for_log(run, "step 6")
    pod = laptop.running_pod(run)
    laptop.cluster.kubectl("delete", "pod", pod, "-n", laptop.namespace)
    result = laptop.result(run)
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    first = read_run(laptop.store, run).attempts[0]
    assert first.exits["main-0"].reason is Reason.PREEMPTED
    assert first.checkpoints  # flushed within the grace period
    begun = [
        line for line in laptop.launcher("logs", run, "--attempt", "2").splitlines() if line.startswith("begins at")
    ]
    assert begun == [f"begins at {max(first.checkpoints)}"]
    assert "step 40" in laptop.launcher("logs", run)
    assert "begins at 0" in laptop.launcher("logs", run, "--previous")


def test_a_pod_that_takes_too_much_memory_is_told_from_a_kill(laptop: Laptop) -> None:
    (run,) = laptop.submit(laptop.job("greedy", "x = bytearray(600 << 20); x[::4096] = b'x' * len(x[::4096])"))
    result = laptop.result(run)
    assert (result.outcome, result.reason) == ("failed", Reason.OUT_OF_MEMORY)
    assert "256" in result.message or "memory" in result.message
    assert len(laptop.pods(run)) == 1  # not tried again
    assert laptop.status(run)["state"] == "failed"


def test_the_deadline_ends_a_run_and_its_log_stays(laptop: Laptop) -> None:
    job = laptop.job("slow", "print('here', flush=True); time.sleep(600)", limits={"deadline": "8s", "grace": "2s"})
    (run,) = laptop.submit(job)
    result = laptop.result(run)
    assert (result.outcome, result.reason) == ("failed", Reason.DEADLINE)
    assert "here" in laptop.launcher("logs", run)
    pod = laptop.ended_pod(run)
    assert "here" in laptop.cluster.logs(pod["metadata"]["name"], laptop.namespace)


def test_an_error_of_the_users_is_tried_as_often_as_they_asked(laptop: Laptop) -> None:
    job = laptop.job("wrong", "print('once more'); sys.exit(3)", limits={"deadline": "10m", "retries": 1})
    (run,) = laptop.submit(job)
    result = laptop.result(run)
    assert (result.outcome, result.reason, result.attempt) == ("failed", Reason.USER_ERROR, 2)
    ended = laptop.ended_job(run)
    assert (ended["type"], ended["reason"]) == ("Failed", "PodFailurePolicy")
    assert laptop.launcher("submit", "job.yaml", code=1).count("launcher retry") >= 1


def test_what_can_never_start_is_said_as_soon_as_the_cluster_knows_it(laptop: Laptop) -> None:
    """The first look after the cluster's own word says it too."""
    nowhere = "test.local/nowhere@sha256:" + "0" * 64
    begun = time.monotonic()
    image, big = laptop.submit(
        laptop.job("image", "", image=nowhere), laptop.job("big", "", resources={"cpus": 900, "memory": "1Gi"})
    )
    for run, words in ((image, ("image_pull", nowhere)), (big, ("unschedulable", "cpu"))):
        laptop.cluster.wait_for(f"the cluster's word on {run}", lambda run=run: stuck(*laptop.pods(run)), 120)  # type: ignore[misc]
        text = laptop.launcher("status", run).lower()
        print(f"{run}: {time.monotonic() - begun:.1f} s after submit began")
        assert all(word.lower() in text for word in words), text + laptop.told(run)
    laptop.launcher("cancel", image, big)


def test_cancel_ends_the_pods_and_a_gitops_controller_brings_nothing_back(laptop: Laptop) -> None:
    job = laptop.job("long", "signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(600)")
    (run,) = laptop.submit(job)
    laptop.wait_for_log(run, "up")
    laptop.launcher("cancel", run, "--reason", "enough")
    assert laptop.result(run).outcome == "cancelled"
    laptop.cluster.wait_for("the Job to go", lambda: laptop.cluster.get("job", run, laptop.namespace) is None, 60)
    laptop.launcher("render", "job.yaml", "--to", "rendered")
    laptop.cluster.kubectl("apply", "--server-side", "-f", str(laptop.path / "rendered"))
    laptop.ended_job(run)
    assert len(read_run(laptop.store, run).attempts) == 1  # its runtime saw cancel.json and left


def test_a_missing_secret_queue_or_namespace_is_said_before_anything_is_written(laptop: Laptop) -> None:
    places = {"secrets": {"HF_TOKEN": "hub/token"}, "namespace": laptop.namespace}
    text = laptop.launcher(
        "submit", laptop.write(laptop.job("one", "", secrets=["HF_TOKEN"], kubernetes=places)), code=2
    )
    assert "hub" in text
    queued = laptop.job("two", "", kubernetes={"namespace": laptop.namespace, "queue": "team-a"})
    assert "team-a" in laptop.launcher("submit", laptop.write(queued), code=2)
    elsewhere = laptop.job("three", "", kubernetes={"namespace": "no-such-place"})
    assert "no-such-place" in laptop.launcher("submit", laptop.write(elsewhere), code=2)
    assert laptop.store.folders("runs/") == []


def test_a_secret_reaches_the_command_and_nothing_else(laptop: Laptop) -> None:
    value = "hf_" + "A1b2C3d4" * 4
    laptop.cluster.secret(laptop.namespace, "hub", {"token": value})
    places = {"secrets": {"HF_TOKEN": "hub/token"}, "namespace": laptop.namespace, "store_secret": "store"}
    script = "print('the token is', E['HF_TOKEN']); (out / 'length').write_text(str(len(E['HF_TOKEN'])))"
    (run,) = laptop.submit(laptop.job("secret", script, secrets=["HF_TOKEN"], kubernetes=places))
    assert laptop.result(run).outcome == "succeeded"
    laptop.launcher("gather", run, "--to", "gathered")
    assert next((laptop.path / "gathered").rglob("length")).read_text() == str(len(value))
    stored, printed = (
        laptop.launcher("logs", run),
        laptop.cluster.logs(laptop.ended_pod(run)["metadata"]["name"], laptop.namespace),
    )
    for log in (stored, printed):
        assert "the token is" in log
        assert value not in log
    assert value not in laptop.cluster.kubectl("get", "jobs,pods,events", "-n", laptop.namespace, "-o", "yaml")
    assert not any(value.encode() in laptop.store.get(meta.key) for meta in laptop.store.scan("runs/"))


def test_doctor_says_what_the_cluster_is(laptop: Laptop) -> None:
    found = {one["check"]: one for one in json.loads(laptop.launcher("doctor", "-o", "json"))}
    assert found["kubernetes"]["state"] == "ok"
    assert f"v{laptop.cluster.version()}" in found["kubernetes"]["detail"]
    assert laptop.namespace in found["kubernetes: jobs"]["detail"]


def test_exec_and_logs_reach_a_running_pod(laptop: Laptop) -> None:
    (run,) = laptop.submit(laptop.job("up", "print('up', flush=True); time.sleep(600)"))
    laptop.wait_for_log(run, "up")  # in the store, which may be before the API server knows that the pod runs
    # kubectl may write a line of its own about the end of the stream to its errors, on a busy machine
    assert laptop.launcher("exec", run, "--", "python", "-c", "print(6 * 7)", errors=False).strip() == "42"
    laptop.launcher("exec", run, "--", "sh", "-c", "exit 5", code=5)
    laptop.launcher("cancel", run)


def test_applying_a_rendered_folder_again_is_a_no_op_and_a_changed_field_is_a_new_job(laptop: Laptop) -> None:
    job = laptop.job("git", "time.sleep(1)")
    laptop.write(job)
    folder = laptop.path / "rendered"
    laptop.launcher("render", "job.yaml", "--to", folder)
    first = laptop.cluster.kubectl("apply", "--server-side", "-f", str(folder), "-o", "json")
    again = laptop.cluster.kubectl("apply", "--server-side", "-f", str(folder), "-o", "json")
    old, same = json.loads(first)["metadata"], json.loads(again)["metadata"]
    assert (old["uid"], old["generation"]) == (same["uid"], same["generation"])
    laptop.write({**job, "env": {"CHANGED": "1"}})
    laptop.launcher("render", "job.yaml", "--to", folder)
    laptop.cluster.kubectl("apply", "--server-side", "-f", str(folder))
    jobs = {
        one["metadata"]["name"]: one["metadata"]["uid"]
        for one in laptop.cluster.get("jobs", namespace=laptop.namespace)
    }
    assert len(jobs) == 2
    assert jobs[old["name"]] == old["uid"]
    assert {laptop.result(run).outcome for run in jobs} == {"succeeded"}  # nobody submitted: the runtime wrote job.json
    assert {one["run"] for one in json.loads(laptop.launcher("status", "-o", "json"))} == set(jobs)
    kept = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    laptop.launcher("render", "job.yaml", "--to", folder)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == kept


def test_what_is_rendered_is_what_the_cluster_has(laptop: Laptop) -> None:
    job = laptop.job("same", "", env={"ODD": "$(SLIPWAY_RUN) $$ é"}, config={"text": "$(HOME)"})
    laptop.write(job)
    rendered = yaml.safe_load(laptop.launcher("render", "job.yaml").split("\n---\n")[-1])
    (run,) = laptop.submit(job)
    there = laptop.cluster.get("job", run, laptop.namespace)
    assert there["metadata"]["annotations"].items() >= rendered["metadata"]["annotations"].items()
    (wanted,), (given,) = (one["spec"]["template"]["spec"]["containers"] for one in (rendered, there))
    for one in wanted["env"]:  # the server adds this, and nothing else
        if field := one.get("valueFrom", {}).get("fieldRef"):
            field["apiVersion"] = "v1"
    assert given["env"] == wanted["env"]
    assert laptop.result(run).outcome == "succeeded"


@pytest.mark.nightly
def test_a_drained_node_gives_its_run_to_another(laptop: Laptop, cluster: Cluster) -> None:
    cluster.node(2)
    (run,) = laptop.submit(laptop.counting("count", steps=30))
    laptop.wait_for_log(run, "step 4")
    node = cluster.get("pod", laptop.running_pod(run), laptop.namespace)["spec"]["nodeName"]
    try:
        cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", timeout=180)
        result = laptop.result(run)
    finally:
        cluster.kubectl("uncordon", node)
    assert (result.outcome, result.attempt) == ("succeeded", 2)
    assert read_run(laptop.store, run).attempts[1].claims["main-0"].placement.container
    begun = [
        line for line in laptop.launcher("logs", run, "--attempt", "2").splitlines() if line.startswith("begins at")
    ]
    assert begun != ["begins at 0"]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("away", [60, pytest.param(600, marks=pytest.mark.alone)])
def test_a_store_that_is_away_for_a_while_does_not_end_the_run(laptop: Laptop, cluster: Cluster, away: int) -> None:
    pace = away / 200
    job = laptop.counting("count", 240, pace, limits={"deadline": "1h", "grace": "5s"})
    (run,) = laptop.submit(job)
    laptop.wait_for_log(run, "step 4")
    pod = laptop.running_pod(run)
    cluster.s3.stop()
    try:
        time.sleep(away)
        # the training did not wait for its store: the pod's own log tells
        lines = laptop.cluster.logs(pod, laptop.namespace).splitlines()
        assert max(int(line.split()[1]) for line in lines if line.startswith("step ")) > 100
    finally:
        cluster.s3.start()
    result = laptop.result(run, limit=240 * pace + 240)
    assert (result.outcome, result.attempt) == ("succeeded", 1)
    assert "begins at 0" in laptop.launcher("logs", run)
    assert "step 240" in laptop.launcher("logs", run)  # what was printed meanwhile, too
    assert not any("missing" in line for line in laptop.launcher("logs", run).splitlines())


@pytest.mark.nightly
def test_two_clusters_with_one_store_run_it_once(
    laptop: Laptop, cluster: Cluster, other_cluster: Cluster, tmp_path: Path
) -> None:
    other = Laptop(other_cluster, tmp_path / "other", url=laptop.url, s3=cluster)
    assert other_cluster.launcher() == cluster.launcher()  # made of the same files, so the same digest
    job = laptop.counting("both", steps=40)
    laptop.write(job)
    laptop.launcher("render", "job.yaml", "--to", "rendered")
    (file,) = (laptop.path / "rendered").iterdir()
    run = file.stem
    cluster.apply(file.read_text())
    laptop.wait_for_log(run, "step 2")
    other_cluster.namespace(laptop.namespace)
    other_cluster.secret(laptop.namespace, "store", cluster.s3.environment)
    other_cluster.apply(file.read_text())
    assert laptop.result(run).outcome == "succeeded"
    assert len(read_run(laptop.store, run).attempts) == 1
    laptop.ended_job(run, cluster=other_cluster)
    (pod,) = other_cluster.get("pods", namespace=laptop.namespace)
    assert "begins at" not in other_cluster.output(pod["metadata"]["name"], laptop.namespace)
    assert other.store.head(RunKeys(run).result) is not None
