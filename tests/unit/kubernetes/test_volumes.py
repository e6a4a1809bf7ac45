"""`kubernetes.volumes`: claims and buckets as folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.check.validate import problems
from launcher.backends.kubernetes.render.manifests import objects, render
from launcher.errors import BadInput
from launcher.spec.hashing import run_id
from launcher.spec.read.load import load
from launcher.spec.resolve.group import resolve
from tests.unit.kubernetes.support import PROFILE, container, job, only, pods, refused
from tests.unit.kubernetes_compare.test_tampering import inspected

JOB = """\
name: volumes
image: registry.example.com/team/image@sha256:{digest}
command: [python, -c, pass]
limits: {{deadline: 1h}}
resources: {{memory: 1Gi}}
backend: kubernetes
kubernetes:
  volumes:
  - {volume}
"""


def mounted(volume: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The mount, the volume, and the pod."""
    made = job(options={"volumes": [volume]})
    assert problems(render([made]).documents) == []
    (rendered,) = objects([made])
    assert inspected(list(rendered.documents), served=True) == ([], [])
    (pod,) = pods(rendered.main)
    (source,) = (each for each in pod["spec"]["volumes"] if each["name"] == "volume-0")
    (mount,) = (each for each in container(pod)["volumeMounts"] if each["name"] == "volume-0")
    return mount, source, pod


def test_a_claim_is_mounted_read_only_unless_the_job_says_otherwise() -> None:
    mount, source, _ = mounted({"path": "/data", "claim": "screens", "sub_path": "2026/raw"})
    assert mount == {"name": "volume-0", "mountPath": "/data", "subPath": "2026/raw", "readOnly": True}
    assert source["persistentVolumeClaim"] == {"claimName": "screens", "readOnly": True}
    mount, source, _ = mounted({"path": "/data", "claim": "screens", "read_only": False})
    assert mount == {"name": "volume-0", "mountPath": "/data"}
    assert source["persistentVolumeClaim"] == {"claimName": "screens"}


def test_a_bucket_of_google_is_what_the_drivers_documentation_asks_for() -> None:
    """GoogleCloudPlatform/gcs-fuse-csi-driver, README: the driver's name, `bucketName`, and the annotation without
    which its webhook adds no sidecar."""
    mount, source, pod = mounted({"path": "/data", "bucket": "gs://team-data", "options": ["file-mode=0444"]})
    assert source["csi"] == {
        "driver": "gcsfuse.csi.storage.gke.io",
        "readOnly": True,
        "volumeAttributes": {"bucketName": "team-data", "mountOptions": "implicit-dirs,file-mode=0444"},
    }
    assert mount["readOnly"] is True
    assert pod["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
    assert "gke-gcsfuse/volumes" not in pods(only([job()]).main)[0]["metadata"]["annotations"]


def test_a_container_of_azure_is_what_the_drivers_example_has() -> None:
    """kubernetes-sigs/blob-csi-driver, deploy/example/nginx-blobfuse-inline-volume.yaml."""
    _, source, _ = mounted({"path": "/data", "bucket": "az://screens", "secret": "azure-secret"})
    assert source["csi"] == {
        "driver": "blob.csi.azure.com",
        "readOnly": True,
        "volumeAttributes": {
            "containerName": "screens",
            "secretName": "azure-secret",
            "mountOptions": "-o allow_other",
        },
    }


def test_volumes_are_part_of_the_run() -> None:
    claims = [job(options={"volumes": [{"path": "/data", "claim": name}]}) for name in ("a", "b")]
    assert len({run_id(one) for one in (job(), *claims)}) == 3


def test_a_folder_store_may_be_on_a_claim_that_is_written() -> None:
    volume = {"path": "/store", "claim": "runs", "read_only": False}
    only([job(store="file:///store/runs", options={"volumes": [volume]})])
    said = refused(job(store="file:///store/runs", options={"volumes": [{**volume, "read_only": True}]}))
    assert "which pods do not see" in said


@pytest.mark.parametrize(
    ("volume", "field", "message"),
    [
        ("{path: /data}", "[0]", "neither `claim` nor `bucket`"),
        ("{path: /data, claim: a, bucket: 'gs://b'}", "[0]", "`claim` and `bucket`"),
        ("{path: /data, bucket: 's3://b'}", "[0].bucket", "the S3 driver mounts PersistentVolumes only"),
        ("{path: /data, bucket: 'az://b'}", "[0]", "`secret` is missing"),
        ("{path: /data, claim: a, secret: b}", "[0].secret", "is for buckets of az://"),
        ("{path: /data, claim: a, options: [x]}", "[0].options", "are for buckets"),
        ("{path: /work, claim: a}", "[0].path", "is the launcher's"),
        ("{path: /etc/slipway/x, claim: a}", "[0].path", "is the launcher's"),
        ("{path: /, claim: a}", "[0].path", "is the launcher's"),
        ("{path: data, claim: a}", "[0].path", "an absolute path"),
        ("{path: /data, claim: a, sub_path: x/../y}", "[0].sub_path", "a relative path without"),
        ("{path: /data, claim: a, sub_path: /x}", "[0].sub_path", "a relative path without"),
        ("{path: /data, bucket: b}", "[0].bucket", "gs://NAME or az://CONTAINER"),
        ("{path: /data, bucket: 'gs://b', options: ['a,b']}", "[0].options[0]", "no spaces and commas"),
        ("{path: /data, claim: a}\n  - {path: /data/, claim: b}", "[1].path", "volume [0] is mounted at /data"),
        ("{claim: a}", "[0].path", "is missing"),
    ],
)
def test_a_wrong_volume_is_an_error_with_its_line(volume: str, field: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(digest="ab" * 32, volume=volume))
    with pytest.raises(BadInput) as caught:
        resolve(load([str(path)], cwd=tmp_path), PROFILE, environment="")
    said = str(caught.value)
    line = 10 if field.startswith("[1]") else 9
    assert said.startswith(f"{path}:{line}:")
    assert f": kubernetes.volumes{field}: " in said
    assert message in said


def test_two_things_at_one_folder_are_refused() -> None:
    options = {"caches": [{"name": "hub", "path": "/data"}], "volumes": [{"path": "/data", "claim": "screens"}]}
    assert refused(job(options=options)) == "kubernetes.volumes[0].path: something is mounted at /data already"
