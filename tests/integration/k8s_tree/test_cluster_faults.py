"""What `launcher cluster up` met on a real kind cluster with two cores, and got wrong. Each is told to the programs of
programs.py, which speak as the real ones did."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main
from launcher.cluster import plan, readiness, tools
from launcher.cluster.files import ClusterFiles, held
from tests.integration.k8s_tree.building import ROOT
from tests.integration.k8s_tree.test_cluster import IMAGE, UP, Machine, Output, fresh, machine, processes, said

__all__ = ["fresh", "machine", "processes", "said"]


def change(machine: Machine, **values: Any) -> None:
    (machine.fake / "state.json").write_text(json.dumps({**machine.state, **values}))


def calls(machine: Machine, *words: str) -> list[list[str]]:
    return [call for call in machine.calls if call[: len(words)] == list(words)]


# the node's image


def test_the_image_of_the_node_can_be_named(machine: Machine, said: Output) -> None:
    machine.reset(pulls="nowhere")
    assert main(UP) == 4
    assert 'failed to pull image "kindest/node' in said()
    machine.reset(pulls="registry.test/node:1")
    assert main([*UP, "--node-image", "registry.test/node:1"]) == 0
    (create,) = calls(machine, "kind", "create")
    assert create[create.index("--image") + 1] == "registry.test/node:1"


# two cores


def test_two_cores_are_told_of_and_the_next_step_fits_them(
    machine: Machine, said: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.reset(cpus="2")
    assert main([*UP, "--jobset"]) == 0
    text = said()
    step = "launcher submit examples/login --backend kubernetes --set +resources.cpus=0.25 --follow"
    assert step in text
    assert "0.95 of 2 CPUs are free. A job that asks for more waits." in text
    assert main(["cluster", "status"]) == 0
    assert "0.95 of 2 free" in said()
    monkeypatch.setenv("SLIPWAY_PROFILE", "kind-slipway")  # as the file `env` has it
    _, _, example, *options, _ = step.split()
    assert main(["render", str(ROOT / example), *options]) == 0
    assert said().count('cpu: "250m"') == 5  # what each stage asks for


def test_four_cores_need_no_smaller_request(machine: Machine, said: Output) -> None:
    assert main([*UP, "--jobset"]) == 0
    assert "launcher submit examples/login --backend kubernetes --follow" in said()


def test_jobs_fit_beside_both_controllers_on_two_cores(machine: Machine, said: Output) -> None:
    """As released, JobSet and Kueue ask for half a CPU each: nothing would be left."""
    machine.reset(cpus="2")
    assert main([*UP, "--jobset", "--kueue"]) == 0
    assert "--set +resources.cpus=0.25" in said()


def test_where_nothing_is_free_no_request_is_called_small_enough(machine: Machine, said: Output) -> None:
    machine.reset(cpus="1")
    assert main(UP) == 0
    text = said()
    assert "0.00 of 1 CPUs are free. Jobs wait until there are more." in text
    assert "+resources.cpus" not in text


def test_what_is_free_counts_pods_as_the_scheduler_does() -> None:
    def pod(phase: str, containers: list[str], init: list[str]) -> dict[str, Any]:
        def listed(cpus: list[str]) -> list[dict[str, Any]]:
            return [{"resources": {"requests": {"cpu": cpu}}} for cpu in cpus]

        return {"spec": {"containers": listed(containers), "initContainers": listed(init)}, "status": {"phase": phase}}

    nodes = [{"status": {"allocatable": {"cpu": "1500m"}}}, {"status": {"allocatable": {"cpu": "2"}}}]
    pods = [
        pod("Running", ["250m", "1"], ["500m"]),  # its containers, together
        pod("Pending", ["100m"], ["200m", "300m"]),  # its largest init container
        pod("Succeeded", ["1"], []),
        {"spec": {"containers": [{}]}, "status": {}},
    ]
    room = plan.room_of(nodes, pods)
    assert (room.cpus, round(room.free, 6)) == (3.5, 1.95)


# the next step


def test_the_next_step_works_without_jobset(machine: Machine, said: Output) -> None:
    assert main(UP) == 0
    text = said()
    assert "examples/login --backend" not in text
    assert "launcher submit examples/count/job.yaml --backend kubernetes --follow" in text
    assert "  launcher cluster up --name slipway --jobset\n" in text
    assert main([*UP, "--jobset"]) == 0
    assert main(UP) == 0  # it remembers
    assert "launcher submit examples/login --backend kubernetes" in said()


# two at once


def test_a_second_up_leaves_the_first_ones_cluster_alone(machine: Machine, said: Output) -> None:
    place = ClusterFiles.of("slipway", {"HOME": str(machine.home)})
    code = (
        "import os, sys\nfrom launcher.cluster.files import ClusterFiles, held\n"
        "with held(ClusterFiles.of('slipway', os.environ)):\n    print(os.getpid(), flush=True); sys.stdin.read()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    pid = other.stdout.readline().strip()
    try:
        for command in (UP, ["cluster", "down"]):
            assert main(command) == 5
            assert f"the cluster slipway is being made or removed by pid {pid}" in said()
        assert calls(machine, "kind") == []
        assert main([*UP, "--name", "another"]) == 0
    finally:
        other.kill()
        other.communicate()
    with held(place):  # it ends with the process, however that ends
        assert place.lock.read_text() == f"pid {os.getpid()}"
    assert main(UP) == 0


# the programs' own words


def test_kinds_own_words_are_told(machine: Machine, said: Output) -> None:
    machine.reset(daemon_words="ERROR: failed to list clusters: permission denied while trying to connect to docker")
    assert main(UP) == 4
    assert "permission denied while trying to connect to docker" in said()


def test_of_a_long_complaint_the_cause_is_told(machine: Machine, said: Output) -> None:
    machine.reset(half=True)
    assert main(UP) == 4
    text = said()
    assert "ERROR: failed to create cluster: failed to init node with kubeadm" in text
    assert "The kubelet is not healthy after 4m0" in text
    assert "To see the stack trace" in text
    assert len(text.splitlines()) < 30


def test_a_short_complaint_is_told_whole() -> None:
    lines = [f"line {number}" for number in range(tools.LINES)]
    assert tools.ProgramOutput(1, "", "\n".join(lines)).words == "\n".join(lines)
    assert tools.ProgramOutput(1, "said on the other stream", "").words == "said on the other stream"


# a node that is not ready

AWAY = "container runtime network not ready: NetworkReady=false: cni plugin not initialized"


def test_a_node_that_is_not_ready_is_not_ok(machine: Machine, said: Output) -> None:
    assert main(UP) == 0
    change(machine, unready=AWAY)
    said()
    assert main(["cluster", "status", "-o", "json"]) == 0
    (row,) = json.loads(said())
    assert (row["part"], row["state"]) == ("cluster", "waiting")
    assert AWAY in row["detail"]
    assert main(UP) == 4
    assert f"its node is not ready: slipway-control-plane: {AWAY}" in said()
    change(machine, unready="")
    assert main(UP) == 0
    assert machine.state["made"] == 1


# images


@pytest.mark.parametrize("reference", ["localhost/slipway-cpu:1", "localhost:5000/slipway-cpu:1"])
def test_images_of_this_machines_registry(machine: Machine, reference: str) -> None:
    """docker takes `localhost` for a registry's host (distribution/reference), so containerd has the name as it is."""
    change(machine, images={IMAGE: "sha256:" + "1" * 64, reference: "sha256:" + "2" * 64})
    assert main(["cluster", "up", "--image", reference]) == 0
    loaded = machine.state["clusters"]["slipway"]["loaded"]
    assert reference in loaded
    assert any(name.startswith(f"{reference.removesuffix(':1')}@sha256:") for name in loaded)


@pytest.mark.parametrize("reference", ["sha256:" + "1" * 64, "registry.test/x@sha256:" + "1" * 64])
def test_an_image_without_a_tag_is_refused_before_anything_is_made(
    machine: Machine, said: Output, reference: str
) -> None:
    assert main(["cluster", "up", "--image", reference]) == 2
    assert "`docker tag` gives one" in said()
    assert machine.state["clusters"] == {}


# additions


@pytest.mark.parametrize("name", ["jobset", "kueue"])
def test_an_addition_that_fails_leaves_a_cluster_that_works(machine: Machine, said: Output, name: str) -> None:
    assert main(UP) == 0
    without = machine.standing()
    machine.reset(offline=True)
    assert main([*UP, f"--{name}"]) == 4
    text = said()
    assert "no such host" in text
    assert f"is up without {name}; `launcher cluster up --name slipway --{name}` adds it" in text
    assert machine.standing() == without
    assert (machine.files / "env").exists()
    change(machine, offline=False)
    assert main([*UP, f"--{name}"]) == 0
    assert machine.state["made"] == 1


def test_manifests_can_lie_on_this_machine(machine: Machine, said: Output, tmp_path: Path) -> None:
    machine.reset(offline=True)
    command = [*UP, "--kueue", "--manifests", str(tmp_path)]
    assert main(command) == 2
    text = said()
    assert "kueue-0.14.0.yaml is missing; it is https://github.com/kubernetes-sigs/kueue/releases/" in text
    assert machine.state["clusters"] == {}
    (tmp_path / "kueue-0.14.0.yaml").write_text("")
    assert main(command) == 0
    assert "ClusterQueue//slipway" in machine.state["clusters"]["slipway"]["objects"]


@pytest.mark.parametrize("name", ["jobset", "kueue"])
def test_a_controllers_image_that_was_loaded_is_not_pulled(machine: Machine, name: str) -> None:
    """Kueue's release says `imagePullPolicy: Always`: without a network the image in the node would be of no use."""
    assert main([*UP, f"--{name}"]) == 0
    deployment = machine.state["clusters"]["slipway"]["objects"][f"Deployment/{name}-system/{name}-controller-manager"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"] == {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "4Gi"}}


def test_a_cluster_whose_files_are_gone_says_what_brings_them_back(machine: Machine, said: Output) -> None:
    assert main(UP) == 0
    (machine.files / "kubeconfig").unlink()
    said()
    assert main(["cluster", "status"]) == 4
    assert "there is no kubeconfig of it here; `launcher cluster up` writes it" in said()
    assert main(UP) == 0
    assert main(["cluster", "status"]) == 0
    assert machine.state["made"] == 1


# a node that was stopped: the API server remembers what was true before


def test_after_a_restart_ready_means_that_the_pods_run_again(machine: Machine, said: Output) -> None:
    assert main([*UP, "--jobset"]) == 0
    state = machine.state
    state["clusters"]["slipway"]["stopped"] = True
    change(machine, **state)
    (machine.fake / "calls.jsonl").unlink()
    said()
    assert main(UP) == 0
    text = said()
    assert text.index("starting slipway-control-plane") < text.index("ready: slipway-store/store")
    assert "ready: jobset-system/jobset-controller-manager" in text  # of an earlier up
    assert len([call for call in machine.calls if "deployments,pods" in call]) > 2
    assert machine.state["clusters"]["slipway"]["stale"] == 0


def test_pods_that_run_are_ready_although_the_clock_was_set_back(machine: Machine) -> None:
    """Their containers' times are then before their node's."""
    machine.reset(set_back=True)
    assert main([*UP, "--jobset"]) == 0


def test_a_pod_runs_where_its_own_node_runs_its_containers() -> None:
    """One of two nodes was stopped and started; the pods of the other one went on."""
    labels = {"app": "store"}
    deployment: dict[str, Any] = {
        "metadata": {"namespace": "s", "generation": 2},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}},
        "status": {"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2},
    }

    def pod(node: str, *containers: str, **metadata: Any) -> dict[str, Any]:
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"containerID": f"containerd://{each}"} for each in containers],
        }
        return {
            "metadata": {"namespace": "s", "labels": labels, **metadata},
            "spec": {"nodeName": node},
            "status": status,
        }

    tasks = {"a": ["1", "2"], "b": ["3"]}
    old, new = pod("a", "1", "2"), pod("b", "3")
    assert readiness.available(deployment, [old, new], tasks)
    for pods in (
        [old, pod("b", "0")],
        [old, pod("b", "3", "0")],
        [old, pod("b", "1")],
        [old, pod("b")],
        [old],
        [old, pod("b", "3", deletionTimestamp="2026-11-23T09:00:02Z")],
        [old, pod("b", "3", namespace="other")],
        [old, pod("b", "3", labels={})],
    ):
        assert not readiness.available(deployment, pods, tasks)
    deployment["metadata"]["generation"] = 3  # a change that its controller has not seen
    assert not readiness.available(deployment, [old, new], tasks)


def test_what_is_told_from_before_a_restart_is_not_ok(machine: Machine, said: Output) -> None:
    assert main([*UP, "--jobset"]) == 0
    state = machine.state
    state["clusters"]["slipway"] |= {"began": "2026-11-23T09:00:00", "stale": 1}
    change(machine, **state)
    for wanted in ("waiting", "ok"):
        said()
        assert main(["cluster", "status", "-o", "json"]) == 0
        states = {row["part"]: row["state"] for row in json.loads(said())}
        assert (states["store"], states["jobset"]) == (wanted, wanted)


@pytest.mark.parametrize(
    ("reason", "message", "looks"),
    [
        ("ImagePullBackOff", 'Back-off pulling image "registry.k8s.io/jobset/jobset:v0.10.1": no such host', 8),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", 8),
        ("CrashLoopBackOff", "back-off 1m20s restarting failed container", 18),
    ],
)
def test_a_pod_that_cannot_start_is_quoted_and_not_waited_for(
    machine: Machine, said: Output, reason: str, message: str, looks: int
) -> None:
    machine.reset(waiting={"jobset-controller-manager": {"reason": reason, "message": message}})
    assert main([*UP, "--jobset"]) == 4
    text = said()
    assert f"pod jobset-controller-manager-0: {reason}: {message}" in text
    assert "is up without jobset" in text
    assert len([call for call in machine.calls if "deployments,pods" in call]) < looks


@pytest.mark.parametrize(
    ("reason", "message", "looks"),
    [
        ("ErrImagePull", "reset by peer", 2),
        # a controller that met no API server when its node began again (seen on a real kind)
        ("CrashLoopBackOff", "back-off 40s restarting failed container", 8),
    ],
)
def test_what_passes_is_waited_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, reason: str, message: str, looks: int
) -> None:
    machine.reset(waiting={"jobset-controller-manager": {"reason": reason, "message": message}})
    looked = itertools.count(1)

    def pause(seconds: float) -> None:
        if next(looked) == looks:
            change(machine, waiting={})

    monkeypatch.setattr("launcher.cluster.up.time.sleep", pause)
    assert main([*UP, "--jobset"]) == 0
