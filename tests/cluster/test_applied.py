"""Runs that GitOps applied: `kubectl apply` of rendered files, as Argo CD and Flux do it, on a real API server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.cli import main
from launcher.protocol import decide
from launcher.protocol.applied import was_applied
from launcher.protocol.read import read_run
from launcher.store.layout import RunKeys
from tests.cluster.laptop import Laptop
from tests.integration.k8s_tree.building import objects
from tests.support.tampering import EXTRA_ENV

pytestmark = [pytest.mark.cluster("jobset"), pytest.mark.timeout(300)]
NOWHERE = {"slipway.test/nowhere": "1"}


def block(laptop: Laptop, **options: Any) -> dict[str, Any]:
    return {"namespace": laptop.namespace, "store_secret": "store", **options}


def waiting(laptop: Laptop, name: str, *, limits: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """A job that no node takes."""
    job = laptop.job(name, "", kubernetes=block(laptop, node_selector=NOWHERE, **options))
    return {**job, "limits": {**job["limits"], **(limits or {})}}


def rendered(laptop: Laptop, *jobs: Mapping[str, Any]) -> tuple[Path, list[str]]:
    """The folder of rendered files, and the runs in them."""
    folder = laptop.path / "rendered"
    laptop.launcher("render", laptop.write(*jobs), "--to", folder)
    runs: dict[str, str] = {}
    for path in folder.iterdir():
        for document in yaml.safe_load_all(path.read_text()):
            runs |= json.loads(document["metadata"].get("annotations", {}).get("slipway.dev/runs", "{}"))
    return folder, sorted(runs)


def applied(laptop: Laptop, *jobs: Mapping[str, Any]) -> list[str]:
    laptop.cluster.jobset()
    folder, runs = rendered(laptop, *jobs)
    laptop.cluster.kubectl("apply", "--server-side", "-n", laptop.namespace, "-f", str(folder))
    return runs


def stored(laptop: Laptop) -> list[str]:
    return laptop.store.folders("runs/")


def shapes(laptop: Laptop, shape: str) -> list[dict[str, Any]]:
    match shape:
        case "job":
            return [waiting(laptop, "one")]
        case "large":
            return [{**waiting(laptop, "large"), "config": {"text": "x" * 100_000}}]
        case "array":
            return [{**waiting(laptop, "seeds", array=True), "config": {"seed": 0}, "matrix": {"config.seed": [0, 1]}}]
    first, second = waiting(laptop, "first"), waiting(laptop, "second")
    return [first, {**second, "inputs": {"data": {"job": "first", "output": "results"}}}]


@pytest.mark.parametrize("shape", ["job", "large", "array", "pipeline"])
def test_a_run_that_never_started_is_known_by_its_object(laptop: Laptop, shape: str) -> None:
    runs = applied(laptop, *shapes(laptop, shape))
    assert stored(laptop) == []
    record = laptop.status(runs[0])
    assert (record["run"], record["state"], record["attempt"] or 0) == (runs[0], "queued", 0)
    assert stored(laptop) == runs  # all of an object
    assert all(was_applied(read_run(laptop.store, run)) for run in runs)


@pytest.mark.parametrize("verb", ["wait", "logs", "exec", "name", "listing", "beginning"])
def test_any_verb_makes_it_known(laptop: Laptop, verb: str) -> None:
    (run,) = applied(laptop, waiting(laptop, "one"))
    match verb:
        case "wait":
            assert "still" in laptop.launcher("wait", run, "--timeout", "1s", code=1)
        case "logs":
            assert "has not begun" in laptop.launcher("logs", run)
        case "exec":
            assert "no pod that runs" in laptop.launcher("exec", run, "--", "true", code=3)
        case "name":
            assert laptop.status("one")["run"] == run
        case "listing":
            assert [record["run"] for record in json.loads(laptop.launcher("status", "-o", "json"))] == [run]
        case "beginning":
            assert laptop.status(run[:-3])["run"] == run
    assert stored(laptop) == [run]


def test_the_newest_run_of_a_name_is_the_one_that_was_applied(laptop: Laptop) -> None:
    (before,) = laptop.submit(waiting(laptop, "one"))
    submitted = laptop.store.head(RunKeys(before).job)
    assert submitted is not None
    laptop.cluster.wait_for("the store's next second", lambda: laptop.store.now() > submitted.modified + 1.5, 60)
    (run,) = set(applied(laptop, {**waiting(laptop, "one"), "env": {"TEST_JOB": "one", "LR": "2"}})) - {before}
    assert f'"run": "{run}"' in laptop.launcher("status", "one", "-o", "json")


def test_cancel_ends_it(laptop: Laptop) -> None:
    (run,) = applied(laptop, waiting(laptop, "one"))
    laptop.launcher("cancel", run)
    assert laptop.wait_for_state(run, "cancelled")["reason"] == "cancelled"
    laptop.cluster.wait_for("the Job to go", lambda: laptop.cluster.get("job", run, laptop.namespace) is None, 60)


def test_reap_ends_it_after_its_start_deadline(laptop: Laptop) -> None:
    """The wait began when the object was made, not when somebody first looked."""
    late, patient = applied(
        laptop, waiting(laptop, "late", limits={"start_deadline": "1s"}), waiting(laptop, "patient")
    )
    laptop.cluster.wait_for("a second", lambda: laptop.store.now() - made(laptop, late) > 2, 60)
    told = json.loads(laptop.launcher("reap", "--backend", "kubernetes", "--dry-run", "-o", "json"))
    assert [(row["run"], row["did"]) for row in told if row["run"] == late] == [(late, "would be noted")]
    assert stored(laptop) == []
    told = json.loads(laptop.launcher("reap", "--backend", "kubernetes", "-o", "json"))
    assert {(late, "noted"), (patient, "noted")} <= {(row["run"], row["did"]) for row in told}

    def ended() -> bool:  # by the reaper that finds its object gone
        laptop.launcher("reap", "--backend", "kubernetes")
        return laptop.store.head(RunKeys(late).result) is not None

    laptop.cluster.wait_for("the end of the late run", ended, 60)
    assert laptop.result(late).reason == "unschedulable"
    assert laptop.status(patient)["state"] == "queued"


def made(laptop: Laptop, run: str) -> float:
    from launcher.backends.kubernetes.watch.endings import moment

    return moment(laptop.cluster.get("job", run, laptop.namespace)["metadata"]["creationTimestamp"]) or 0.0


@pytest.mark.parametrize("change", ["variable", "another job"])
def test_of_an_object_that_was_changed_nothing_is_written(laptop: Laptop, change: str) -> None:
    folder, (run,) = rendered(laptop, waiting(laptop, "one"))
    (path,) = folder.iterdir()
    value = yaml.safe_load(path.read_text())
    environment = value["spec"]["template"]["spec"]["containers"][0]["env"]
    if change == "variable":
        environment.append(EXTRA_ENV)
    else:  # the run's name, and a job that has another hash
        (job,) = [each for each in environment if each["name"] == "SLIPWAY_JOB"]
        job["value"] = job["value"].replace('"TEST_JOB":"one"', '"TEST_JOB":"two"')
    laptop.cluster.apply(value, laptop.namespace)
    text = laptop.launcher("status", run, code=3)
    assert f"{run} is not written into the store: Job {run} in namespace {laptop.namespace}" in text
    assert "kubectl delete job" in text
    assert "is not written" in laptop.launcher("status")
    assert "is not written" in laptop.launcher("reap", "--backend", "kubernetes", code=None)
    laptop.launcher("cancel", run, code=3)
    assert stored(laptop) == []


def test_an_object_of_a_submitted_run_that_was_changed_is_not_told_with_other_runs(laptop: Laptop) -> None:
    changed, other = laptop.submit(waiting(laptop, "one")) + laptop.submit(waiting(laptop, "one-more"))
    change = '{"spec":{"ttlSecondsAfterFinished":99}}'
    laptop.cluster.kubectl("patch", "job", changed, "-n", laptop.namespace, "-p", change)
    for names in (["one-more"], [other], ["one"], []):
        done = laptop.launcher("status", *names)
        assert "does not run" not in done, names
    again = laptop.write(waiting(laptop, "one"))
    assert "which ends its runs (kubectl delete job" in laptop.launcher("submit", again, code=None)


def test_a_run_of_another_store_is_not_written_into_this_one(laptop: Laptop) -> None:
    (run,) = applied(laptop, waiting(laptop, "one"))
    other = laptop.cluster.s3.url()
    laptop.launcher("status", run, "--store", other, code=3)
    laptop.launcher("status", "--store", other)
    assert stored(laptop) == []


def test_a_cluster_that_does_not_answer_is_one_line(laptop: Laptop, tmp_path: Path) -> None:
    (run,) = laptop.submit(waiting(laptop, "one"))
    away = yaml.safe_load(Path(laptop.environment["KUBECONFIG"]).read_text())
    for each in away["clusters"]:
        each["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "away").write_text(yaml.safe_dump(away))
    laptop.environment["KUBECONFIG"] = str(tmp_path / "away")
    done = subprocess.run(
        [laptop_program(), "status"],
        cwd=laptop.path,
        env=laptop.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run in done.stdout
    assert done.stderr.count("runs that were applied and have not started are not shown") == 1
    assert laptop.store.head(RunKeys(run).job) is not None


def test_submit_of_what_git_has_already_attaches_and_says_that_it_was_applied(laptop: Laptop) -> None:
    (run,) = applied(laptop, waiting(laptop, "one"))
    uid = laptop.cluster.get("job", run, laptop.namespace)["metadata"]["uid"]
    assert laptop.submit(waiting(laptop, "one")) == [run]
    assert laptop.cluster.get("job", run, laptop.namespace)["metadata"]["uid"] == uid
    assert was_applied(read_run(laptop.store, run))
    (own,) = laptop.submit(waiting(laptop, "two"))
    assert not was_applied(read_run(laptop.store, own))


def test_two_kubeconfigs_with_different_namespaces_make_one_object(laptop: Laptop, tmp_path: Path) -> None:
    """The job names no namespace; the second kubeconfig's is another one."""
    job = {**waiting(laptop, "one"), "kubernetes": {"store_secret": "store", "node_selector": NOWHERE}}
    (laptop.path / "slipway.yaml").write_text(yaml.safe_dump({"store": laptop.url, "backend": "kubernetes"}))
    other = laptop.cluster.namespace()
    laptop.cluster.secret(other, "store", laptop.cluster.s3.environment)
    config = yaml.safe_load(Path(laptop.environment["KUBECONFIG"]).read_text())
    for namespace in (laptop.namespace, other):
        for context in config["contexts"]:
            context["context"]["namespace"] = namespace
        (tmp_path / namespace).write_text(yaml.safe_dump(config))
    laptop.environment["KUBECONFIG"] = str(tmp_path / laptop.namespace)
    (run,) = laptop.submit(job)
    laptop.environment["KUBECONFIG"] = str(tmp_path / other)
    line = f"{run} is in namespace {laptop.namespace} of this cluster, and its job names none"
    assert line in laptop.launcher("submit", laptop.write(job), code=5)
    assert laptop.cluster.get("job", run, other) is None
    assert line in laptop.status(run)["detail"]
    assert laptop.store.head(RunKeys(run).result) is None


def attempts(laptop: Laptop, run: str) -> int:
    return len(read_run(laptop.store, run).attempts)


def delete(laptop: Laptop, run: str) -> None:
    """As a person or a pruning tool deletes it."""
    laptop.cluster.kubectl("delete", "job", run, "-n", laptop.namespace, "--cascade=foreground", timeout=120)


def test_a_deleted_object_is_made_again_and_the_run_goes_on_from_its_checkpoint(laptop: Laptop) -> None:
    job = {**laptop.counting("count", 12, pace=8.0), "kubernetes": block(laptop)}
    (run,) = applied(laptop, job)
    laptop.wait_for_log(run, "step 2")
    assert was_applied(read_run(laptop.store, run))  # its runtime wrote job.json
    delete(laptop, run)
    record = laptop.status(run)
    assert record["state"] not in ("failed", "cancelled", "succeeded")
    assert "unknown" in laptop.launcher("reap", "--backend", "kubernetes")
    assert laptop.store.head(RunKeys(run).result) is None
    assert applied(laptop, job) == [run]  # the next sync
    assert laptop.result(run).outcome == "succeeded"
    laptop.ended_job(run)
    assert attempts(laptop, run) == 2
    assert "begins at 0" not in laptop.launcher("logs", run)
    # the same after its end (a TTL, or somebody's hand): no work is done twice
    delete(laptop, run)
    applied(laptop, job)
    assert laptop.ended_job(run)["type"] == "Complete"
    assert attempts(laptop, run) == 2


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_run_of_a_laptop_whose_file_is_committed_later_is_one_of_git(laptop: Laptop, side: str) -> None:
    """The tool takes the object over; from then on it makes it again."""
    job = {**laptop.counting("count", 12, pace=8.0), "kubernetes": block(laptop)}
    (run,) = laptop.submit(job)
    laptop.wait_for_log(run, "step 1")
    laptop.launcher("reap", "--backend", "kubernetes")
    assert not was_applied(read_run(laptop.store, run))
    folder, _ = rendered(laptop, job)
    how = ["--server-side", "--force-conflicts"] if side == "server" else []
    laptop.cluster.kubectl("apply", *how, "-n", laptop.namespace, "-f", str(folder))
    laptop.launcher("reap", "--backend", "kubernetes")
    assert was_applied(read_run(laptop.store, run))
    delete(laptop, run)
    assert laptop.status(run)["state"] not in ("failed", "cancelled", "succeeded")
    assert laptop.store.head(RunKeys(run).result) is None
    assert applied(laptop, job) == [run]  # the next sync
    assert laptop.result(run).outcome == "succeeded"


FLUX = "kustomize.toolkit.fluxcd.io"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# the definition of Flux as far as it is read: a list with a status; by Flux 1.9.5
KUSTOMIZATIONS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"kustomizations.{FLUX}"},
    "spec": {
        "group": FLUX,
        "names": {"kind": "Kustomization", "plural": "kustomizations", "singular": "kustomization"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OPEN}}],
    },
}


@pytest.fixture
def flux(laptop: Laptop) -> Iterator[Laptop]:
    """A cluster with Flux' Kustomizations and the rights that k8s/gitops/flux gives; no controller."""
    cluster = laptop.cluster
    cluster.settle("flux-system")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flux-system"}})
    there = cluster.get("crd", f"kustomizations.{FLUX}") is not None  # a test with Flux itself came before
    if not there:
        cluster.apply(KUSTOMIZATIONS)
        how = ("get", f"crd/kustomizations.{FLUX}", "-o", "jsonpath={.status.acceptedNames.plural}")
        cluster.wait_for("the kind", lambda: cluster.kubectl(*how) == "kustomizations", 120)
        cluster.wait_for("it to be served", lambda: cluster.get("kustomizations", namespace="flux-system") == [], 120)
    rights = [one for one in objects("gitops/flux") if "inventory" in one["metadata"]["name"]]
    assert [one["kind"] for one in rights] == ["Role", "RoleBinding"]
    cluster.apply(rights)
    yield laptop
    cluster.kubectl("delete", "namespace", "flux-system", "--wait=false")
    if not there:
        cluster.kubectl("delete", "crd", f"kustomizations.{FLUX}", timeout=120)


def keeps(laptop: Laptop, *names: str) -> None:
    """A Kustomization whose inventory has these objects, as kustomize-controller writes it."""
    entries = [{"id": f"{laptop.namespace}_{each}", "v": "v1"} for each in names]
    spec = {"interval": "10m", "path": "./jobs", "prune": True, "sourceRef": {"kind": "GitRepository", "name": "jobs"}}
    kustomization = {"apiVersion": f"{FLUX}/v1", "kind": "Kustomization", "spec": spec}
    kustomization["metadata"] = {"name": laptop.namespace, "namespace": "flux-system"}
    laptop.cluster.apply({**kustomization, "status": {"inventory": {"entries": entries}}})
    patch = json.dumps({"status": {"inventory": {"entries": entries}}})
    how = ("patch", "kustomization", laptop.namespace, "-n", "flux-system", "--type=merge", "-p", patch)
    laptop.cluster.kubectl(*how, "--subresource=status", check=False)  # of Flux' own definition


@pytest.mark.parametrize("who", ["status", "reap"])
def test_a_run_whose_file_flux_found_standing_is_one_of_git_by_fluxs_own_list(flux: Laptop, who: str) -> None:
    """With `ssa: IfNotPresent` Flux sends nothing to a Job that is there, so that nothing on the Job tells."""
    laptop = flux
    job = {**laptop.counting("count", 12, pace=8.0), "kubernetes": block(laptop)}
    (run,) = laptop.submit(job)
    laptop.wait_for_log(run, "step 1")
    laptop.launcher("reap", "--backend", "kubernetes")
    assert not was_applied(read_run(laptop.store, run))
    keeps(laptop, "other_batch_Job", f"{run}_batch_Job")
    if who == "reap":  # while the object is there, for those who may not read the list
        laptop.launcher("reap", "--backend", "kubernetes")
        assert was_applied(read_run(laptop.store, run))
    delete(laptop, run)
    assert laptop.status(run)["state"] not in ("failed", "cancelled", "succeeded")
    assert was_applied(read_run(laptop.store, run))
    folder, _ = rendered(laptop, job)  # Flux' next interval
    laptop.cluster.kubectl("apply", "--server-side", "-n", laptop.namespace, "-f", str(folder))
    assert laptop.result(run).outcome == "succeeded"
    assert attempts(laptop, run) == 2


@pytest.mark.parametrize(
    "who",
    [
        ("--as=system:serviceaccount:slipway-system:slipway-reaper",),
        ("--as=anna", "--as-group=slipway:submitters"),
        ("--as=rita", "--as-group=slipway:readers"),
    ],
)
def test_the_shipped_rights_show_fluxs_list_and_nothing_else_of_flux(flux: Laptop, who: tuple[str, ...]) -> None:
    def may(verb: str, what: str, space: str = "flux-system") -> bool:
        words = ("auth", "can-i", verb, what, "-n", space, *who)
        return flux.cluster.kubectl(*words, check=False).split()[0] == "yes"

    assert may("list", f"kustomizations.{FLUX}")
    for verb in ("patch", "create", "delete"):
        assert not may(verb, f"kustomizations.{FLUX}")
    assert not may("list", "secrets")
    assert not may("list", f"kustomizations.{FLUX}", flux.namespace)


def test_a_removed_file_cancels_its_run_and_not_the_one_of_the_changed_job(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "print('up', flush=True); time.sleep(float(E['LAST']))"
    first = laptop.job("first", script, env={"LAST": "600"}, kubernetes=block(laptop))
    (run,) = applied(laptop, first)
    laptop.wait_for_log(run, "up")
    (changed,) = {*applied(laptop, {**first, "env": {**first["env"], "LAST": "1"}})} - {run}
    assert laptop.result(changed).outcome == "succeeded"
    delete(laptop, run)  # pruned with its file
    assert laptop.status(run)["state"] not in ("failed", "cancelled", "succeeded")
    monkeypatch.setattr(decide, "GONE_FOR_GOOD", 1.0)
    monkeypatch.chdir(laptop.path)
    for name, value in laptop.environment.items():
        monkeypatch.setenv(name, value)
    laptop.cluster.wait_for("a moment", lambda: ended(laptop, run, capsys), 120)
    result = laptop.result(run)
    assert (result.outcome, result.reason) == ("cancelled", "cancelled")
    assert "its file was removed from Git" in result.message
    # somebody brings the file back
    applied(laptop, first)
    assert laptop.ended_job(run)["type"] == "Failed"
    assert attempts(laptop, run) == 1


def ended(laptop: Laptop, run: str, capsys: pytest.CaptureFixture[str]) -> bool:
    main(["status", run])
    capsys.readouterr()
    return laptop.store.head(RunKeys(run).result) is not None


def laptop_program() -> str:
    import sys

    return str(Path(sys.executable).with_name("launcher"))
