"""`backend: [kubernetes, lambda]` with a real API server, scheduler, controllers and kubelet: what becomes of a run and
of its object, wherever whoever moves it is killed (kill -9)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from launcher.reasons import EXIT_NEVER, Reason
from launcher.store.layout import RunKeys
from tests.integration.moving.conftest import OfCluster
from tests.support.cluster.pods import pod
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
NOWHERE = {"node_selector": {"slipway.test/nowhere": "1"}}


def unplaced(here: OfCluster) -> str:
    """A run that no node takes: the real scheduler says so."""
    (run,) = here.submit(here.moving("nowhere", limits={"start_deadline": "1s"}, kubernetes=NOWHERE))
    until(lambda: any("conditions" in each["status"] for each in here.pods(run)), lambda: here.explain(run))
    return run


def moved(here: OfCluster, run: str) -> None:
    until(lambda: any(row.startswith("moved: to lambda") for row in here.reap(run)), lambda: here.explain(run))


def computing(here: OfCluster, **resources: Any) -> str:
    """A run whose pod computes, and has stored checkpoints."""
    (run,) = here.submit(here.moving("computes", resources={"cpus": 0.1, "memory": "256Mi", **resources}))
    until(lambda: len(here.checkpoints(run)) > 2, lambda: here.explain(run))
    return run


@contextmanager
def preempted(here: OfCluster) -> Iterator[str]:
    """A run that computed, until a pod of a higher priority took its node; that one stays for the block."""
    allocatable = here.cluster.get("node", "n1")["status"]["allocatable"]["cpu"]
    most = 0.6 * (float(allocatable[:-1]) / 1000 if allocatable.endswith("m") else float(allocatable))
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": here.namespace}}
    run = computing(here, cpus=round(most, 2))
    urgent = pod("urgent", here.cluster.py(), "sleep", "3600", priorityClassName=here.namespace)
    urgent["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{most:.2f}"}}
    try:
        here.cluster.apply({**kind, "value": 1000})
        here.cluster.apply(urgent, here.namespace)
        until(lambda: here.view(run).attempts[0].exits, lambda: here.explain(run))
        yield run
    finally:
        here.cluster.kubectl("delete", "pod", "urgent", "-n", here.namespace, "--grace-period=0", "--force")
        here.cluster.kubectl("delete", "priorityclass", here.namespace)


def applied(here: OfCluster, run: str, *, edited: bool = False) -> None:
    """What GitOps does with a file that is still there; `edited`: by somebody who lets every node take it."""
    documents = list(yaml.safe_load_all(here.launcher("render", "job.yaml")))
    (job,) = [each for each in documents if each and each["kind"] == "Job"]
    if edited:
        del job["spec"]["template"]["spec"]["nodeSelector"]
    here.cluster.apply(job, here.namespace)
    assert here.cluster.get("job", run, here.namespace)


@pytest.mark.nightly
def test_a_run_that_no_node_takes_goes_to_lambda_once(here: OfCluster) -> None:
    run = unplaced(here)
    until(lambda: "to lambda: not started within 1 s" in here.launcher("reap"), lambda: here.explain(run))
    status = here.launcher("status", run)
    assert "kubernetes, then lambda" in status
    assert "moved to lambda: not started within 1 s" in status
    here.went_on(run, 2)
    assert [row for row in here.reap(run) if not row.startswith("stopped")] == []
    assert here.object(run) == []


def test_a_preempted_pods_run_goes_on_from_its_checkpoint(here: OfCluster) -> None:
    with preempted(here) as run:
        moved(here, run)
        here.went_on(run, 3)
    assert here.view(run).attempts[0].exits["main-0"].reason is Reason.PREEMPTED
    assert here.object(run) == []


def test_an_object_that_is_made_again_computes_nothing(here: OfCluster) -> None:
    """By GitOps or by hand, and edited so that a node takes it: while Lambda computes, and after the run's end."""
    run = unplaced(here)
    moved(here, run)
    until(lambda: len(here.witness.of(2)) > 3, lambda: here.explain(run))
    applied(here, run, edited=True)
    ended = here.ended_pod(run)
    (told,) = ended["status"]["containerStatuses"]
    assert told["state"]["terminated"]["exitCode"] == EXIT_NEVER
    assert "it is the turn of the run's backend 2" in here.cluster.logs(ended["metadata"]["name"], here.namespace)
    # before that, a reaper may see the Job run, and end it
    assert here.ended_job(run)["type"] == "Failed"
    assert not here.reap(run)
    assert len(here.living()) == 1
    here.went_on(run, 2)
    here.cluster.kubectl("delete", "job", run, "-n", here.namespace)
    applied(here, run, edited=True)
    assert here.ended_job(run)["type"] == "Complete"
    assert {attempt for _, attempt, _ in here.witness.steps} == {2}
    assert len(here.machines.ledger("launched")) == 1


@pytest.mark.nightly
def test_cancel_ends_it_on_both(here: OfCluster) -> None:
    run = unplaced(here)
    moved(here, run)
    until(lambda: len(here.witness.of(2)) > 1, lambda: here.explain(run))
    applied(here, run)
    here.launcher("cancel", run)
    assert here.cluster.wait_for("its Job to go", lambda: here.object(run) == [], 60)
    assert here.living() == []
    until(lambda: here.store.head(RunKeys(run).result) or here.reap(run) is None, lambda: here.explain(run))
    assert here.status(run)["state"] == "cancelled"
    assert json.loads(here.launcher("status", "--paid", "-o", "json")) == []
    assert here.reap(run) == []


def killed(here: OfCluster, run: str, verb: str, at: int, attempt: int) -> None:
    here.dying(verb, run, at)
    until(lambda: (here.reap(run), here.view(run).turn)[1] == 1, lambda: here.explain(run))
    until(lambda: (here.reap(run), here.living())[1], lambda: here.explain(run))
    here.went_on(run, attempt)
    here.reap(run)
    assert here.object(run) == []
    assert len(here.machines.ledger("launched")) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("at", range(0, 155, 5))  # of about 150 moments
def test_wherever_a_reaper_is_killed(here: OfCluster, at: int) -> None:
    killed(here, unplaced(here), "reap", at, 2)


@pytest.mark.nightly
@pytest.mark.parametrize("at", range(10, 345, 40))  # of about 340 moments
def test_wherever_it_is_killed_after_a_preemption(here: OfCluster, at: int) -> None:
    with preempted(here) as run:
        killed(here, run, "reap", at, 3)


@pytest.mark.nightly
def test_a_drained_nodes_run_goes_on_from_its_checkpoint(here: OfCluster) -> None:
    """Nobody else takes it: the node is the only one."""
    run = computing(here)
    try:
        here.cluster.kubectl("drain", "n1", "--ignore-daemonsets", "--delete-emptydir-data", "--force", timeout=180)
        moved(here, run)
        here.went_on(run, 3)
    finally:
        here.cluster.kubectl("uncordon", "n1")
    assert here.object(run) == []


@pytest.mark.nightly
def test_a_cluster_that_is_cut_off_does_not_hold_a_run_and_computes_nothing_beside_it(here: OfCluster) -> None:
    """A person moves it while its pod computes and nobody can tell the API server: the store does."""
    run = computing(here)
    usual = here.environment["KUBECONFIG"]
    text = here.cluster.kubeconfig.read_text().replace(here.cluster.server, "https://127.0.0.1:1")
    (here.path / "cut").write_text(text)
    here.environment["KUBECONFIG"] = str(here.path / "cut")
    assert here.dying("move", run)[1:] == ["moved"]
    here.environment["KUBECONFIG"] = usual
    until(lambda: len(here.witness.of(3)) > 3, lambda: here.explain(run))
    assert here.witness.one_at_a_time()
    # its pod ends, and the next one leaves at once with the code after which a Job makes no more
    assert here.ended_job(run)["type"] == "Failed"
    until(lambda: here.object(run) in ([], [run]), lambda: here.explain(run))
    assert not [row for row in here.reap(run) if not row.startswith("stopped")]
    here.witness.found[3] = None  # that the Job was still there then is the case
    here.went_on(run, 3)
    assert {attempt for _, attempt, _ in here.witness.steps} == {1, 3}
