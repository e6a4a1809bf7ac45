"""k8s/ and the golden manifests on a real API server: every object is taken (strict, server-side, without a warning),
and the roles allow what the launcher needs and nothing more."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.cluster import plan
from launcher.store.opening import open_store
from tests.integration.k8s_tree import interpreter
from tests.integration.k8s_tree.building import FOLDERS, ROOT, TREE, name, objects, pods
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.programs import BIN, SET, build_s3

pytestmark = pytest.mark.cluster("core", "jobset-crds", "kueue-crds")

GOLDEN = sorted((ROOT / "tests/unit/kubernetes/golden").rglob("*.yaml"))
RENDERED = sorted((TREE / "gitops/jobs").glob("*.yaml"))
# kinds of other projects whose CRDs are in no module that we build: their schemas are checked offline (launcher lint)
KUEUE_WARNS = "Warning: This version is deprecated. Use v1beta2 instead."  # 0.19 of v1beta1, which 0.14 knows alone
ELSEWHERE = ("argoproj.io", "toolkit.fluxcd.io", "monitoring.coreos.com")
Who = tuple[str, list[str]]  # a user and their groups
SUBMITTER: Who = ("somebody", ["slipway:submitters", "system:authenticated"])
READER: Who = ("somebody", ["slipway:readers", "system:authenticated"])


def home(account: str) -> str:
    """The namespace of an account of the tree."""
    return plan.SYSTEM if account == "slipway-reaper" else "slipway"


def account(short: str) -> Who:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{home(short)}", "system:authenticated"]
    return f"system:serviceaccount:{home(short)}:{short}", groups


def known(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found if not one["apiVersion"].partition("/")[0].endswith(ELSEWHERE)]


def without_pods() -> list[dict[str, Any]]:
    """What stands in these tests: no server (its image is not here), no claim (other folders could not change it)."""
    left_out = ("Deployment", "DaemonSet", "PersistentVolumeClaim")
    tree = [*objects("overlays/kind-queues"), *objects("overlays/kind/reaper")]
    return [one for one in tree if one["kind"] not in left_out]


@pytest.fixture(scope="module")
def standing(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with the CRDs, the tree of kind as `launcher cluster up` applies it, and the namespaces of all."""
    cluster.crds("jobset", "kueue")
    manifests = [*GOLDEN, *RENDERED]
    spaces = {
        one["metadata"]["name"]: one for folder in FOLDERS for one in objects(folder) if one["kind"] == "Namespace"
    }
    for path in manifests:
        for one in yaml.safe_load_all(path.read_text()):
            metadata = {"name": one["metadata"].get("namespace", "default"), "labels": {}}
            spaces.setdefault(metadata["name"], {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    for space in ("argocd", "flux-system"):
        spaces[space] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    for label in ("enforce", "warn"):
        for one in spaces.values():
            one["metadata"].setdefault("labels", {}).setdefault(f"pod-security.kubernetes.io/{label}", "restricted")
    cluster.settle(*spaces)  # a process may come to these tests twice, when it takes some over from another
    cluster.apply(list(spaces.values()))
    tree = without_pods()
    cluster.apply(tree)
    yield cluster
    cluster.kubectl("delete", "namespace", "--ignore-not-found", "--wait=false", *(s for s in spaces if s != "default"))
    whole = [one for one in tree if not one["metadata"].get("namespace") and one["kind"] != "Namespace"]
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", data=listed(whole))


def listed(found: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": found})


def store_image(into: Path) -> Path:
    """What components/store/Dockerfile makes, as `docker save` writes it."""
    layer, program = into.with_suffix(".layer"), build_s3()
    with tarfile.open(layer, "w") as tar:
        tar.add(program, "versitygw")
    with layer.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    settings = {"User": "1000:1000", "WorkingDir": "/data", "Entrypoint": ["/versitygw"]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs, "config": settings}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [plan.STORE_IMAGE], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(into, "w") as tar:
        for entry, body in (("config.json", config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(entry)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
        tar.add(layer, "layer.tar")
    return into


def dry_run(cluster: Cluster, found: list[dict[str, Any]]) -> None:
    """Every object is taken, with strict fields, and nothing is warned of."""
    command = [str(BIN / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), "apply", "--server-side"]
    command += ["--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"]
    done = subprocess.run(command, input=listed(found), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if not (SET == "newest" and line == KUEUE_WARNS)]
    assert not warned, done.stderr
    assert done.stdout.count("(server dry run)") == len(found)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_real_api_server_takes_all_of_a_folder(standing: Cluster, folder: str) -> None:
    found = known(objects(folder))
    left = {one["apiVersion"] for one in objects(folder) if one not in found}
    assert found or left, folder
    if found:
        dry_run(standing, found)


@pytest.mark.parametrize("path", [*GOLDEN, *RENDERED], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_real_api_server_takes_what_is_rendered(standing: Cluster, path: Path) -> None:
    dry_run(standing, list(yaml.safe_load_all(path.read_text())))


def test_there_are_goldens() -> None:
    assert len(GOLDEN) >= 5
    assert len(RENDERED) >= 2


def test_the_dry_run_would_notice(standing: Cluster) -> None:
    """What it is there for: an unknown field, and a Job whose pods Pod Security would refuse."""
    (job,) = [one for one in yaml.safe_load_all(RENDERED[-1].read_text()) if one["kind"] == "Job"]
    job["spec"]["backofLimit"] = 1
    with pytest.raises(AssertionError, match="backofLimit"):
        dry_run(standing, [job])
    del job["spec"]["backofLimit"]
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {}
    with pytest.raises(AssertionError, match="would violate PodSecurity"):
        dry_run(standing, [job])


def test_applying_it_again_changes_nothing(standing: Cluster) -> None:
    """A GitOps controller applies every few minutes."""
    tree = without_pods()

    def versions() -> dict[str, str]:
        found = {}
        # the status of these is written by controllers: their resourceVersion moves by itself
        for one in tree:
            if one["kind"] in ("Role", "RoleBinding", "NetworkPolicy", "PriorityClass", "LimitRange", "ConfigMap"):
                metadata = one["metadata"]
                live = standing.get(one["kind"], metadata["name"], metadata.get("namespace"))
                found[name(one)] = live["metadata"]["resourceVersion"]
        return found

    before = versions()
    assert len(before) > 10
    standing.apply(tree)
    assert versions() == before


def allowed(cluster: Cluster, who: Who, what: Iterable[str], namespace: str = "slipway") -> set[str]:
    """Of `VERB RESOURCE[.GROUP][/SUBRESOURCE][ NAME]`, those that the API server would let somebody do."""
    asked = list(what)
    reviews = []
    for one in asked:
        verb, rest, *named = one.split(" ")
        rest, _, part = rest.partition("/")
        resource, _, group = rest.partition(".")
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": part}
        attributes |= {"name": "".join(named)}
        spec = {"user": who[0], "groups": who[1], "resourceAttributes": attributes}
        reviews.append({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    said = cluster.kubectl("create", "-f", "-", "-o", 'jsonpath={.status.allowed}{"\\n"}', data=listed(reviews)).split()
    assert set(said) <= {"true", "false"}
    return {one for one, answer in zip(asked, said, strict=True) if answer == "true"}


MAY = ["create jobs.batch", "delete jobs.batch", "get jobs.batch", "list jobs.batch", "watch jobs.batch"]
MAY += ["create jobsets.jobset.x-k8s.io", "watch jobsets.jobset.x-k8s.io", "create configmaps", "list pods"]
MAY += ["patch configmaps", "get namespaces", "get persistentvolumeclaims"]
MAY += ["watch pods", "get pods/log", "watch events", "get localqueues.kueue.x-k8s.io", "list workloads.kueue.x-k8s.io"]
PEOPLE = ["create pods/exec", "create pods/portforward", "delete pods"]
NEVER = ["get secrets", "list secrets", "list nodes", "create pods", "patch jobs.batch", "update jobs.batch"]
NEVER += ["create serviceaccounts/token", "create rolebindings.rbac.authorization.k8s.io", "delete namespaces"]
NEVER += [
    "patch clusterqueues.kueue.x-k8s.io",
    "update resourcequotas",
    "deletecollection jobs.batch",
    "get pods/attach",
]


def test_people_see_the_quota_of_their_queue_and_of_no_other(standing: Cluster) -> None:
    queue = "clusterqueues.kueue.x-k8s.io"
    asked = [f"get {queue} slipway", f"get {queue} another", f"list {queue}", f"patch {queue} slipway"]
    for who in (SUBMITTER, READER, account("slipway-ci")):
        assert allowed(standing, who, [*asked, "list localqueues.kueue.x-k8s.io"]) == {
            f"get {queue} slipway",
            "list localqueues.kueue.x-k8s.io",
        }
    assert allowed(standing, account("slipway-run"), asked) == set()


def test_people_who_submit(standing: Cluster) -> None:
    assert allowed(standing, SUBMITTER, [*MAY, *PEOPLE, *NEVER]) == {*MAY, *PEOPLE}
    for elsewhere in ("kube-system", "slipway-store", plan.SYSTEM, "default"):
        assert allowed(standing, SUBMITTER, [*MAY, *PEOPLE, *NEVER], elsewhere) == set()


def test_ci_submits_and_enters_nothing(standing: Cluster) -> None:
    assert allowed(standing, account("slipway-ci"), [*MAY, *PEOPLE, *NEVER]) == set(MAY)


def test_a_jobs_own_account_may_nothing(standing: Cluster) -> None:
    for short in ("slipway-run", "default"):
        assert allowed(standing, account(short), [*MAY, *PEOPLE, *NEVER]) == set()


def test_the_reaper_looks_and_deletes_objects_and_no_more(standing: Cluster) -> None:
    needed = {
        "list jobs.batch",
        "delete jobs.batch",
        "delete jobsets.jobset.x-k8s.io",
        "list pods",
        "delete configmaps",
        "get configmaps",  # the jobs of an object that GitOps applied may be there
    }
    refused = {"create jobs.batch", "get pods/log", "create configmaps", *PEOPLE, *NEVER}
    assert allowed(standing, account("slipway-reaper"), [*needed, *refused]) == needed


def test_the_reapers_settings_and_account_are_out_of_a_submitters_reach(standing: Cluster) -> None:
    """Where they may create Jobs and change ConfigMaps, there is no account of the reaper and none of its settings."""
    for kind in ("serviceaccount/slipway-reaper", "configmap/slipway-settings", "cronjob/slipway-reaper"):
        assert standing.kubectl("get", kind, "-n", "slipway", "--ignore-not-found") == ""
        assert standing.kubectl("get", kind, "-n", plan.SYSTEM, "-o", "name").strip()
    tampering = ["create jobs.batch", "patch configmaps", "patch cronjobs.batch", "create serviceaccounts/token"]
    assert allowed(standing, SUBMITTER, tampering, plan.SYSTEM) == set()
    assert allowed(standing, account("slipway-ci"), tampering, plan.SYSTEM) == set()


def test_a_reader_only_reads(standing: Cluster) -> None:
    refused = {"create jobs.batch", "delete jobs.batch", "get configmaps", *PEOPLE, *NEVER}
    assert allowed(standing, READER, ["list jobs.batch", *refused]) == {"list jobs.batch"}


def test_the_local_store_serves_pods_and_this_process(
    standing: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store component as it is, but for its volume: no provisioner is here. Its keys as `launcher cluster` makes
    them, its image as the Dockerfile does."""
    standing.node(1).import_from(["cat", str(store_image(tmp_path / "store.tar"))])
    keys = plan.StoreCredentials("local-key", "not-a-secret-of-anything")
    for one in json.loads(plan.secrets(keys))["items"]:
        standing.apply(one)
    (server,) = [json.loads(json.dumps(one)) for one in objects("overlays/kind") if one["kind"] == "Deployment"]
    for volume in server["spec"]["template"]["spec"]["volumes"]:
        if volume.pop("persistentVolumeClaim", None):
            volume["emptyDir"] = {}
    standing.apply(server)

    def address() -> str | None:
        for pod in standing.get("pods", namespace=plan.STORE_NAMESPACE):
            ready = [each for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"]
            if ready and ready[0]["status"] == "True":
                return str(pod["status"]["podIP"])
        return None

    try:
        found = standing.wait_for("a ready store", address, 90)
        for variable, value in standing.s3.environment.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys.id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys.secret)
        for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(variable, f"http://{found}:7070")
        store = open_store(plan.STORE_URL)
        assert store.create("runs/a/job.json", b"first") is True
        assert store.create("runs/a/job.json", b"second") is False
        assert store.get("runs/a/job.json") == b"first"
    finally:
        standing.kubectl("delete", "deployment", "store", "-n", plan.STORE_NAMESPACE, "--wait=false")


Launcher = Callable[..., str]


@pytest.fixture
def launcher(standing: Cluster, tmp_path: Path) -> Callable[[str], Launcher]:
    """An account of the tree -> a `launcher` that is logged in as it, in the example repository, on a real store."""
    shutil.copytree(TREE / "gitops", tmp_path / "jobs")
    url = standing.s3.url()

    def login(account: str) -> Launcher:
        config = yaml.safe_load(standing.kubeconfig.read_text())
        token = standing.kubectl("create", "token", account, "-n", home(account)).strip()
        config["users"][0]["user"] = {"token": token}
        config["contexts"][0]["context"]["namespace"] = "slipway"
        path = tmp_path / f"{account}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        environment = {**os.environ, **standing.s3.environment, "KUBECONFIG": str(path), "SLIPWAY_STORE": url}
        environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

        def call(*arguments: str, code: int = 0) -> str:
            command = [sys.executable, "-m", "launcher.cli", *arguments]
            done = subprocess.run(
                command, cwd=tmp_path / "jobs", env=environment, capture_output=True, text=True, timeout=120
            )
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout + done.stderr

        return call

    return login


def test_the_roles_are_enough_for_a_runs_whole_life(standing: Cluster, launcher: Callable[[str], Launcher]) -> None:
    """CI's account submits (twice: nothing new), sees why it waits, cancels; the reaper's takes a leftover away."""
    ci, reaper = launcher("slipway-ci"), launcher("slipway-reaper")

    def jobs() -> list[str]:
        return [one["metadata"]["name"] for one in standing.get("jobs", namespace="slipway")]

    ci("submit", "src/sft.yaml")
    (run,) = jobs()
    uid = standing.get("job", run, "slipway")["metadata"]["uid"]
    ci("submit", "src/sft.yaml")
    assert standing.get("job", run, "slipway")["metadata"]["uid"] == uid
    # no node here has such a GPU: nothing is pulled, and the reason is the scheduler's
    standing.wait_for("its reason", lambda: "unschedulable" in ci("status", run, "-o", "json") or None, 60, every=2)
    ci("cancel", run)
    standing.wait_for("the Job to go", lambda: not jobs() or None, 60)

    # a GitOps controller makes it again: cancelled, it is a leftover
    standing.apply(ci("render", "src/sft.yaml"))
    standing.wait_for("the Job", lambda: jobs() == [run] or None, 30)
    assert "nothing to do" not in reaper("reap", "--backend", "kubernetes")
    standing.wait_for("the Job to go", lambda: not jobs() or None, 60)


def test_the_quota_refuses_what_would_be_reached_from_outside(standing: Cluster) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "open", "namespace": "slipway"}}
    service["spec"] = {"type": "NodePort", "ports": [{"port": 80}], "selector": {"a": "b"}}
    standing.wait_for(
        "the quota's count", lambda: standing.get("resourcequota", "slipway-objects", "slipway").get("status"), 60
    )
    with pytest.raises(RuntimeError, match="exceeded quota: slipway-objects"):
        standing.apply(service)


def test_every_pod_of_the_tree_passes_its_namespaces_pod_security(standing: Cluster) -> None:
    """As pods, which the API server refuses, rather than as templates, of which it only warns."""
    seen = 0
    for folder in ("overlays/on-prem", "overlays/kind", "overlays/kind/reaper", "serve"):
        for one in objects(folder):
            template = pods(one)
            if template is None:
                continue
            metadata = {**template["metadata"], "name": "tried", "namespace": one["metadata"]["namespace"]}
            # accounts of other folders are not there; Pod Security does not look at them
            spec = {key: value for key, value in template["spec"].items() if key != "serviceAccountName"}
            dry_run(standing, [{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}])
            seen += 1
    assert seen >= 4


@pytest.mark.nightly
@pytest.mark.cluster("jobset", "kueue")
def test_kueue_itself_admits_the_example_jobs_to_the_flavours_meant(
    standing: Cluster, launcher: Callable[[str], Launcher], tmp_path: Path
) -> None:
    """The queues of components/kueue under Kueue's own controller and webhooks: active, and with every resource that
    our pods ask for; Argo CD's health checks on what stands there then. Last in this file: its webhooks stay."""
    standing.jobset()
    standing.kueue()
    standing.apply(without_pods())

    def holds(found: dict[str, Any], what: str) -> bool:
        conditions = found.get("status", {}).get("conditions", ())
        return any(one["type"] == what and one["status"] == "True" for one in conditions)

    standing.wait_for("an active queue", lambda: holds(standing.get("clusterqueue", "slipway"), "Active") or None, 90)
    ci = launcher("slipway-ci")
    ci("submit", "src")

    def admitted() -> dict[str, set[str]] | None:
        found: dict[str, set[str]] = {}
        for one in standing.get("workloads.kueue.x-k8s.io", namespace="slipway"):
            if holds(one, "Admitted"):
                owner = one["metadata"]["ownerReferences"][0]["kind"]
                sets = one["status"]["admission"]["podSetAssignments"]
                found[owner] = {flavour for each in sets for flavour in each["flavors"].values()}
        return found if len(found) == 2 else None

    try:
        assert standing.wait_for("both to be admitted", admitted, 120) == {"Job": {"l4"}, "JobSet": {"cpu"}}
        (job,) = standing.get("jobs", namespace="slipway", selector="!jobset.sigs.k8s.io/jobset-name")
        assert job["spec"]["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"] == "NVIDIA-L4"
        # resumed by Kueue and not at its end: Argo CD's own check would call it Healthy
        assert [one["status"] for one in job["status"]["conditions"] if one["type"] == "Suspended"] == ["False"]
        lua = interpreter.program()
        for kind, found in (
            (interpreter.JOB, [job]),
            (interpreter.JOBSET, standing.get("jobsets", namespace="slipway")),
            (interpreter.WORKLOAD, standing.get("workloads.kueue.x-k8s.io", namespace="slipway")),
        ):
            assert found
            said = interpreter.health(lua, tmp_path, kind, *found)
            assert {one["status"] for one in said} == {"Progressing"}, said
    finally:
        standing.kubectl("delete", "jobs,jobsets", "--all", "-n", "slipway", "--wait=false")
