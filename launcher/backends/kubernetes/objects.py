"""Our objects, as rendered text and in a cluster: their kinds, addresses and owners."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import yaml

from launcher.backends.base import Handle, Rendered
from launcher.backends.kubernetes import names
from launcher.decoding import decode
from launcher.errors import BadInput

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Kind:
    name: str
    group: str  # as in a path: /api/v1, /apis/batch/v1
    plural: str

    def path(self, namespace: str, name: str = "") -> str:
        """The path of one object, or of all in a namespace; without a namespace, of all in the cluster."""
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.group}{inside}/{self.plural}" + (f"/{name}" if name else "")


CONFIG_MAP: Final = Kind("ConfigMap", "/api/v1", "configmaps")
SECRET: Final = Kind("Secret", "/api/v1", "secrets")
POD: Final = Kind("Pod", "/api/v1", "pods")
EVENT: Final = Kind("Event", "/api/v1", "events")
SERVICE_ACCOUNT: Final = Kind("ServiceAccount", "/api/v1", "serviceaccounts")
JOB: Final = Kind("Job", "/apis/batch/v1", "jobs")
CHILD_JOB: Final = Kind("ChildJob", "/apis/batch/v1", "jobs")  # a Job that JobSet's controller made
JOB_SET: Final = Kind("JobSet", "/apis/jobset.x-k8s.io/v1alpha2", "jobsets")
WORKLOAD: Final = Kind("Workload", "/apis/kueue.x-k8s.io/v1beta1", "workloads")
LOCAL_QUEUE: Final = Kind("LocalQueue", "/apis/kueue.x-k8s.io/v1beta1", "localqueues")
POD_GROUP: Final = Kind("PodGroup", "/apis/scheduling.x-k8s.io/v1alpha1", "podgroups")
OWNED: Final = (CONFIG_MAP, POD_GROUP)  # kinds that belong to a carrier and are made before it
SENT: Final = {kind.name: kind for kind in (*OWNED, JOB, JOB_SET)}
CARRIERS: Final = (JOB, JOB_SET)  # kinds that carry runs


class Manager(msgspec.Struct, frozen=True):
    """Who wrote some fields of an object, and how."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""


class Metadata(msgspec.Struct, frozen=True):
    """The part of an object's metadata that is read here."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation: str = msgspec.field(name="creationTimestamp", default="")
    deletion: str = msgspec.field(name="deletionTimestamp", default="")

    managers: list[Manager] = msgspec.field(name="managedFields", default_factory=list)

    @property
    def applied(self) -> bool:
        """Whether a tool applies the object from a file: Flux, Argo CD and kubectl do so on the server ("Apply"), or on
        their side, and note there what they sent. A controller updates."""
        from_file = any(each.operation == "Apply" and not each.subresource for each in self.managers)
        return from_file or not names.APPLIED.isdisjoint(self.annotations)

    @property
    def fingerprint(self) -> str:
        return self.annotations.get(names.FINGERPRINT, "")

    @property
    def runs(self) -> dict[str, str]:
        """run id -> run hash, of every run that the object carries."""
        try:
            return decode(self.annotations.get(names.RUNS, "{}"), dict[str, str])
        except msgspec.MsgspecError:
            return {}


class Bare(msgspec.Struct, frozen=True):
    """An object of which only the metadata is read."""

    metadata: Metadata = Metadata()
    kind: str = ""


bare: Final = msgspec.json.Decoder(Bare).decode


@dataclass(frozen=True)
class ObjectDocument:
    """One object of a rendered file."""

    kind: Kind
    metadata: Metadata
    value: Mapping[str, Any] = field(repr=False)

    @property
    def body(self) -> bytes:
        """The bytes that are sent. JSON, because an API server takes a quarter longer for the same object in YAML."""
        return msgspec.json.encode(self.value)

    @property
    def path(self) -> str:
        return self.kind.path(self.metadata.namespace, self.metadata.name)

    @property
    def shape(self) -> str:
        """A hash of all that decides whether a cluster accepts the object. It is equal for runs that differ only in
        name and configuration, as the runs of a matrix do."""
        return hashlib.sha256(msgspec.json.encode(_shape(self.value), order="sorted")).hexdigest()


@dataclass(frozen=True)
class RenderedFile:
    """A rendered file: first the objects that the carrier needs, then the carrier of the runs."""

    name: str
    before: tuple[ObjectDocument, ...]
    carrier: ObjectDocument

    @property
    def documents(self) -> tuple[ObjectDocument, ...]:
        return (*self.before, self.carrier)


def files(
    rendered: Rendered, namespace: str, known: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
) -> dict[str, RenderedFile]:
    """The files of a submit, by name. `namespace`: for objects that name none; `known`: text -> its objects, where the
    caller rendered it and parsing can be skipped. Raises BadInput."""
    return {name: _file(name, text, namespace, (known or {}).get(text)) for name, text in rendered.documents.items()}


def _file(name: str, text: str, namespace: str, values: Sequence[Mapping[str, Any]] | None) -> RenderedFile:
    objects = list(documents(text, namespace, name, values))
    carriers = [each for each in objects if each.kind in CARRIERS]
    if len(carriers) != 1:
        raise BadInput(f"{name}: {len(carriers)} objects that run something; allowed: one")
    return RenderedFile(name, tuple(each for each in objects if each.kind not in CARRIERS), carriers[0])


def documents(
    text: str, namespace: str, where: str, known: Sequence[Mapping[str, Any]] | None = None
) -> Iterator[ObjectDocument]:
    values: Sequence[Any] = known or [_load(part, where) for part in _SEPARATOR.split(text) if part.strip()]
    for value in values:
        if value is None:
            continue  # only comments
        kind = SENT.get(str(value.get("kind"))) if isinstance(value, dict) else None
        if kind is None:
            raise BadInput(f"{where}: not an object of ours; allowed: {', '.join(SENT)}")
        metadata = msgspec.convert(value.get("metadata") or {}, Metadata, strict=False)
        if not metadata.namespace:
            metadata = msgspec.structs.replace(metadata, namespace=namespace)
        yield ObjectDocument(kind, metadata, value)


def _load(part: str, where: str) -> Any:
    try:
        return yaml.load(part, Loader=Loader)
    except yaml.YAMLError as error:
        raise BadInput(f"{where}: {error}") from None


# keys whose values differ between runs of one shape; commands and values are in the job, which the pod carries as text
_OWN: Final = frozenset(
    {"name", "annotations", "configMap", names.RUN, names.APP_INSTANCE, names.PIPELINE, names.ARRAY}
)


def _shape(value: Any, inside: str = "") -> Any:
    if isinstance(value, dict):
        if inside == "env":
            return sorted(value)
        if inside in ("data", "binaryData"):
            return len(value)
        return {key: _shape(item, key) for key, item in value.items() if key not in _OWN}
    if isinstance(value, list):
        return [_shape(item, inside) for item in value]
    return value


def controller_of(value: Mapping[str, Any]) -> str:
    """The uid of the object that controls this one; "" without one. Unlike labels, which anybody may write on an object
    of theirs, a uid belongs to one object, and Kubernetes deletes what claims an owner that does not exist."""
    for reference in (value.get("metadata") or {}).get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference.get("uid") or "")
    return ""


def handle(run: str, backend: str, kind: Kind, metadata: Metadata, context: str) -> Handle:
    """The handle of a run. `fingerprint`: the run's hash; in a pipeline or an array, from the object's list of runs."""
    place = {
        "context": context,
        "namespace": metadata.namespace,
        "kind": kind.name,
        "uid": metadata.uid,
    }
    return Handle(run, backend, metadata.name, metadata.runs.get(run, metadata.fingerprint), place)
