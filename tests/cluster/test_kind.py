"""`launcher cluster` with a real kind, from nothing: Docker engine, node image, cluster, runs, and nothing left.

Nightly, and alone: a cluster asks for most of two cores. What a machine without a registry needs besides the documented
words is `--node-image`, `--manifests` and the controllers' images (tests/support/kind)."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.pages import section
from tests.integration.docker.test_login import CHANCE, GOAL
from tests.support.documented import ROOT
from tests.support.engine import Engine, NoEngine
from tests.support.kind.engine import running
from tests.support.kind.images import controller_image, small_cpu_image
from tests.support.kind.node_image import node_image
from tests.support.kind.user import RELEASES, KindUser
from tests.support.needs import lacking
from tests.support.waiting import until

pytestmark = [
    pytest.mark.cluster("kind", "releases"),
    pytest.mark.nightly,
    pytest.mark.alone,
    pytest.mark.timeout(1500),
]
PAGE = ROOT / "docs/howto/kubernetes-admin.md"
SMALL = "--set +resources.cpus=0.1"
# two stages of one JobSet: the login example's first, smaller, and one that reads its output
STAGES = """
name: kind-first
image: slipway-cpu
command: [python, -m, training.make_episodes, --config, $SLIPWAY_CONFIG]
config:
  environment: login
  tasks: {count: 20, seed: 0}
  options: {split: train, disturb: 0.25}
  prompt: {dialect: dsl, decimals: 2, system: "", history: 0}
outputs: [episodes]
limits: {deadline: 1h}
timing: {beat: 2s}
---
name: kind-second
image: slipway-cpu
command: [python, -c, "import os; print('parts:', len(os.listdir(os.environ['SLIPWAY_INPUTS'] + '/episodes')))"]
inputs:
  episodes: {job: kind-first, output: episodes}
limits: {deadline: 1h}
timing: {beat: 2s}
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KindUser]:
    """A user of an engine that has the images; no cluster yet. At the end a table of what took how long."""
    began = time.monotonic()
    try:
        with running() as engine:
            user = KindUser(engine, tmp_path_factory.mktemp("home"), node_image(engine))
            small_cpu_image(engine)
            user.seconds["engine, node image, slipway-cpu without torch"] = time.monotonic() - began
            yield user
            table = "".join(f"| {step} | {seconds:.0f} |\n" for step, seconds in user.seconds.items())
            print(f"\n| step | seconds |\n|---|---|\n{table}")
            (engine.state / "seconds.md").write_text(table)
    except NoEngine as error:
        lacking("docker", str(error))


@pytest.fixture
def user(machine: KindUser) -> KindUser:
    """Has a cluster with JobSet, and sourced its environment."""
    if machine.read_status()["cluster"] == "absent":
        image = controller_image(machine.engine, RELEASES / "jobset-0.10.1.yaml", "jobset-manager")
        machine.up(
            "--image", "slipway-cpu", "--image", image, "--jobset", step="`cluster up` with JobSet, from nothing"
        )
    machine.source()
    return machine


def documented(start: str) -> str:
    """The command of the page's section that begins so."""
    (line,) = (
        shown.line
        for block in section(PAGE, "On this machine: kind")
        for shown in block
        if shown.line.startswith(start)
    )
    return line


def test_the_first_steps(user: KindUser, tmp_path: Path) -> None:
    stages = tmp_path / "stages.yaml"
    stages.write_text(STAGES)
    text = user.type(f"launcher submit {stages} --backend kubernetes {SMALL} --follow", step="two stages of one JobSet")
    assert re.search(r"kind-first: succeeded.*kind-second: succeeded", text, re.DOTALL)
    assert "parts: " in user.type("launcher logs kind-second")
    assert user.type("launcher wait kind-first kind-second").count("succeeded") == 2
    assert {run["state"] for run in user.read("status", "kind-first", "kind-second")} == {"succeeded"}
    checks = {check["check"]: check["state"] for check in user.read("doctor")}
    assert set(checks.values()) == {"ok"}, checks
    assert "kubernetes: jobs" in checks


def test_the_reaper_runs_in_the_image_that_was_loaded(user: KindUser) -> None:
    user.kubectl("-n", "slipway-system", "create", "job", "--from=cronjob/slipway-reaper", "reaper-now")
    user.kubectl("-n", "slipway-system", "wait", "--for=condition=complete", "job/reaper-now", "--timeout=240s")
    assert "nothing to do" in user.kubectl("-n", "slipway-system", "logs", "job/reaper-now")


def test_a_second_up_changes_nothing(user: KindUser) -> None:
    def standing() -> object:
        started = user.engine.docker(
            "inspect", "--format", "{{.Id}} {{.State.StartedAt}}", "slipway-control-plane"
        ).stdout
        deployments = user.objects("deployments", "-A")
        return (
            started,
            {each["metadata"]["uid"]: each["metadata"]["generation"] for each in deployments},
            {
                pod["metadata"]["uid"]
                for pod in user.objects("pods", "-A")
                if pod["metadata"]["namespace"] != "slipway-system"
            },
            user.files.environment.read_text(),
            user.read("status"),
        )

    before = standing()
    user.up("--image", "slipway-cpu", "--jobset", step="`cluster up` again")
    assert standing() == before


def test_a_pod_that_is_deleted_in_the_middle_continues(user: KindUser) -> None:
    user.type(f"launcher submit examples/count/job.yaml --backend kubernetes {SMALL} --set config.last=80")

    def saved() -> bool:
        (run,) = user.read("status", "count")
        return run["state"] == "running" and run["checkpoint"] is not None

    began = time.monotonic()
    until(saved, lambda: user.kubectl("get", "pods", "-n", "slipway"))
    user.kubectl("delete", "pod", "-n", "slipway", "-l", "slipway.dev/run", "--field-selector", "status.phase=Running")
    assert "succeeded" in user.type("launcher wait count")
    user.seconds["a pod deleted in the middle, to the end of attempt 2"] = time.monotonic() - began
    (run,) = user.read("status", "count")
    assert (run["state"], run["attempt"]) == ("succeeded", 2)
    assert re.search(r"continuing from checkpoint \d+ of count-\w+, attempt 1", user.type("launcher logs count"))


def test_a_node_that_was_stopped_is_ready_when_up_says_so(user: KindUser) -> None:
    runs = user.read("status")
    user.engine.docker("stop", "slipway-control-plane")
    assert user.type("launcher cluster status", code=4).count("failed") == 1
    user.up(step="`cluster up` after `docker stop`")
    # at once, and without a single retry
    assert user.type("curl -sS --fail --max-time 5 http://127.0.0.1:7070/health") == "OK"
    assert user.read("status") == runs
    states = user.read_status()
    assert {states[part] for part in ("cluster", "store", "jobset")} == {"ok"}


def test_a_queue(user: KindUser) -> None:
    image = controller_image(user.engine, RELEASES / "kueue-0.14.0.yaml", "kueue-manager")
    user.up("--image", image, "--kueue", step="`cluster up --kueue` besides")
    text = user.type(f"launcher submit examples/count/job.yaml --backend kubernetes {SMALL} --set name=queued --follow")
    assert "queued: succeeded" in text

    def ended() -> bool:  # the Job, and so its Workload, ends after the run
        (workload,) = user.objects("workloads", "-n", "slipway")
        true = {each["type"] for each in workload["status"]["conditions"] if each["status"] == "True"}
        return true >= {"Admitted", "Finished"}

    until(ended, lambda: user.objects("workloads", "-n", "slipway"))
    assert "slipway" in user.type("launcher queues")


def test_down_leaves_nothing(user: KindUser) -> None:
    own = user.home / ".kube" / "config"
    own.parent.mkdir(exist_ok=True)
    own.write_text("# the user's own\n")
    user.sourced.clear()
    user.type(documented("launcher cluster down"), step="`cluster down`")
    assert user.engine.docker("ps", "--all", "--quiet").stdout == ""
    assert user.engine.docker("volume", "ls", "--quiet").stdout == ""
    networks = user.engine.docker("network", "ls", "--format", "{{.Name}}").stdout.split()
    assert sorted(networks) == ["bridge", "host", "kind", "none"]  # kind keeps its network for the next cluster
    assert own.read_text() == "# the user's own\n"
    assert not user.files.folder.exists()
    assert not (user.home / ".config/slipway/slipway.yaml").exists()
    assert json.loads(user.type("launcher cluster status -o json", code=3))[0]["state"] == "absent"


@pytest.mark.ml
@pytest.mark.timeout(6000)
def test_the_documented_sequence_trains_the_login_example(machine: KindUser, engine: Engine, cpu_image: str) -> None:
    """The page's block, as it stands; its image was built by the same command for the tests' engine, which has a way to
    the package registries."""
    lines = [shown.line for block in section(PAGE, "On this machine: kind") for shown in block]
    build, up, source, submit, down = lines
    assert build == "make tools && launcher images build slipway-cpu"
    if machine.read_status()["cluster"] != "absent":
        machine.type(down)
    machine.sourced.clear()
    machine.engine.take(engine.environment, cpu_image)
    controller = controller_image(machine.engine, RELEASES / "jobset-0.10.1.yaml", "jobset-manager")
    assert up.startswith("launcher cluster up ")
    machine.up(*shlex.split(up)[3:], "--image", controller, step="`cluster up` with the whole slipway-cpu and JobSet")
    machine.type(source)
    print(machine.type(submit, step="examples/login, whole", timeout=3000))
    rows = machine.read("results", "login-before", "login-after")
    success = {row["agent"]: row["value"] for row in rows if row["metric"] == "success"}
    assert success["trained"] >= GOAL
    assert max(success[agent] for agent in ("untrained", "commonest", "nearest")) < CHANCE
    machine.type(down)
    assert machine.engine.docker("ps", "--all", "--quiet").stdout == ""
