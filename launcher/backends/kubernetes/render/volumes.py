"""`kubernetes.volumes`: claims that exist, and buckets as folders. Read-only unless the job says otherwise: what a run
writes belongs into its outputs, because only those are kept by attempt and with checksums.

A bucket is an inline volume of the cloud's CSI driver:

gs://BUCKET     Cloud Storage FUSE of GKE (gcsfuse.csi.storage.gke.io). Its webhook adds a sidecar to pods with the
                annotation gke-gcsfuse/volumes (GoogleCloudPlatform/gcs-fuse-csi-driver, README). `implicit-dirs` shows
                folders that no object stands for. The pods' identity opens the bucket
az://CONTAINER  Azure Blob storage (blob.csi.azure.com). The inline form requires a Secret with the account's name and
                key (kubernetes-sigs/blob-csi-driver, deploy/example/nginx-blobfuse-inline-volume.yaml). `allow_other`
                lets users other than root read
s3://           no inline form: the Mountpoint driver mounts PersistentVolumes only (awslabs/mountpoint-s3-csi-driver,
                examples/kubernetes/static_provisioning), so the job names a claim
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from launcher.backends.kubernetes import names
from launcher.errors import BadInput
from launcher.spec.values.structures import ValueFault

GCS: Final = "gcsfuse.csi.storage.gke.io"
BLOB: Final = "blob.csi.azure.com"
GCS_ANNOTATION: Final = {"gke-gcsfuse/volumes": "true"}
_OURS: Final = (names.WORK, names.TMP, names.SHM, names.JOBS)


def review(volumes: Sequence[Mapping[str, Any]]) -> Iterator[ValueFault]:
    """What is wrong between the fields of `kubernetes.volumes`."""
    paths: dict[str, int] = {}
    for index, volume in enumerate(volumes):
        path = volume.get("path", "").rstrip("/")
        if path in paths:
            yield ValueFault((index, "path"), f"volume [{paths[path]}] is mounted at {path}", "another folder")
        paths.setdefault(path, index)
        if path in _OURS or path.startswith(f"{names.JOBS}/") or not path:
            yield ValueFault((index, "path"), f"`{volume.get('path')}` is the launcher's", "another folder")
        sources = [key for key in ("claim", "bucket") if key in volume]
        if len(sources) != 1:
            said = "has `claim` and `bucket`" if sources else "has neither `claim` nor `bucket`"
            yield ValueFault((index,), said, "one of them")
            continue
        bucket = volume.get("bucket", "")
        if bucket.startswith("s3://"):
            message = "the S3 driver mounts PersistentVolumes only"
            yield ValueFault((index, "bucket"), message, "`claim`, of a volume that an administrator makes")
        if bucket.startswith("az://") and "secret" not in volume:
            message = "`secret` is missing: the Secret with the account's name and key"
            yield ValueFault((index,), message)
        if "secret" in volume and not bucket.startswith("az://"):
            yield ValueFault((index, "secret"), "is for buckets of az://", "no `secret`")
        if "options" in volume and not bucket:
            yield ValueFault((index, "options"), "are for buckets", "no `options`")


def mounted(
    volumes: Sequence[Mapping[str, Any]], taken: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mounts and volumes of a pod. `taken`: folders at which something is mounted already. Raises BadInput."""
    mounts, sources = [], []
    for number, volume in enumerate(volumes):
        if volume["path"].rstrip("/") in taken:
            raise BadInput(f"kubernetes.volumes[{number}].path: something is mounted at {volume['path']} already")
        name = f"volume-{number}"
        only = {"readOnly": True} if volume.get("read_only", True) else {}
        part = {"subPath": volume["sub_path"]} if "sub_path" in volume else {}
        mounts.append({"name": name, "mountPath": volume["path"], **part, **only})
        sources.append({"name": name, **_source(volume, only)})
    return mounts, sources


def _source(volume: Mapping[str, Any], only: Mapping[str, Any]) -> dict[str, Any]:
    if "claim" in volume:
        return {"persistentVolumeClaim": {"claimName": volume["claim"], **only}}
    scheme, _, bucket = volume["bucket"].partition("://")
    options: Sequence[str] = volume.get("options", ())
    if scheme == "gs":
        attributes = {"bucketName": bucket, "mountOptions": ",".join(["implicit-dirs", *options])}
        return {"csi": {"driver": GCS, **only, "volumeAttributes": attributes}}
    text = " ".join(["-o allow_other", *options])
    attributes = {"containerName": bucket, "secretName": volume["secret"], "mountOptions": text}
    return {"csi": {"driver": BLOB, **only, "volumeAttributes": attributes}}


def driver_annotations(volumes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Annotations of a pod for the drivers of its volumes."""
    return GCS_ANNOTATION if any(volume.get("bucket", "").startswith("gs://") for volume in volumes) else {}
