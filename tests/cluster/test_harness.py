"""The tests' own cluster does what its README says: pods run, rules are enforced, faults are real, nothing is left."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from launcher.store.opening import open_store
from tests.support.cluster import sandbox
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.pods import job, pod
from tests.support.cluster.proxy import Kind
from tests.support.engine import ROOT, Engine
from tests.support.needs import lacking

pytestmark = pytest.mark.cluster
RunPod = Callable[..., str]


def test_a_pod_runs_to_its_end_and_its_log_is_read(run_pod: RunPod) -> None:
    code = "import os; print(os.getuid(), sorted(os.listdir('/sys/class/net')))"
    assert run_pod("hello", "python", "-c", code) == "1000 ['eth0', 'lo']\n"


def test_a_restricted_namespace_refuses_what_the_profile_forbids(cluster: Cluster, namespace: str) -> None:
    forbidden = {
        "hostNetwork": pod("bad", cluster.py(), "true", hostNetwork=True),
        "allowPrivilegeEscalation": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}}
        | {"spec": {"containers": [{"name": "main", "image": "x", "securityContext": {"privileged": True}}]}},
    }
    for word, one in forbidden.items():
        with pytest.raises(RuntimeError, match='violates PodSecurity "restricted') as refused:
            cluster.apply(one, namespace)
        assert word.lower() in str(refused.value).lower() or "host namespaces" in str(refused.value)
    assert cluster.get("pods", namespace=namespace) == []


def test_a_pod_and_this_process_use_one_store_under_one_url(
    cluster: Cluster, namespace: str, run_pod: RunPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = cluster.s3.url()
    secret = cluster.secret(namespace, "store", cluster.s3.environment)
    code = f"from launcher.store.opening import open_store; open_store({url!r}).put('a/b', b'from a pod'); print('put')"
    assert run_pod("writer", "python", "-c", code, image=cluster.launcher(), secret=secret) == "put\n"
    for name, value in cluster.s3.environment.items():
        monkeypatch.setenv(name, value)
    assert open_store(url).get("a/b") == b"from a pod"


def test_this_process_reaches_a_pod_and_a_pod_reaches_nothing_outside(cluster: Cluster, namespace: str) -> None:
    code = (
        "import http.server, socket\n"
        "try: socket.create_connection(('192.0.2.77', 80), 20); open('/tmp/said', 'w').write('reached')\n"
        "except OSError as error: open('/tmp/said', 'w').write(str(error.errno))\n"
        "http.server.test(http.server.SimpleHTTPRequestHandler, port=8000, bind='0.0.0.0')"
    )
    one = pod("server", cluster.py(), "python", "-c", code, volumes=[{"name": "tmp", "emptyDir": {}}])
    one["spec"]["containers"][0] |= {"workingDir": "/tmp", "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    cluster.apply(one, namespace)
    address = cluster.wait_for("its address", lambda: cluster.get("pod", "server", namespace)["status"].get("podIP"))

    def said() -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{address}:8000/said", timeout=5) as answer:
            body: bytes = answer.read()
            return body

    # at once, by an error of the network: a test that reaches for the world fails soon, and says why
    assert cluster.wait_for("its answer", said, 15) in (b"101", b"113")
    cluster.kubectl("delete", "pod", "server", "-n", namespace, "--wait=false")


def test_a_killed_api_server_comes_back_and_pods_live_on(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("sleeper", cluster.py(), "sleep", "600"), namespace)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "-n", namespace, "--timeout=60s")
    cluster.apiserver.kill()
    with pytest.raises(RuntimeError, match="refused"):
        cluster.kubectl("get", "nodes")
    cluster.apiserver.start()
    (container,) = cluster.get("pod", "sleeper", namespace)["status"]["containerStatuses"]
    assert (container["restartCount"], list(container["state"])) == (0, ["running"])
    cluster.kubectl("delete", "pod", "sleeper", "-n", namespace, "--grace-period=1")


def test_an_image_of_the_docker_engine_runs_by_its_digest(cluster: Cluster, engine: Engine, run_pod: RunPod) -> None:
    if engine.base is None:
        lacking("root")
    reference = cluster.import_image(engine, engine.base)
    assert re.fullmatch(r"test\.local/base@sha256:[0-9a-f]{64}", reference)
    assert run_pod("debian", "cat", "/etc/debian_version", image=reference).startswith("12")


class Client:
    """One connection by a kubeconfig, without a retry."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        where, who = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cafile=where["certificate-authority"])
        context.load_cert_chain(who["client-certificate"], who["client-key"])
        self.connection = http.client.HTTPSConnection(urlsplit(where["server"]).netloc, context=context, timeout=30)

    def close(self) -> None:
        """The next request opens it again."""
        self.connection.close()

    def request(self, method: str, path: str, body: object = None) -> tuple[int, http.client.HTTPMessage, bytes]:
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_the_proxy_loses_requests_before_and_answers_after_they_were_done(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with cluster.proxy() as proxy, closing(Client(proxy.kubeconfig)) as client:
        assert client.request("POST", path, config_map("plain"))[0] == 201
        for kind, name, done in ((Kind.DROP_BEFORE, "before", False), (Kind.DROP_AFTER, "after", True)):
            proxy.plan(kind, method="POST", path=path)
            with pytest.raises((OSError, http.client.HTTPException)):
                client.request("POST", path, config_map(name))
            client.close()
            assert (cluster.get("configmap", name, namespace) is not None) == done
        for kind, name, code, done in (
            (Kind.ERROR_500, "refused", 500, False),
            (Kind.ERROR_500_AFTER, "done", 500, True),
            (Kind.TOO_MANY, "many", 429, False),
        ):
            proxy.plan(kind, method="POST", path=path)
            status, headers, body = client.request("POST", path, config_map(name))
            assert (status, json.loads(body)["code"]) == (code, code)
            assert headers.get("Retry-After") == ("1" if code == 429 else None)
            assert (cluster.get("configmap", name, namespace) is not None) == done
        assert proxy.faults() == 5
        assert client.request("POST", path, config_map("after"))[0] == 409  # the connection is as good as before


def test_the_proxy_ends_watches_and_streams_the_rest(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    watch = f"{path}?watch=true&timeoutSeconds=2"
    with cluster.proxy() as proxy, closing(Client(proxy.kubeconfig)) as client:
        status, _, body = client.request("GET", watch)
        assert status == 200
        assert {json.loads(line)["type"] for line in body.splitlines()} == {"ADDED"}  # kube-root-ca.crt
        proxy.plan(Kind.GONE_EVENT, watch=True)
        assert client.request("GET", path)[0] == 200  # not a watch: nothing happens
        event = json.loads(client.request("GET", watch)[2])
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        proxy.plan(Kind.GONE, watch=True)
        assert client.request("GET", watch)[0] == 410
        proxy.plan(Kind.CUT, watch=True)
        with pytest.raises((OSError, http.client.HTTPException)):
            client.request("GET", watch)
        client.close()
        with proxy.outage(), pytest.raises((OSError, http.client.HTTPException)):
            client.request("GET", path)
        client.close()
        assert client.request("GET", path)[0] == 200


def test_exec_and_logs_pass_through_the_proxy(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("shell", cluster.py(), "sh", "-c", "echo started; sleep 600"), namespace)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/shell", "-n", namespace, "--timeout=60s")
    with cluster.proxy() as proxy:
        by_proxy = ["--kubeconfig", str(proxy.kubeconfig), "-n", namespace]
        assert cluster.kubectl(*by_proxy, "exec", "shell", "--", "sh", "-c", "echo inside $((6 * 7))") == "inside 42\n"
        # a pod is Ready before its process has said anything
        cluster.wait_for("its line", lambda: cluster.kubectl(*by_proxy, "logs", "shell") == "started\n", 30)
        assert any(request.path.endswith("/exec") for request, _ in proxy.seen)
    cluster.kubectl("delete", "pod", "shell", "-n", namespace, "--grace-period=1")


OWNER = """
import sys, time
from tests.support.cluster.cluster import running
from tests.support.cluster.pods import pod
with running() as cluster:
    namespace = cluster.namespace()
    cluster.apply(pod("sleeper", cluster.py(), "sleep", "600"), namespace)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "-n", namespace, "--timeout=60s")
    print(cluster.box.number, cluster.box.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.timeout(200)
def test_a_cluster_whose_owner_was_killed_leaves_nothing(cluster: Cluster) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        number, pid = map(int, owner.stdout.readline().split())
        folder, link = sandbox.BASE / str(number), Path(f"/sys/class/net/slipway{number}")
        assert number != cluster.box.number  # two side by side
        assert sandbox.cgroup_folders(number)
        assert link.exists()
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        if owner.stdout is not None:
            owner.stdout.close()
    sandbox.wait_for("process 1 to end", lambda: not Path(f"/proc/{pid}").exists(), 20)
    assert [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line] == []
    assert not [one for one in Path("/proc").glob("[0-9]*") if str(folder) in _words(one)]
    sandbox.wait_for("its network to go", lambda: not link.exists(), 20)
    sandbox.clean_leftovers()
    assert not folder.exists()
    assert sandbox.cgroup_folders(number) == []
    assert cluster.get("node", "n1") is not None  # the living one was left alone


def _words(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_the_build_says_what_it_cannot_do(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tools" / "cluster", tmp_path / "tools" / "cluster")
    script = shutil.copy(ROOT / "tools" / "build-cluster.sh", tmp_path / "tools")
    nowhere = {"PATH": "/usr/bin:/bin", "SLIPWAY_GO": str(tmp_path)}
    done = subprocess.run([script, "kubelet", "kwok"], env=nowhere, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (3, "build-cluster: no Go here, so no kubelet")
    done = subprocess.run([script, "kubeIet"], env=nowhere, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (2, "build-cluster: no program kubeIet is known")


@pytest.mark.nightly
def test_a_node_that_is_lost_is_seen_and_comes_back(cluster: Cluster, namespace: str) -> None:
    node = cluster.node(2)
    cluster.apply(pod("sleeper", cluster.py(), "sleep", "600", nodeName="n2"), namespace)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "-n", namespace, "--timeout=60s")

    def ready() -> str:
        conditions = cluster.get("node", "n2")["status"]["conditions"]
        return str(next(one["status"] for one in conditions if one["type"] == "Ready"))

    node.kill()
    cluster.wait_for("the loss to be seen", lambda: ready() == "Unknown", 60)
    assert cluster.get("pod", "sleeper", namespace) is not None
    node.start()
    assert ready() == "True"

    def over() -> bool:
        found = cluster.get("pod", "sleeper", namespace)
        return found is None or found["status"]["phase"] in ("Failed", "Succeeded")

    cluster.wait_for("its pod to be given up", over, 90)


@pytest.mark.nightly
@pytest.mark.cluster("kwok")
def test_jobs_on_fake_nodes_end_as_their_annotations_say(cluster: Cluster, namespace: str) -> None:
    cluster.kwok(3)
    fake = {"nodeSelector": {"type": "kwok"}, "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]}
    for name, code in (("good", "0"), ("bad", "7")):
        marks = {"slipway.test/runs": "1s", "slipway.test/exit": code}
        cluster.apply(job(name, "test.local/none:1", "true", annotations=marks, **fake), namespace)
    cluster.kubectl("wait", "--for=condition=Complete", "job/good", "-n", namespace, "--timeout=60s")
    cluster.kubectl("wait", "--for=condition=Failed", "job/bad", "-n", namespace, "--timeout=60s")
    (failed,) = cluster.get("pods", namespace=namespace, selector="job-name=bad")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: pair, labels: {kueue.x-k8s.io/queue-name: QUEUE}}
spec:
  network: {enableDNSHostnames: true, publishNotReadyAddresses: true}
  replicatedJobs:
    - name: w
      replicas: 1
      template:
        spec: {parallelism: 2, completions: 2, completionMode: Indexed, backoffLimit: 0, template: TEMPLATE}
"""
MEET = """
import os, socket, time
rank = int(os.environ["RANK"])
if rank == 0:
    listener = socket.create_server(("0.0.0.0", 9000))
    listener.accept()[0].sendall(b"met")
else:
    for _ in range(200):
        try:
            print(socket.create_connection(("pair-w-0-0.pair", 9000), 2).recv(3)); break
        except OSError: time.sleep(0.1)
    else: raise SystemExit("nobody there")
"""


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.cluster("jobset", "kueue", "dns")
def test_a_jobset_in_a_queue_meets_by_the_names_of_its_pods(cluster: Cluster, namespace: str) -> None:
    cluster.dns()
    cluster.jobset()
    cluster.kueue()
    cluster.apply(
        [
            {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "any"}},
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "ClusterQueue",
                "metadata": {"name": namespace},
                "spec": {
                    "namespaceSelector": {},
                    "resourceGroups": [
                        {
                            "coveredResources": ["cpu"],
                            "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": 1}]}],
                        }
                    ],
                },
            },
        ]
    )
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": {"name": "q"}}
    cluster.apply(queue | {"spec": {"clusterQueue": namespace}}, namespace)
    spec = pod("x", cluster.py(), "python", "-c", MEET)["spec"]
    label = {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}
    spec["containers"][0] |= {
        "env": [{"name": "RANK", "valueFrom": label}],
        "resources": {"requests": {"cpu": "100m"}},
    }
    text = JOBSET.replace("TEMPLATE", json.dumps({"spec": spec})).replace("QUEUE", "q")
    cluster.apply(text, namespace)
    cluster.kubectl("wait", "--for=condition=Completed", "jobset/pair", "-n", namespace, "--timeout=120s", timeout=150)

    def said() -> bool:
        (one,) = cluster.get("workloads.kueue.x-k8s.io", namespace=namespace)
        return {"QuotaReserved", "Admitted", "Finished"} <= {each["type"] for each in one["status"]["conditions"]}

    cluster.wait_for("Kueue to see its end", said, 60)  # its own look at the JobSet, after JobSet's
    (second,) = cluster.get("pods", namespace=namespace, selector="batch.kubernetes.io/job-completion-index=1")
    assert cluster.logs(second["metadata"]["name"], namespace) == "b'met'\n"


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_pod_of_another_cluster_reaches_this_ones_store(cluster: Cluster, other_cluster: Cluster) -> None:
    namespace = other_cluster.namespace()
    begun = time.monotonic()
    code = f"import socket; socket.create_connection(({cluster.host!r}, {cluster.s3.port}), 5); print('reached')"
    other_cluster.apply(pod("visitor", other_cluster.py(), "python", "-c", code), namespace)
    assert other_cluster.output("visitor", namespace) == "reached\n", f"after {time.monotonic() - begun:.0f} s"
