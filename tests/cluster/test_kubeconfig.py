"""What a kubeconfig says beside the server and the login: names of contexts, and whom to act as."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.api import Api
from tests.cluster.laptop import UNTIL_TOLD, Laptop
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.pods import pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

JANE = {
    "as": "jane@example.com",
    "as-uid": "7-7",
    "as-groups": ["team", "dév"],
    "as-user-extra": {"example.com/reason": ["on call", "two"], "per%cent": ["x"]},
}


def kubeconfig(cluster: Cluster, path: Path, context: str = "test", **user: Any) -> Path:
    """The administrator's, with another name for the cluster, and for whom to act."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    (known,) = config["contexts"]
    known["name"] = config["current-context"] = context
    for each in config["users"]:
        each["user"].update(user)
    path.write_text(yaml.safe_dump(config))
    return path


def test_two_machines_with_two_names_for_a_cluster_share_a_run(laptop: Laptop, tmp_path: Path) -> None:
    job = laptop.counting("count", steps=3, kubernetes={"context": "office"})
    laptop.environment["KUBECONFIG"] = str(kubeconfig(laptop.cluster, tmp_path / "one", "office"))
    (run,) = laptop.submit(job)
    other = Laptop(laptop.cluster, tmp_path / "other", url=laptop.url)
    other.namespace = laptop.namespace
    (other.path / "slipway.yaml").write_text((laptop.path / "slipway.yaml").read_text())
    other.environment["KUBECONFIG"] = str(kubeconfig(laptop.cluster, tmp_path / "two", "home"))
    text = other.launcher("submit", other.write({**job, "kubernetes": {"context": "home"}}), "-o", "json")
    (row,) = json.loads(text[: text.rindex("]") + 1])
    assert (row["run"], row["state"]) in [(run, "attached"), (run, "succeeded")]
    assert laptop.result(run).attempt == 1
    assert len(laptop.cluster.get("jobs", namespace=laptop.namespace)) == 1
    # the submit's machine asks that context again, also where another is the current one
    config = yaml.safe_load((tmp_path / "one").read_text())
    config["contexts"].append({"name": "elsewhere", "context": {"cluster": "nowhere", "user": "nobody"}})
    config["clusters"].append({"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}})
    config["users"].append({"name": "nobody", "user": {}})
    (tmp_path / "one").write_text(yaml.safe_dump({**config, "current-context": "elsewhere"}))
    (again,) = laptop.submit(laptop.job("waits", "time.sleep(600)", kubernetes={"context": "office"}))
    laptop.wait_for_state(again, "running")
    laptop.launcher("cancel", again)
    assert laptop.result(again).outcome == "cancelled"


def whoami(kubeconfig_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whom the API server takes us for."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig_path))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = Api(login()).request("POST", path, body=json.dumps(review).encode())
    return answer.json()["status"]["userInfo"]


def test_the_server_takes_us_for_whom_it_takes_kubectl(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(cluster, tmp_path / "config", **JANE)
    kubectl = json.loads(cluster.kubectl("--kubeconfig", path, "auth", "whoami", "-o", "json"))["status"]["userInfo"]
    ours = whoami(path, monkeypatch)
    assert ours == kubectl
    assert ours["username"] == "jane@example.com"
    assert set(ours["groups"]) >= {"team", "dév"}
    assert "system:masters" not in ours["groups"]


def allow(cluster: Cluster, namespace: str, user: str) -> None:
    """A right that only this user has."""
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
        # where JobSet is installed (by another test of this cluster), submit looks whether a JobSet carries the run
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "pods/exec", "pods/log", "events"], "verbs": ["*"]},
    ]
    api = "rbac.authorization.k8s.io"
    place = {"name": "launches", "namespace": namespace}
    subject = {"kind": "User", "apiGroup": api, "name": user}
    reference = {"apiGroup": api, "kind": "Role", "name": "launches"}
    cluster.apply(
        [
            {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": place, "rules": rules},
            {
                "apiVersion": f"{api}/v1",
                "kind": "RoleBinding",
                "metadata": place,
                "roleRef": reference,
                "subjects": [subject],
            },
        ]
    )


def test_a_submit_has_the_rights_of_whom_it_acts_as(laptop: Laptop, tmp_path: Path) -> None:
    """The login itself is an administrator's, who may do everything."""
    job = laptop.write(laptop.counting("count", steps=2))
    laptop.environment["KUBECONFIG"] = str(kubeconfig(laptop.cluster, tmp_path / "config", **JANE))
    refused = laptop.launcher("submit", job, code=2)
    assert f"you may not create jobs.batch in namespace {laptop.namespace}" in refused
    assert laptop.cluster.get("jobs", namespace=laptop.namespace) == []
    allow(laptop.cluster, laptop.namespace, "jane@example.com")

    def submitted() -> str:
        said = laptop.launcher("submit", job, "-o", "json", code=None)
        if '"run"' not in said:
            raise RuntimeError(said)
        return said

    text = laptop.cluster.wait_for("her right", submitted, 60)
    (row,) = json.loads(text[text.index("[") : text.rindex("]") + 1])
    assert laptop.result(row["run"]).outcome == "succeeded"


def test_a_command_in_a_pod_without_kubectl_has_the_rights_of_whom_it_acts_as(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    cluster.apply(pod("waits", cluster.py(), "sleep", "600"), namespace)
    cluster.wait_for("the pod", lambda: cluster.get("pod", "waits", namespace)["status"]["phase"] == "Running", 60)

    def execute() -> subprocess.CompletedProcess[str]:
        module = "launcher.backends.kubernetes.enter.forward"
        command = [sys.executable, "-m", module, "exec", namespace, "waits", "--", "python3", "-c", "print('hello')"]
        environment = {**os.environ, "KUBECONFIG": str(path)}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, input="", timeout=60, check=False
        )

    path = kubeconfig(cluster, tmp_path / "config", **JANE)
    done = execute()
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "orbidden" in done.stderr
    allow(cluster, namespace, "jane@example.com")

    def said_hello() -> bool:
        done = execute()
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout == "hello\n"

    cluster.wait_for("her right", said_hello, 60)


def test_a_login_that_ends_while_a_run_is_followed_is_renewed(laptop: Laptop, tmp_path: Path) -> None:
    """The login program gives tokens of a service account that the API server revokes in the middle: each is bound to a
    Secret, which is deleted. Who follows the run asks the program again and sees the run's end."""
    cluster, namespace = laptop.cluster, laptop.namespace
    cluster.kubectl("create", "serviceaccount", "person", "-n", namespace)
    allow(cluster, namespace, f"system:serviceaccount:{namespace}:person")

    def token(secret: str) -> str:
        cluster.kubectl("create", "secret", "generic", secret, "-n", namespace)
        bound = ("--bound-object-kind", "Secret", "--bound-object-name", secret)
        text = cluster.kubectl("create", "token", "person", "-n", namespace, *bound).strip()
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": text}}
        (tmp_path / "answer").write_text(json.dumps(answer))
        return text

    first = token("first")
    program = tmp_path / "fake-login"
    program.write_text(f'#!/bin/sh\necho run >> "{tmp_path}/runs-$FOLLOWER"\ncat "{tmp_path}/answer"\n')
    program.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"exec": {"apiVersion": version, "command": str(program), "interactiveMode": "Never"}}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    laptop.environment["KUBECONFIG"] = str(tmp_path / "config")
    (run,) = laptop.submit(laptop.job("waits", UNTIL_TOLD))
    laptop.wait_for_log(run, "up")
    command = [str(Path(sys.executable).with_name("launcher"))]
    words = {"logs": ["logs", run], "wait": ["wait", run], "submit": ["submit", str(laptop.path / "job.yaml")]}
    followers = [
        subprocess.Popen(
            [*command, *words[name], *([] if name == "wait" else ["--follow"])],
            cwd=laptop.path,
            env={**laptop.environment, "FOLLOWER": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in words
    ]

    def logins(name: str) -> int:
        path = tmp_path / f"runs-{name}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    try:
        # `wait` asks the store, and the cluster only when the store is silent
        cluster.wait_for("the followers' logins", lambda: logins("logs") and logins("submit"), 120)
        token("second")
        cluster.kubectl("delete", "secret", "first", "-n", namespace)

        def refused() -> bool:  # the server remembers a good token for some seconds
            nobody = ("--kubeconfig", str(tmp_path / "nobody"), "--token", first)
            said = cluster.kubectl(*nobody, "get", "jobs", "-n", namespace, check=False)
            return "Unauthorized" in said or "must be logged in" in said

        without = {**config, "users": [{"name": config["users"][0]["name"], "user": {}}]}
        (tmp_path / "nobody").write_text(yaml.safe_dump(without))
        cluster.wait_for("the end of the first token", refused, 120)
        pod_name = laptop.running_pod(run)
        cluster.kubectl("exec", "-n", namespace, pod_name, "--", "touch", "/tmp/go")
        said = [follower.communicate(timeout=240)[0] for follower in followers]
    finally:
        for follower in followers:
            follower.kill()
            follower.wait()
    assert [follower.returncode for follower in followers] == [0, 0, 0], said
    assert "continuing from the store" not in said[0]
    assert not [text for text in said if "refuses the credentials" in text or "Traceback" in text], said
    assert logins("logs") >= 2, said  # its first login was refused when the stream ended
