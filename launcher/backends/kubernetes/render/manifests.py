"""Runs -> Kubernetes objects -> YAML. Pure: no clock, network or randomness; the same bytes on any machine, from any
order of the runs and under any hash seed. `launcher render` prints exactly what submit sends.

One rank: a Job named by the run's id. Several ranks or roles: a JobSet of that name. Runs that read each other's
outputs: one JobSet for the pipeline. `array: true`: an Indexed Job for a matrix. The name carries the hash of
everything in the object, so a changed job is a new object and an unchanged one changes nothing. GitOps needs this: a
Job's template is immutable.

An object is complete in itself: it holds the resolved job. Up to 96 KiB of jobs per object are in the environment (the
kernel allows 128 KiB for one variable), more are in immutable ConfigMaps. A ConfigMap with several jobs stays below 160
KiB, because `kubectl apply` keeps a copy of an object in an annotation of at most 256 KiB.

No spec.suspend (Kueue's webhook sets it) and no generateName (`kubectl apply` refuses it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

import msgspec

from launcher.backends.base import Rendered
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.render.groups import OF_OBJECT, Stage, StageRun, fingerprint, grouped
from launcher.backends.kubernetes.render.jobset import job_spec, jobset_spec, object_name
from launcher.backends.kubernetes.render.pod import PodContext, job_key, job_text, user_labels
from launcher.backends.kubernetes.render.scheduling import pod_group
from launcher.errors import BadInput
from launcher.spec.hashing import canonical
from launcher.spec.model import ResolvedJob

MAP: Final = 160 * 1024  # most bytes of several jobs in one ConfigMap
LARGEST: Final = 1024 * 1024 - 4096  # most bytes of one job: the limit of a ConfigMap
OBJECT: Final = 1_400_000  # most bytes of one object: etcd takes 1.5 MiB, including what the server adds
FEW: Final = 20  # stages that stay far below OBJECT: their size is not checked
_ARRAY: Final = {"podFailurePolicy": "78: this run never again, the others go on; a disruption is nobody's failure"}
_STAGES: Final = {"failurePolicy": "a stage tries again by itself; one that failed for good ends the pipeline"}


class Object(msgspec.Struct, frozen=True):
    """One object of a submit. `runs`: run id -> run hash, in the order of ids; in an array, of indexes. `documents`:
    ConfigMaps and PodGroups first, the Job or JobSet last."""

    name: str
    fingerprint: str
    runs: Mapping[str, str]
    documents: tuple[dict[str, Any], ...]
    array: bool = False

    @property
    def file(self) -> str:
        return f"{self.name}.yaml"

    @property
    def main(self) -> dict[str, Any]:
        """The Job or JobSet."""
        return self.documents[-1]


def objects(
    group: Sequence[ResolvedJob], *, repeated: bool = False, version: str = names.RENDERER_VERSION
) -> list[Object]:
    """The objects of a submit, as plain data. Raises BadInput for jobs that Kubernetes cannot hold.

    repeated  each pod has its job in its environment, however many pods there are, as launchers rendered it before
              2026-11-23
    version   of the renderer, whose values are written; one that is not known is taken for today's
    """
    return [_object(stages, repeated, version == names.FORMER) for stages in grouped(group)]


def render(group: Sequence[ResolvedJob]) -> Rendered:
    rendered = objects(group)
    return Rendered(
        {item.file: text(item) for item in rendered},
        {run: item.file for item in rendered for run in item.runs},
        warnings(group),
    )


def text(item: Object) -> str:
    """The text of an object's file."""
    from launcher.backends.kubernetes.render.text import COMMENTS, dump

    subject = f"run {item.name}" if len(item.runs) == 1 else f"{len(item.runs)} runs"
    header = f"{item.main['kind']} of {subject}. The name holds the hash of all this: change the job, not the file."
    comments = COMMENTS
    if item.array:
        comments = {**COMMENTS, **_ARRAY}
    elif item.main["kind"] == "JobSet" and item.main["spec"]["failurePolicy"]["maxRestarts"] == 0:
        comments = {**COMMENTS, **_STAGES}
    return dump(item.documents, header, comments)


def warnings(group: Sequence[ResolvedJob]) -> tuple[str, ...]:
    """Warnings about settings that are allowed and rarely intended."""
    lines: dict[str, None] = {}
    for job in group:
        if job.options.get("host_network"):
            lines[f"{job.name}: host_network is refused by namespaces that enforce Pod Security `restricted`"] = None
        for key, one_input in job.inputs.items():
            if (one_input.url or "").startswith("file://"):
                lines[f"{job.name}: inputs.{key} is a folder: of the image or of a volume, not of this machine"] = None
        for role, spec in job.roles.items():
            need = spec.resources
            place = job.name if len(job.roles) == 1 else f"{job.name}, role {role}"
            if need.memory is None:
                lines[f"{place}: no resources.memory: the first to be evicted when a node runs out of it"] = None
            elif need.shm is not None and need.shm >= need.memory:
                lines[f"{place}: resources.shm counts as memory, and leaves none of it to the command"] = None
    return tuple(lines)


def _object(stages: list[Stage], repeated: bool, former: bool) -> Object:
    runs = tuple(sorted((run for stage in stages for run in stage.runs), key=lambda run: run.id))
    name = object_name(stages)
    _same(stages)
    for run in runs:
        _reachable(run.job)
        _known_roles(run.job)
    maps, map_of = _config_maps(name, stages, runs, repeated)

    def files(stage: Stage) -> tuple[str, ...]:
        return tuple(sorted({map_of[run.id] for run in stage.runs if run.id in map_of}))

    first = stages[0]
    ttl = ceil(first.job.options["ttl"]) if "ttl" in first.job.options else None
    head: dict[str, Any]
    if len(stages) == 1 and first.alone:
        labels = {names.ARRAY: name} if first.array else {}
        seat = PodContext("job", files=files(first), array=first.array, labels=labels, former=former)
        head = {"apiVersion": names.JOB_API, "kind": "Job"}
        spec = job_spec(first, seat, ttl)
    else:
        head = {"apiVersion": names.JOBSET_API, "kind": "JobSet"}
        spec = jobset_spec(name, stages, files, former)
        if ttl is not None:
            spec = {"ttlSecondsAfterFinished": ttl, **spec}
    head |= {"metadata": _metadata(name, stages, runs), "spec": spec}
    if len(stages) > FEW and (size := len(msgspec.json.encode(head))) > OBJECT:
        raise BadInput(
            f"{name}: a pipeline of {len(stages)} stages takes {size} bytes, and one object may have {OBJECT}; "
            "`kubernetes: {array: true}` makes one stage of a matrix's runs, or submit it in parts"
        )
    hashes = {run.id: run.hash for run in runs}
    return Object(
        name,
        fingerprint(runs),
        hashes,
        (*maps, *_pod_groups(name, stages, runs), head),
        len(stages) == 1 and first.array,
    )


def _reachable(job: ResolvedJob) -> None:
    """Refuses a store in a folder of this machine, which a pod does not have unless a volume is mounted there."""
    path = job.store.removeprefix("file://")
    volumes = [each for each in job.options.get("volumes", ()) if not each.get("read_only", True) and "claim" in each]
    mounted = [cache["path"].rstrip("/") for cache in (*job.options.get("caches", ()), *volumes)]
    if path != job.store and not any(path == mount or path.startswith(f"{mount}/") for mount in mounted):
        raise BadInput(
            f"store: {job.store} is a folder of this machine, which pods do not see; allowed: s3://, gs://, az://, "
            "or a folder on one of `kubernetes.caches`, or on a claim of `kubernetes.volumes` that is not read-only"
        )


def _known_roles(job: ResolvedJob) -> None:
    for role in job.options.get("role_patches", ()):
        if role not in job.roles:
            raise BadInput(
                f"kubernetes.role_patches.{role}: {job.name} has no such role; allowed: {', '.join(job.roles)}"
            )


def _same(stages: Sequence[Stage]) -> None:
    first = stages[0].job
    for stage in stages:
        for key in OF_OBJECT:
            if stage.job.options.get(key) != first.options.get(key):
                raise BadInput(
                    f"kubernetes.{key}: {first.name} and {stage.job.name} are one pipeline, which is one JobSet and "
                    f"has one {key}"
                )


def _metadata(name: str, stages: Sequence[Stage], runs: Sequence[StageRun]) -> dict[str, Any]:
    job = stages[0].job
    labels = {**_marks(name, stages, runs)}
    if "queue" in job.options:
        labels[names.QUEUE] = job.options["queue"]
    if "queue_priority" in job.options:
        if "queue" not in job.options:
            raise BadInput(
                f"kubernetes.queue_priority: {job.name} is in no queue, and only queues have such classes; allowed: "
                "with `queue`; `priority_class` is the pods' own"
            )
        labels[names.QUEUE_PRIORITY] = job.options["queue_priority"]
    parameters = job.options.get("provisioning", {})
    if parameters and "queue" not in job.options:
        raise BadInput(f"kubernetes.provisioning: {job.name} is in no queue; allowed: with `queue`")
    common = set.intersection(*(set(user_labels(run.job).items()) for run in runs))
    return {
        "name": name,
        **_namespace(job),
        "labels": {**labels, **dict(sorted(common))},
        "annotations": {
            names.FINGERPRINT: fingerprint(runs),
            names.RUNS: canonical({run.id: run.hash for run in runs}).decode(),
            names.RENDERER: names.RENDERER_VERSION,
            names.STORE: job.store,
            **{f"{names.PROVISIONING}{name}": value for name, value in sorted(parameters.items())},
            **_partial_admission(stages),
        },
    }


def _partial_admission(stages: Sequence[Stage]) -> dict[str, str]:
    """The annotation by which Kueue starts fewer pods of a Job at once (kueue, pkg/controller/jobs/job: JobSets have
    none, and a number that is not below the Job's parallelism is refused). The runs of an array are independent, so the
    rest starts later. Ranks of one run need each other and cannot be admitted in part."""
    first = stages[0]
    least = first.job.options.get("min_parallelism")
    if least is None:
        return {}
    wrong = (
        "with `array: true`: only the runs of an array are independent of each other"
        if not first.job.options.get("array")
        else "with `queue`: Kueue does it"
        if "queue" not in first.job.options
        else "without other stages: Kueue admits a pipeline's JobSet as a whole"
        if len(stages) > 1
        else ""
    )
    if wrong:
        raise BadInput(f"kubernetes.min_parallelism: {first.job.name} cannot start in part; allowed: {wrong}")
    return {names.MIN_PARALLELISM: str(least)} if least < len(first.runs) else {}


def _namespace(job: ResolvedJob) -> dict[str, str]:
    return {"namespace": job.options["namespace"]} if "namespace" in job.options else {}


def _marks(name: str, stages: Sequence[Stage], runs: Sequence[StageRun]) -> dict[str, str]:
    label = names.RUN if len(runs) == 1 else names.PIPELINE if len(stages) > 1 else names.ARRAY
    return {names.APP_NAME: names.APP, names.APP_MANAGED: names.APP, names.APP_INSTANCE: name, label: name}


def _config_maps(
    name: str, stages: Sequence[Stage], runs: Sequence[StageRun], repeated: bool
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The ConfigMaps of an object, and run -> the ConfigMap with its job. A run without one has its job in the
    environment of each of its pods, where that is little for the object and for all pods together."""
    texts = {run.id: job_text(run.job) for run in runs}
    sizes = {run: len(text.encode()) for run, text in texts.items()}
    alone = [stage for stage in stages if not stage.array]
    in_object = sum(sizes[stage.id] * len(stage.job.roles) for stage in alone)
    in_pods = 0 if repeated else sum(sizes[stage.id] * len(stage.job.members()) for stage in alone)
    inline = in_object <= names.INLINE and in_pods <= names.REPEATED
    maps: list[dict[str, Any]] = []
    map_of: dict[str, str] = {}
    for stage in stages:
        if not stage.array and inline:
            continue
        index = {run.id: number for number, run in enumerate(stage.runs)}
        for part in _parts(stage.runs, sizes):
            keys = {run.id: job_key(run.id) for run in part}
            if stage.array:
                keys = {run.id: f"{index[run.id]}.json" for run in part}
            data = {key: texts[run] for run, key in keys.items()}
            called = f"{name}-{hashlib.sha256(canonical(data)).hexdigest()[:8]}"
            map_of |= dict.fromkeys(keys, called)
            about = {"name": called, **_namespace(stage.job), "labels": _marks(name, stages, runs)}
            maps.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "immutable": True, "data": data})
    return maps, map_of


def _pod_groups(name: str, stages: Sequence[Stage], runs: Sequence[StageRun]) -> list[dict[str, Any]]:
    """Of the runs whose ranks start together; the stages of a pipeline start one after another."""
    about = {**_namespace(stages[0].job), "labels": _marks(name, stages, runs)}
    found = [pod_group(stage.job, stage.id, about) for stage in stages if not stage.array]
    return [group for group in found if group is not None]


def _parts(runs: Sequence[StageRun], sizes: Mapping[str, int]) -> list[list[StageRun]]:
    """The runs in groups whose jobs fit into one ConfigMap each."""
    parts: list[list[StageRun]] = [[]]
    filled = 0
    for run in runs:
        size = sizes[run.id]
        if size > LARGEST:
            raise BadInput(f"{run.job.name}: its job.json has {size} bytes, and a ConfigMap takes {LARGEST}")
        if parts[-1] and filled + size > MAP:
            parts.append([])
            filled = 0
        parts[-1].append(run)
        filled += size
    return parts
