"""`kubernetes.patch`: merged as kubectl merges it, never over what the runtime needs, and compared like all else."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from launcher.backends.kubernetes.check.validate import problems
from launcher.backends.kubernetes.render.manifests import objects, render
from launcher.backends.kubernetes.render.patch import merge
from launcher.errors import BadInput
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import Resources, Role
from launcher.spec.read.load import load
from launcher.spec.resolve.group import resolve
from tests.unit.kubernetes.merges import BASE, FILE, PATCHES
from tests.unit.kubernetes.support import IMAGE, PROFILE, container, job, needs, only, pods, refused
from tests.unit.kubernetes_compare.test_tampering import inspected

PINNED = "registry.example.com/proxy@sha256:" + "6a" * 32
SIDECAR = {
    "name": "proxy",
    "image": PINNED,
    "restartPolicy": "Always",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
PATCH: dict[str, Any] = {
    "metadata": {"labels": {"example.com/egress": "proxy"}},
    "spec": {
        "initContainers": [SIDECAR],
        "containers": [{"name": "main", "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}],
    },
}
JOB = """\
name: patched
image: registry.example.com/team/image@sha256:{digest}
command: [python, -c, pass]
limits: {{deadline: 1h}}
resources: {{memory: 1Gi}}
backend: kubernetes
kubernetes:
  patch:
    {patch}
"""


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_is_merged_as_kubectl_merges_it(name: str) -> None:
    base = copy.deepcopy(BASE)
    assert merge(base, PATCHES[name]) == json.loads(FILE.read_text(encoding="utf-8"))[name]
    assert base == BASE


def test_a_patch_reaches_every_pod_and_the_objects_are_valid() -> None:
    roles = {
        "main": msgspec.structs.replace(needs(), leader=True),
        "desk": Role(("true",), IMAGE, replicas=3, resources=Resources(memory=1 << 30)),
    }
    rendered = render([job(roles=roles, options={"patch": PATCH})])
    (made,) = objects([job(roles=roles, options={"patch": PATCH})])
    assert len(pods(made.main)) == 2
    for pod in pods(made.main):
        assert pod["metadata"]["labels"]["example.com/egress"] == "proxy"
        assert pod["spec"]["initContainers"] == [SIDECAR]
        assert container(pod)["command"] == ["python", "-m", "launcher.runtime"]
        assert {"name": "data", "mountPath": "/data", "readOnly": True} in container(pod)["volumeMounts"]
    assert problems(rendered.documents) == []


def test_a_patch_of_a_role_reaches_its_pods_only_and_comes_after_the_other() -> None:
    roles = {"main": msgspec.structs.replace(needs(), leader=True), "desk": needs()}
    label = {"metadata": {"labels": {"example.com/egress": "none"}}}
    made = only([job(roles=roles, options={"patch": PATCH, "role_patches": {"desk": label}})]).main
    labels = {pod["metadata"]["labels"]["slipway.dev/role"]: pod["metadata"]["labels"] for pod in pods(made)}
    assert labels["main"]["example.com/egress"] == "proxy"
    assert labels["desk"]["example.com/egress"] == "none"
    said = refused(job(options={"role_patches": {"desks": label}}))
    assert said == "kubernetes.role_patches.desks: job has no such role; allowed: main"


def test_a_patch_is_part_of_the_run_and_not_of_what_it_computes() -> None:
    plain, patched = job(), job(options={"patch": PATCH})
    assert run_id(plain) != run_id(patched)
    assert work_hash(plain) == work_hash(patched)


def test_the_patch_that_was_asked_for_is_accepted_and_no_other() -> None:
    (made,) = objects([job(options={"patch": PATCH})])
    documents = [copy.deepcopy(document) for document in made.documents]
    assert inspected(documents) == ([], [])
    pod = documents[-1]["spec"]["template"]["spec"]
    pod["initContainers"][0]["image"] = PINNED.replace("6a", "7b")
    errors, _ = inspected(documents)
    assert len(errors) == 1
    assert "edited after rendering" in errors[0]
    pod["initContainers"] = [SIDECAR, {**SIDECAR, "name": "another"}]
    errors, _ = inspected(documents)
    assert [error for error in errors if "its job gives no `another`" in error]


# what is written below `patch:`, and the error: field, and what it says
REFUSED = {
    "spec: {restartPolicy: Always}": ("spec.restartPolicy", "`limits.retries`"),
    "spec: {terminationGracePeriodSeconds: 5}": ("spec.terminationGracePeriodSeconds", "`limits.grace`"),
    "spec: {serviceAccountName: admin}": ("spec.serviceAccountName", "`kubernetes.service_account`"),
    "spec: {nodeName: n1}": ("spec.nodeName", "passes over the scheduler"),
    "spec: {subdomain: x}": ("spec.subdomain", "find each other"),
    "spec: {tolerations: [{operator: Exists}]}": ("spec.tolerations", "`kubernetes.tolerations`"),
    "spec: {containers: [{name: main, args: [x]}]}": ("spec.containers[0].args", "`command`"),
    "spec: {containers: [{name: main, command: [x]}]}": ("spec.containers[0].command", "starts the runtime"),
    "spec: {containers: [{name: main, image: x}]}": ("spec.containers[0].image", "allowed: `image`"),
    "spec: {containers: [{name: side, image: x}]}": ("spec.containers[0]", "`initContainers` with"),
    'spec: {containers: [{name: main, env: [{name: A, value: "1"}]}]}': (
        "spec.containers[0].env[0].value",
        "the job's `env`",
    ),
    "spec: {containers: [{name: main, env: [{name: HOME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]}": (
        "spec.containers[0].env[0]",
        "`HOME` is the launcher's",
    ),
    "spec: {containers: [{name: main, env: [{name: SLIPWAY_X, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]}": (
        "spec.containers[0].env[0]",
        "tells the runtime",
    ),
    "spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 8}}}]}": (
        'spec.containers[0].resources.limits."nvidia.com/gpu"',
        "`resources.gpus`",
    ),
    "spec: {containers: [{name: main, volumeMounts: [{name: tmp, mountPath: /work}]}]}": (
        "spec.containers[0].volumeMounts[0].name",
        "the launcher writes this field itself",
    ),
    "spec: {containers: [{name: main, volumeMounts: [{name: tmp, mountPath: /etc/slipway/x}]}]}": (
        "spec.containers[0].volumeMounts[0]",
        "the job itself is there",
    ),
    "spec: {containers: null}": ("spec.containers", "the launcher writes this field itself"),
    "spec: {volumes: [{name: work, emptyDir: null, persistentVolumeClaim: {claimName: x}}]}": (
        "spec.volumes[0].persistentVolumeClaim",
        "an empty folder",
    ),
    "metadata: {labels: {slipway.dev/run: x}}": ('metadata.labels."slipway.dev/run"', "which run"),
    "metadata: {labels: {app.kubernetes.io/instance: x}}": (
        'metadata.labels."app.kubernetes.io/instance"',
        "which run",
    ),
    "metadata: {annotations: {kueue.x-k8s.io/y: x}}": ('metadata.annotations."kueue.x-k8s.io/y"', "controllers"),
    "metadata: {labels: {jobset.sigs.k8s.io/jobset-name: x}}": (
        'metadata.labels."jobset.sigs.k8s.io/jobset-name"',
        "controllers",
    ),
    "metadata: {name: x}": ("metadata.name", "labels, annotations"),
    "spec: {$patch: replace}": ("spec.$patch", "null removes a field"),
    "spec: {volumess: []}": ("spec.volumess", "did you mean `volumes`"),
    "spec: {priority: high}": ("spec.priority", "a whole number"),
    "spec: {initContainers: [{name: a}]}": ("spec.initContainers[0]", "`image` is missing"),
    "spec: {initContainers: [{name: a, image: x}]}": ("spec.initContainers[0].image", "names no digest"),
    "spec: {initContainers: [{image: x}]}": ("spec.initContainers[0]", "`name` is missing"),
    "spec: {volumes: [{name: a, emptyDir: {}}]}": ("spec.volumes[0].name", "no container mounts"),
    "spec: {volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]}": (
        "spec.volumes[1]",
        "`a` is listed already",
    ),
    "spec: {volumes: [{name: a, secret: {secretName: s, defaultMode: 0400}}]}": (
        "spec.volumes[0].secret.defaultMode",
        "some readers of YAML and decimal for others; allowed: 256 or 0o400 for octal, 400 for decimal",
    ),
    "spec: {securityContext: {runAsUser: 0985}}": ("spec.securityContext.runAsUser", "allowed: 985 for decimal"),
    "spec: 3": ("spec", "a mapping"),
    "[spec]": ("", "is not a patch of a pod"),
}


@pytest.mark.parametrize("written", REFUSED)
def test_what_a_patch_must_not_say_is_an_error_with_its_line(written: str, tmp_path: Path) -> None:
    field, message = REFUSED[written]
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(digest="ab" * 32, patch=written))
    with pytest.raises(BadInput) as caught:
        resolve(load([str(path)], cwd=tmp_path), PROFILE, environment="")
    said = str(caught.value)
    place = f"kubernetes.patch.{field}".rstrip(".")
    assert said.startswith(f"{path}:9:"), said
    assert f": {place}: " in said.splitlines()[0]
    assert message in said
    if "must not" in said:  # the same holds for a job that comes from elsewhere, as a job.json
        assert place in refused(job(options={"patch": yaml.safe_load(written)}))


ALLOWED = [
    "metadata: {annotations: {karpenter.sh/do-not-disrupt: null}}",
    "spec: {schedulerName: other}",
    "spec: {hostAliases: [{ip: 192.0.2.1, hostnames: [h]}]}",
    "spec: {dnsConfig: {options: [{name: ndots, value: '1'}]}}",
    "spec: {securityContext: {runAsUser: 2000, fsGroup: 2000, supplementalGroups: [5]}}",
    "spec: {volumes: [{name: work, emptyDir: {medium: Memory}}]}",
    "spec: {containers: [{name: main, resources: {limits: {cpu: 2}}}]}",
    "spec: {containers: [{name: main, securityContext: {capabilities: {add: [IPC_LOCK]}}}]}",
    "spec: {containers: [{name: main, env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]}",
    "spec: {containers: [{name: main, imagePullPolicy: Always}]}",
    "spec: {securityContext: {fsGroup: 0o1750, runAsUser: 1000}}",
    "spec: {automountServiceAccountToken: true}",
]


@pytest.mark.parametrize("written", ALLOWED)
def test_what_a_patch_may_say(written: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(digest="ab" * 32, patch=written))
    (run,) = resolve(load([str(path)], cwd=tmp_path), PROFILE, environment="").runs
    (made,) = objects([run])
    assert made.documents != only([job()]).documents
    assert inspected(list(made.documents), served=True) == ([], [])
