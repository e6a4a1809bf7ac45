"""k8s/components/monitor on a real cluster: the monitor of a team behind a proxy, with an account that only looks."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from launcher.store.opening import open_store
from tests.integration.k8s_tree.building import objects
from tests.support.cluster.cluster import Cluster
from tests.support.fakerun import FakeAttempt, fake_job, write_run

pytestmark = pytest.mark.cluster("core", "jobset-crds", "kueue-crds")

SPACE, NAME, TOKEN = "slipway-monitor", "slipway.example.com", "0123456789abcdef0123456789abcdef"
# in oauth2-proxy's place: it lets everybody in, and otherwise does what the component's comment asks of a proxy
PROXY = """
import http.client, http.server
token = open("/etc/slipway-monitor/token").read().strip()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("x-slipway-token", "connection")}
        there = http.client.HTTPConnection("127.0.0.1", 8640, timeout=60)
        there.putrequest("GET", self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in {**headers, "X-Slipway-Token": token}.items():
            there.putheader(name, value)
        there.endheaders()
        answer = there.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("0.0.0.0", 4180), Handler).serve_forever()
"""


@dataclass
class Standing:
    cluster: Cluster
    address: str
    run: str

    def ask(self, port: int, path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.address, port, timeout=60)
        try:
            connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": NAME, **headers}.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


def component() -> list[dict[str, Any]]:
    """The objects of the component, and the reader's role that it binds, as the overlay on-prem builds them."""
    elsewhere = {
        ("Namespace", None, SPACE),
        ("RoleBinding", "slipway", SPACE),
        ("Role", "slipway", "slipway-reader"),
    }
    return [
        one
        for one in objects("overlays/on-prem")
        if one["metadata"].get("namespace") == SPACE
        or (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) in elsewhere
    ]


def told(cluster: Cluster) -> str:
    """Why the monitor is not ready: the states of its containers, and what they said last."""
    lines = []
    for pod in cluster.get("pods", None, SPACE):
        lines += [json.dumps(pod["status"].get("containerStatuses", pod["status"]))]
        for name in ("monitor", "proxy"):
            where = ("-n", SPACE, pod["metadata"]["name"], "-c", name, "--tail=20")
            lines += [cluster.kubectl("logs", *where, check=False)]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def standing(cluster: Cluster) -> Iterator[Standing]:
    cluster.crds("jobset", "kueue")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.s3.environment.items():
            patch.setenv(name, value)
        store = open_store(cluster.s3.url())
        run = write_run(store, fake_job("shown"), [FakeAttempt(ended=None)], outcome=None)
    found = component()
    for one in found:
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == SPACE:
            one["data"] = {"SLIPWAY_STORE": store.url, "NAME": NAME}
        if one["kind"] == "Deployment":
            one["spec"]["replicas"] = 1
            monitor, proxy = one["spec"]["template"]["spec"]["containers"]
            monitor["image"] = cluster.monitor()
            proxy |= {"image": cluster.py(), "command": ["python", "-c", PROXY]}
            del proxy["args"]
            for container in (monitor, proxy):
                container["resources"] = {"limits": {"memory": "512Mi"}}
    spaces = [one for one in found if one["kind"] == "Namespace"]
    try:
        cluster.settle(SPACE, "slipway")  # test_tree.py has the same two, and a process may come to these tests twice
        cluster.apply([*spaces, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slipway"}}])
        cluster.secret(SPACE, "slipway-monitor", {"token": TOKEN})
        cluster.secret(SPACE, "slipway-monitor-proxy", {"alpha.yaml": ""})
        cluster.secret(SPACE, "slipway-store", cluster.s3.environment)
        cluster.apply([one for one in found if one["kind"] != "Namespace"])

        def ready() -> str | None:
            for pod in cluster.get("pods", None, SPACE):
                conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
                if conditions.get("Ready") == "True":
                    return str(pod["status"]["podIP"])
            return None

        try:
            address = cluster.wait_for("the monitor", ready, 200, 1)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{told(cluster)}") from None
        yield Standing(cluster, address, run)
    finally:
        cluster.kubectl("delete", "namespace", "--ignore-not-found", "--wait=false", SPACE, "slipway")


def test_people_see_runs_through_the_proxy_and_nothing_past_it(standing: Standing) -> None:
    standing.cluster.wait_for("the run", lambda: standing.run in standing.ask(4180, "/")[1] or None, 120, 1)
    assert standing.ask(4180, "/", Host="evil.example.com")[0] == 421
    assert standing.ask(4180, "/", **{"X-Slipway-Token": "guessed"})[0] == 200  # the proxy drops it and gives its own
    with pytest.raises(OSError, match="refused"):
        standing.ask(8640, "/")  # the pages listen on the pod's own loopback


def test_prometheus_reads_numbers(standing: Standing) -> None:
    status, text = standing.ask(9464, "/metrics")
    assert status == 200
    assert f'slipway_run_info{{run="{standing.run}"' in text


@pytest.mark.parametrize(
    ("verb", "what", "space", "allowed"),
    [
        ("list", "pods", "slipway", True),
        ("watch", "jobs.batch", "slipway", True),
        ("delete", "pods", "slipway", False),
        ("create", "jobs.batch", "slipway", False),
        ("get", "secrets", "slipway", False),
        ("get", "secrets", SPACE, False),
        ("list", "pods", SPACE, False),
        ("list", "nodes", "", False),
    ],
)
def test_its_account_looks_and_changes_nothing(
    standing: Standing, verb: str, what: str, space: str, allowed: bool
) -> None:
    where = ["-n", space] if space else []
    who = f"--as=system:serviceaccount:{SPACE}:{SPACE}"
    said = standing.cluster.kubectl("auth", "can-i", verb, what, *where, who, check=False)
    assert ("yes" if allowed else "no") in said.splitlines()  # a warning may stand beside it


def test_only_the_monitor_gets_the_accounts_token(standing: Standing) -> None:
    (pod,) = standing.cluster.get("pods", None, SPACE)
    mounts = {one["name"]: json.dumps(one["volumeMounts"]) for one in pod["spec"]["containers"]}
    assert "serviceaccount" in mounts["monitor"]
    assert "serviceaccount" not in mounts["proxy"]
