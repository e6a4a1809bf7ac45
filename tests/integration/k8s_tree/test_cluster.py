"""`launcher cluster` against programs that remember (programs.py): kind itself can not pull its node's image here."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.cli import main
from launcher.cluster.up import taken
from tests.integration.k8s_tree import programs
from tests.integration.k8s_tree.building import ROOT, kubectl

IMAGE = "registry.test/slipway-cpu:7"
UP = ["cluster", "up", "--image", IMAGE]


class Machine:
    """A user's machine with a clone, a home and the three programs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone, self.home = folder, folder / "clone", folder / "home"
        self.fake = folder / "fake"
        for one in (self.clone / ".tools/bin", self.home, self.fake / "bin"):
            one.mkdir(parents=True)
        shutil.copytree(ROOT / "k8s", self.clone / "k8s")
        self.program = self.clone / ".tools/bin/versitygw"
        self.program.write_text("")
        script = f"#!{sys.executable}\n" + (Path(__file__).parent / "programs.py").read_text()
        for name in ("docker", "kind", "kubectl"):
            (self.fake / "bin" / name).write_text(script)
            (self.fake / "bin" / name).chmod(0o755)
        self.reset()

    def reset(self, **more: Any) -> None:
        """Nothing was ever made here."""
        state = {"images": {IMAGE: "sha256:" + "1" * 64}, "clusters": {}, "made": 0, **more}
        (self.fake / "state.json").write_text(json.dumps(state))
        for path in (self.fake / "calls.jsonl", self.fake / "fault"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.home)
        self.home.mkdir()

    def fail(self, number: int, mode: str) -> None:
        (self.fake / "calls.jsonl").unlink(missing_ok=True)
        (self.fake / "fault").write_text(f"{number} {mode}")

    def heal(self) -> None:
        (self.fake / "fault").unlink()

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.fake / "state.json").read_text())
        return found

    @property
    def calls(self) -> list[list[str]]:
        path = self.fake / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def files(self) -> Path:
        return self.home / ".local/state/slipway/clusters/slipway"

    def standing(self) -> Any:
        """What stands on the cluster, without the store's keys, which were found to be the same everywhere."""
        cluster = self.state["clusters"]["slipway"]
        data = [cluster["objects"][f"Secret/{place}/slipway-store"]["data"] for place in ("slipway-store", "slipway")]
        assert data[0] == data[1]
        secret = base64.b64decode(data[0].pop("AWS_SECRET_ACCESS_KEY")).decode()
        key = base64.b64decode(data[0].pop("AWS_ACCESS_KEY_ID")).decode()
        assert f"AWS_SECRET_ACCESS_KEY={secret}\n" in (self.files / "env").read_text()
        assert f"AWS_ACCESS_KEY_ID={key}\n" in (self.files / "env").read_text()
        objects = {name: one for name, one in cluster["objects"].items() if not name.startswith("Secret/")}
        return cluster["loaded"], objects, cluster["whole"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made, real = Machine(tmp_path_factory.mktemp("machine")), kubectl()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(made.fake / "bin"))
        patch.setenv("FAKE_CLUSTER", str(made.fake))
        patch.setenv("REAL_KUBECTL", real)
        patch.setenv("HOME", str(made.home))
        patch.setenv("KUBECONFIG", "/somebody/elses")
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            patch.delenv(name, raising=False)
        patch.chdir(made.clone)
        patch.setattr("launcher.cluster.up.PAUSE", 0.0)
        patch.setattr("launcher.cluster.up.taken", lambda port: False)  # whoever runs a cluster of their own may test
        yield made


@pytest.fixture(autouse=True)
def fresh(machine: Machine, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was made yet. The programs answer from this process, but where a test asks for `processes`."""
    machine.reset()
    if "processes" not in request.fixturenames:
        from launcher.cluster import tools

        def ask(argv: Sequence[str], *, text: str | None = None, minutes: float = 0) -> tools.ProgramOutput:
            return tools.ProgramOutput(*programs.respond(argv[0], list(argv[1:]), text or ""))

        monkeypatch.setattr(tools, "ask", ask)


@pytest.fixture
def processes() -> None:
    """The programs are run, not called."""


Output = Callable[[], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Output:
    return lambda: "".join(capsys.readouterr())


def test_up_makes_it_and_says_what_is_next(machine: Machine, said: Output, processes: None) -> None:
    assert main(UP) == 0
    text = said()
    assert f"source {machine.files / 'env'}" in text
    assert "launcher submit examples/count/job.yaml --backend kubernetes" in text
    loaded, objects, _ = machine.standing()
    reference = next(name for name in loaded if "@" in name)
    assert reference.startswith("registry.test/slipway-cpu@sha256:")
    reaper = objects["CronJob/slipway-system/slipway-reaper"]["spec"]
    assert reaper["suspend"] is False
    assert reaper["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] == reference
    assert objects["ConfigMap/slipway-system/slipway-settings"]["data"] == {"SLIPWAY_STORE": "s3://slipway/agents"}
    profile = yaml.safe_load((machine.home / ".config/slipway/slipway.yaml").read_text())
    assert profile["profiles"]["kind-slipway"]["images"] == {"slipway-cpu": reference}


def test_the_profile_it_writes_is_one_that_the_launcher_reads(machine: Machine) -> None:
    from launcher.spec.profile import load_profile

    assert main(UP) == 0
    environ = {"HOME": str(machine.home), "SLIPWAY_PROFILE": "kind-slipway"}
    profile = load_profile(machine.home, None, environ)
    assert profile.store == "s3://slipway/agents"
    assert profile.backend == "kubernetes"
    assert profile.images["slipway-cpu"].startswith("registry.test/slipway-cpu@sha256:")
    assert profile.backend_options("kubernetes")["store_secret"] == "slipway-store"


def test_a_second_up_changes_nothing(machine: Machine) -> None:
    assert main(UP) == 0
    before = machine.state
    environment = (machine.files / "env").read_text()
    assert main(UP) == 0
    assert machine.state == before
    assert (machine.files / "env").read_text() == environment


@pytest.mark.parametrize("more", [[], ["--jobset", "--kueue"]], ids=["plain", "queues"])
@pytest.mark.parametrize("mode", ["before", "after"])
def test_cut_off_at_any_call_and_run_again_it_is_whole(machine: Machine, mode: str, more: list[str]) -> None:
    """The same cluster as without the fault; a cluster that was whole is never made anew."""
    assert main([*UP, *more]) == 0
    wanted, total = machine.standing(), len(machine.calls)
    assert total > 10
    for number in range(1, total + 1):
        machine.reset()
        machine.fail(number, mode)
        code = main([*UP, *more])
        call = machine.calls[number - 1]
        advice = "nodes,pods" in call  # the last call asks what is free: the cluster is up without an answer
        assert code in ((0,) if advice else (2, 4)), f"call {number}, {call}: exit code {code}"
        machine.heal()
        created = machine.state["made"]
        assert main([*UP, *more]) == 0, f"after call {number}, {call}"
        assert machine.standing() == wanted, f"after call {number}, {call}"
        # only the creation itself, cut off, leaves something that must be made anew
        remade = call[:2] == ["kind", "create"] and mode == "after"
        assert machine.state["made"] == (2 if remade else 1), f"after call {number}, {call} ({created} made before)"


def test_an_up_that_asks_for_less_takes_nothing_away(machine: Machine) -> None:
    """First everything, then again without a word: images, queues and the reaper stay, on the cluster and here."""
    assert main([*UP, "--kueue"]) == 0
    before, profile = machine.standing(), (machine.home / ".config/slipway/slipway.yaml").read_text()
    assert main(["cluster", "up"]) == 0
    assert machine.standing() == before
    assert (machine.home / ".config/slipway/slipway.yaml").read_text() == profile


def test_what_was_asked_of_a_cluster_that_is_gone_is_forgotten(machine: Machine) -> None:
    assert main(UP) == 0
    assert main(["cluster", "down"]) == 0
    assert not (machine.home / ".config/slipway/slipway.yaml").exists()
    assert main(["cluster", "up"]) == 0
    assert "images" not in (machine.home / ".config/slipway/slipway.yaml").read_text()


def test_a_cluster_that_was_stopped_is_started(machine: Machine, said: Output) -> None:
    assert main(UP) == 0
    wanted = machine.standing()
    state = machine.state
    state["clusters"]["slipway"]["stopped"] = True
    (machine.fake / "state.json").write_text(json.dumps(state))
    assert main(UP) == 0
    assert "starting slipway-control-plane" in said()
    assert machine.standing() == wanted


def test_a_taken_port_is_said_before_anything_is_made(
    machine: Machine, said: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert taken(port)
        monkeypatch.setattr("launcher.cluster.up.taken", lambda _: taken(port))
        assert main(UP) == 2
    assert not taken(port)
    assert "127.0.0.1:7070" in said()
    assert machine.state["clusters"] == {}
    assert not machine.files.exists()


def test_a_half_made_cluster_of_ours_is_made_anew(machine: Machine, said: Output) -> None:
    machine.reset(half=True)
    assert main(UP) == 4
    assert "kubeadm" in said()
    assert main(["cluster", "status"]) == 4
    assert "incomplete" in said()
    assert main(UP) == 0
    assert machine.state["clusters"]["slipway"]["made"] == 1


def test_a_whole_cluster_that_does_not_answer_is_not_deleted(machine: Machine, said: Output) -> None:
    assert main(UP) == 0
    state = machine.state
    state["clusters"]["slipway"]["whole"] = False
    (machine.fake / "state.json").write_text(json.dumps(state))
    assert main(UP) == 4
    assert "does not answer" in said()
    assert machine.state["clusters"]["slipway"]["made"] == 0


def test_a_webhook_that_is_not_up_yet_is_waited_for(machine: Machine) -> None:
    machine.reset(webhook=3)
    assert main([*UP, "--kueue"]) == 0
    assert "ClusterQueue//slipway" in machine.state["clusters"]["slipway"]["objects"]


def test_a_webhook_that_never_comes_up_is_an_error(machine: Machine, said: Output) -> None:
    machine.reset(webhook=1000)
    assert main([*UP, "--kueue"]) == 4
    assert "failed calling webhook" in said()


def test_everything_that_is_missing_is_said_before_anything_is_made(machine: Machine, said: Output) -> None:
    machine.program.unlink()
    try:
        assert main(["cluster", "up", "--image", "registry.test/other:1", "--image", "registry.test/more:2"]) == 2
    finally:
        machine.program.write_text("")
    text = said()
    for words in ("make tools", "registry.test/other:1", "registry.test/more:2"):
        assert words in text
    assert machine.state["clusters"] == {}
    assert not machine.files.exists()


def test_missing_programs_are_named_with_how_to_get_them(
    machine: Machine, said: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(machine.home))
    assert main(UP) == 2
    text = said()
    for name in ("docker", "kind", "kubectl"):
        assert f"  {name}: " in text
    assert "Traceback" not in text


def test_the_keys_are_in_no_argument_and_in_no_output(machine: Machine, said: Output, processes: None) -> None:
    assert main(UP) == 0
    text = said()
    lines = (machine.files / "env").read_text().splitlines()
    secrets = [line.partition("=")[2] for line in lines if "ACCESS_KEY" in line]
    assert len(secrets) == 2
    assert all(len(secret) >= 20 for secret in secrets)
    spoken = text + json.dumps(machine.calls)
    assert not [secret for secret in secrets if secret in spoken]
    assert stat.S_IMODE((machine.files / "env").stat().st_mode) == 0o600


def test_no_other_cluster_is_ever_spoken_to(machine: Machine) -> None:
    assert main([*UP, "--kueue", "--jobset"]) == 0
    spoken = [call for call in machine.calls if call[0] == "kubectl"]
    assert spoken
    for call in spoken:
        assert call[1:5] == ["--kubeconfig", str(machine.files / "kubeconfig"), "--context", "kind-slipway"]
    assert main(["cluster", "down"]) == 0
    # kind reads and writes the user's own kubeconfig unless told which
    told = [call for call in machine.calls if call[:2] in (["kind", "create"], ["kind", "export"], ["kind", "delete"])]
    assert {call[1] for call in told} == {"create", "export", "delete"}
    for call in told:
        assert call[call.index("--kubeconfig") + 1] == str(machine.files / "kubeconfig")
    assert not (machine.home / ".kube").exists()


def test_a_profile_of_the_users_is_left_alone(machine: Machine, said: Output) -> None:
    path = machine.home / ".config/slipway/slipway.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("labels: {mine: yes}\n")
    assert main(UP) == 0
    assert path.read_text() == "labels: {mine: yes}\n"
    assert "kind-slipway:" in said()


def test_down_removes_all_of_it_and_then_says_that_there_is_nothing(machine: Machine, said: Output) -> None:
    assert main(UP) == 0
    assert main(["cluster", "down"]) == 0
    assert machine.state["clusters"] == {}
    assert not machine.files.exists()
    assert main(["cluster", "down"]) == 3
    assert main(["cluster", "status"]) == 3
    assert "absent" in said()


def test_status_tells_each_part(machine: Machine, said: Output) -> None:
    assert main(["cluster", "up"]) == 0
    said()
    assert main(["cluster", "status", "-o", "json"]) == 0
    parts = {row["part"]: row["state"] for row in json.loads(said())}
    assert parts == {
        "cluster": "ok",
        "store": "ok",
        "jobset": "absent",
        "kueue": "absent",
        "reaper": "absent",
        "cpus": "ok",
    }
    assert main([*UP, "--kueue"]) == 0
    said()
    assert main(["cluster", "status", "-o", "json"]) == 0
    parts = {row["part"]: row["state"] for row in json.loads(said())}
    assert parts == {
        "cluster": "ok",
        "store": "ok",
        "jobset": "absent",
        "kueue": "ok",
        "reaper": "ok",
        "cpus": "ok",
    }


@pytest.mark.parametrize("name", ["", "Upper", "x-", "a" * 41, "a b", "../x"])
def test_a_name_that_kind_would_refuse_is_refused(machine: Machine, name: str, said: Output) -> None:
    assert main(["cluster", "up", "--name", name]) == 2
    assert "allowed" in said()
    assert machine.calls == []


def test_two_clusters_do_not_know_of_each_other(machine: Machine) -> None:
    assert main(UP) == 0
    before = machine.state["clusters"]["slipway"]
    assert main([*UP, "--name", "other"]) == 0
    assert main(["cluster", "down", "--name", "other"]) == 0
    assert machine.state["clusters"] == {"slipway": before}
    assert [path.name for path in machine.files.parent.iterdir()] == ["slipway"]
