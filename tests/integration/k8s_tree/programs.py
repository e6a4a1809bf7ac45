"""`kind`, `kubectl` and `docker` with a memory, for tests of `launcher cluster`: one program that goes by three names,
or, for tests that make hundreds of calls, a function in the test's own process.

State lies in $FAKE_CLUSTER/state.json, calls in calls.jsonl. $FAKE_CLUSTER/fault holds `NUMBER MODE`: the call of that
number fails, `before` it has an effect or `after`. What `kubectl apply -k` is given is built by the real kubectl, which
$REAL_KUBECTL names, once per content.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any, NoReturn

State = dict[str, Any]
CONTROLLERS = {
    "jobset": ("jobset-system", "JobSet"),
    "kueue": ("kueue-system", "ClusterQueue LocalQueue ResourceFlavor"),
}
# what kind prints after a cause: kubeadm's log, and advice
NOISE = "\n".join(
    [
        *(f"[wait-control-plane] line {number}" for number in range(60)),
        "[kubelet-check] The kubelet is not healthy after 4m0.000512047s",
        *(f"I1123 05:00:00 round_trippers.go:632] line {number}" for number in range(60)),
        "To see the stack trace of this error execute with --v=5 or higher",
    ]
)
QUEUE_KINDS = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass")


# when a node began, at first and after `docker start`
BEGAN, AGAIN = "2026-11-23T08:00:00", "2026-11-23T09:00:00"
EARLIER = "2026-11-23T07:00:00"  # what the clock says after it was set back


class Refused(Exception):
    """The program ends with 1 and these words; what it has done until then stays done."""


def home() -> Path:
    return Path(os.environ["FAKE_CLUSTER"])


def fail(words: str) -> NoReturn:
    raise Refused(words)


def option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1] if name in argv else ""


def docker(argv: list[str], state: State, text: str) -> str:
    if argv[0] == "version":
        return "28.0.0"
    if argv[:2] == ["image", "inspect"]:
        if argv[-1] not in state["images"]:
            fail(f"Error: No such image: {argv[-1]}")
        return str(state["images"][argv[-1]])
    if argv[0] == "build":
        if not (Path(argv[-1]) / "versitygw").is_file():
            fail("COPY versitygw: no such file")
        state["images"][option(argv, "-t")] = "sha256:" + "5" * 64
        return ""
    if argv[0] in ("inspect", "start"):
        names = [one for one in argv[1:] if one.endswith("-control-plane")]
        there = [state["clusters"][one.removesuffix("-control-plane")] for one in names]
        if "{{.State.StartedAt}}" in argv:
            return "\n".join(f"{one['began']}.5Z" for one in there)
        if argv[0] == "inspect":
            return "\n".join("false" if one.get("stopped") else "true" for one in there)
        for one in there:
            one.pop("stopped", None)
            one["slow"] = 3
            one["began"], one["stale"] = AGAIN, 3
        return "\n".join(names)
    if argv[0] != "exec":
        fail(f"docker {argv}")
    node, ctr = argv[1], argv[2:]
    cluster = next((one for name, one in state["clusters"].items() if node == f"{name}-control-plane"), None)
    if cluster is None:
        fail(f"Error: No such container: {node}")
    if ctr[-2:] == ["tasks", "ls"]:
        names = [key.split("/")[2] for key in cluster["objects"] if key.startswith("Deployment/")]
        return "\n".join(["TASK PID STATUS", *(f"{task(name, cluster['began'])} 812 RUNNING" for name in names)])
    if "ls" in ctr:
        name = ctr[-1].removeprefix("name==")
        row = f"{name} application/vnd.oci.image.manifest.v1+json {cluster['loaded'].get(name)} 1 MiB linux -"
        return "REF TYPE DIGEST SIZE PLATFORMS LABELS" + ("\n" + row if name in cluster["loaded"] else "")
    if "tag" not in ctr:
        fail(f"docker exec {ctr}")
    cluster["loaded"][ctr[-1]] = cluster["loaded"][ctr[-2]]
    return ""


def kind(argv: list[str], state: State, text: str) -> str:
    name = option(argv, "--name")
    if argv[:2] == ["get", "clusters"]:
        if state.get("daemon_words"):  # with -q kind would say nothing
            fail("" if "-q" in argv else state["daemon_words"])
        return "\n".join(sorted(state["clusters"]))
    if argv[:2] == ["get", "nodes"]:
        return f"{name}-control-plane" if name in state["clusters"] else ""
    if argv[:2] == ["create", "cluster"]:
        if name in state["clusters"]:
            fail("ERROR: failed to create cluster: node(s) already exist for a cluster with the name")
        Path(option(argv, "--config")).read_text()
        if state.get("pulls") and option(argv, "--image") != state["pulls"]:
            fail('ERROR: failed to create cluster: failed to pull image "kindest/node:v1.34.0@sha256:7416"\n' + NOISE)
        whole = not state.pop("half", False)
        state["clusters"][name] = {"whole": whole, "loaded": {}, "objects": {}, "made": state["made"], "began": BEGAN}
        state["made"] += 1
        Path(option(argv, "--kubeconfig")).write_text("config")
        if not whole:
            fail("ERROR: failed to create cluster: failed to init node with kubeadm\n" + NOISE)
    elif argv[:2] == ["delete", "cluster"]:
        state["clusters"].pop(name, None)
    elif argv[:2] == ["export", "kubeconfig"]:
        if name not in state["clusters"]:
            fail(f"ERROR: could not locate any control plane nodes for cluster named '{name}'")
        if state["clusters"][name].get("stopped"):
            fail("ERROR: failed to get cluster internal kubeconfig: container is not running")
        Path(option(argv, "--kubeconfig")).write_text("config")
    elif argv[:2] == ["load", "docker-image"]:
        if argv[-1] not in state["images"]:
            fail(f"ERROR: image: {argv[-1]} not present locally")
        host, slash, _ = argv[-1].partition("/")
        registry = slash and ("." in host or ":" in host or host == "localhost")
        full = argv[-1] if registry else f"docker.io/library/{argv[-1]}"
        state["clusters"][name]["loaded"][full] = "sha256:" + hashlib.sha256(full.encode()).hexdigest()
    else:
        fail(f"kind {argv}")
    return ""


def built(folder: str) -> list[dict[str, Any]]:
    """The objects of a kustomization; built once for each text of it."""
    import yaml

    text = (Path(folder) / "kustomization.yaml").read_text()
    cached = home() / f"built-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    if not cached.exists():
        command = [os.environ["REAL_KUBECTL"], "kustomize", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode:
            fail(done.stderr)
        cached.write_text(json.dumps(list(yaml.load_all(done.stdout, yaml.CSafeLoader))))
    found: list[dict[str, Any]] = json.loads(cached.read_text())
    return found


def put(cluster: dict[str, Any], objects: list[dict[str, Any]]) -> None:
    """One after the other, as apply does: what comes before a refused object stays."""
    for one in objects:
        namespace, name = one["metadata"].get("namespace", ""), one["metadata"]["name"]
        if one["kind"] in QUEUE_KINDS and "Namespace//kueue-system" not in cluster["objects"]:
            fail(f'error: resource mapping not found for name: "{name}": no matches for kind "{one["kind"]}"')
        if namespace and f"Namespace//{namespace}" not in cluster["objects"]:
            fail(f'Error from server (NotFound): namespaces "{namespace}" not found')
        cluster["objects"][f"{one['kind']}/{namespace}/{name}"] = one


def node(state: State) -> dict[str, Any]:
    away = state.get("unready", "")
    condition = {"type": "Ready", "status": "False" if away else "True", "message": away or "kubelet is posting"}
    status = {"conditions": [condition], "allocatable": {"cpu": state.get("cpus", "4")}}
    return {"kind": "Node", "metadata": {"name": "slipway-control-plane"}, "status": status}


def pods(cluster: dict[str, Any], state: State) -> list[dict[str, Any]]:
    """kind's own, which ask for .95 CPUs together, and one for each Deployment. For some looks after a restart of the
    node, what is told of them is from before it."""
    listed = [
        {"kind": "Pod", "metadata": {"name": "system-0"}, "spec": {"containers": [requesting("950m")]}, "status": {}}
    ]
    owner = next(name for name, each in state["clusters"].items() if each is cluster)
    stale = cluster.get("stale", 0)
    for key, deployment in cluster["objects"].items():
        kind, namespace, name = key.split("/")
        if kind != "Deployment":
            continue
        template = deployment["spec"]["template"]
        asked = template["spec"]["containers"][0].get("resources", {}).get("requests", {}).get("cpu", "50m")
        waiting = state.get("waiting", {}).get(name)
        condition = {"type": "Ready", "status": str(ready(cluster, namespace, name))}
        began = BEGAN if stale else cluster["began"]
        running = {"running": {"startedAt": f"{EARLIER if state.get('set_back') else began}Z"}}
        container = {"name": "main", "containerID": f"containerd://{task(name, began)}"}
        status = {
            "phase": "Pending" if waiting else "Running",
            "conditions": [condition],
            "containerStatuses": [{**container, "state": {"waiting": waiting} if waiting else running}],
        }
        metadata = {"name": f"{name}-0", "namespace": namespace, "labels": template["metadata"]["labels"]}
        spec = {"nodeName": f"{owner}-control-plane", "containers": [requesting(asked)]}
        listed.append({"kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
    return listed


def task(name: str, began: str) -> str:
    """The id of a Deployment's container on a node that began then."""
    return hashlib.sha256(f"{name} {began}".encode()).hexdigest()


def requesting(cpu: str) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": {"cpu": cpu}}}


def ready(cluster: dict[str, Any], namespace: str, name: str) -> bool:
    found = cluster["objects"].get(f"Deployment/{namespace}/{name}")
    if name in json.loads((home() / "state.json").read_text()).get("waiting", {}):
        return False
    if found is None or namespace != "slipway-store":
        return found is not None
    image = found["spec"]["template"]["spec"]["containers"][0]["image"]
    return image in cluster["loaded"] and "Secret/slipway-store/slipway-store" in cluster["objects"]


def kubectl(argv: list[str], state: State, text: str) -> str:
    config, context = option(argv, "--kubeconfig"), option(argv, "--context")
    if not config or not Path(config).is_file():
        fail(f"error: stat {config}: no such file or directory")
    cluster = state["clusters"].get(context.removeprefix("kind-"))
    if cluster is None or not cluster["whole"]:
        fail("The connection to the server 127.0.0.1:41234 was refused - did you specify the right host or port?")
    if cluster.get("stopped") or cluster.get("slow"):
        cluster["slow"] = max(0, cluster.get("slow", 0) - 1)
        fail("The connection to the server 127.0.0.1:41234 was refused - did you specify the right host or port?")
    cluster.pop("slow", None)
    rest = argv[4:]
    namespace = option(rest, "-n")
    rest = rest[2:] if namespace else rest
    if rest[:2] == ["create", "--dry-run=client"]:
        return released(option(rest, "-f"), state)
    if rest[0] == "apply":
        return applied(rest, state, cluster, text)
    objects = cluster["objects"]
    if rest[0] == "get" and "--raw" in rest:
        return "ok"
    if rest[0] == "version":
        return json.dumps({"serverVersion": {"gitVersion": "v1.34.0"}})
    if rest[:2] == ["wait", "node"]:
        return "" if node(state)["status"]["conditions"][0]["status"] == "True" else fail("error: timed out waiting")
    if rest[:2] == ["get", "nodes"]:
        return json.dumps({"items": [node(state)]})
    if rest[:2] == ["get", "nodes,pods"]:
        return json.dumps({"items": [node(state), *pods(cluster, state)]})
    if rest[:2] in (["get", "deployments"], ["get", "deployments,pods"]):
        items = [dict(one) for key, one in objects.items() if key.startswith("Deployment/")]
        for one in items:
            where = one["metadata"]
            number = int(ready(cluster, where["namespace"], where["name"]))
            one["status"] = {"readyReplicas": number, "updatedReplicas": number, "availableReplicas": number}
        items += pods(cluster, state) if "pods" in rest[1] else []
        cluster["stale"] = max(0, cluster.get("stale", 0) - 1)
        return json.dumps({"items": [one for one in items if namespace in ("", one["metadata"].get("namespace"))]})
    if rest[0] != "get":
        fail(f"kubectl {rest}")
    named = {"secret": "Secret", "cronjob": "CronJob"}[rest[1]]
    found = objects.get(f"{named}/{namespace}/{rest[2]}")
    return json.dumps(found) if found else ""


def applied(rest: list[str], state: State, cluster: dict[str, Any], text: str) -> str:
    if "-k" in rest:
        if state.get("webhook", 0):
            state["webhook"] -= 1
            fail('Error from server (InternalError): failed calling webhook "mclusterqueue.kb.io": connect: refused')
        put(cluster, built(option(rest, "-k")))
        return ""
    items = json.loads(text)["items"]
    for item in items:
        for key, value in item.pop("stringData", {}).items():
            item.setdefault("data", {})[key] = b64encode(value.encode()).decode()
    put(cluster, items)
    return ""


def released(manifest: str, state: State) -> str:
    """The objects of a controller's release, a JSON document each: like JobSet's and Kueue's own they ask for half a
    CPU, and Kueue's image is to be pulled always."""
    if state.get("offline") and manifest.startswith("https://"):
        fail(f'error: unable to read URL "{manifest}": dial tcp: lookup github.com: no such host')
    name = next(name for name in CONTROLLERS if f"/{name}/" in manifest or f"/{name}-" in manifest)
    labels = {"control-plane": name}
    container = {
        "name": "manager",
        "image": f"{name}:released",
        "imagePullPolicy": "Always",
        "resources": {"requests": {"cpu": "500m", "memory": "128Mi"}, "limits": {"memory": "4Gi"}},
    }
    deployment = {
        "kind": "Deployment",
        "metadata": {"namespace": f"{name}-system", "name": f"{name}-controller-manager"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    namespace = {"kind": "Namespace", "metadata": {"name": f"{name}-system"}}
    return "\n".join(json.dumps(each, indent=1) for each in (namespace, deployment))


def respond(name: str, argv: list[str], text: str) -> tuple[int, str, str]:
    """(exit code, output, complaint) of one call."""
    with (home() / "calls.jsonl").open("a+") as file:
        file.write(json.dumps([name, *argv]) + "\n")
        file.seek(0)
        number = sum(1 for _ in file)
    fault = home() / "fault"
    which, _, mode = fault.read_text().partition(" ") if fault.exists() else ("0", "", "")
    if number == int(which) and mode == "before":
        return 1, "", "fault injected: before"
    state = json.loads((home() / "state.json").read_text())
    try:
        answer = (0, {"docker": docker, "kind": kind, "kubectl": kubectl}[name](argv, state, text), "")
    except Refused as refused:
        answer = (1, "", str(refused))
    (home() / "state.json").write_text(json.dumps(state))
    return (1, "", "fault injected: after") if number == int(which) else answer


def main() -> int:
    argv = sys.argv[1:]
    code, out, err = respond(Path(sys.argv[0]).name, argv, sys.stdin.read() if argv[-1:] == ["-"] else "")
    print(out)
    print(err, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
