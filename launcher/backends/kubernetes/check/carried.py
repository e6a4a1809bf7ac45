"""The jobs that an object carries, and whether the object, in a file or in a cluster, is what they render to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import Api, ApiRefused
from launcher.backends.kubernetes.check.differences import RENDERERS, Additions, FieldDifference, differences, tolerated
from launcher.backends.kubernetes.check.forms import items, mapping, string
from launcher.backends.kubernetes.check.validate import templates
from launcher.backends.kubernetes.objects import CONFIG_MAP, POD_GROUP
from launcher.backends.kubernetes.render.manifests import objects
from launcher.backends.kubernetes.render.pod import unescape
from launcher.decoding import decode
from launcher.errors import BadInput, Conflict
from launcher.spec.hashing import decode_job, run_hash, run_id
from launcher.spec.model import ResolvedJob
from launcher.spec.values.source import Route, dotted

Objects = Mapping[str, Mapping[str, Any]]  # name -> ConfigMap or PodGroup


class JobText(NamedTuple):
    """A job.json in an object. `config_map`: the name of the ConfigMap that holds it; "" for the object itself."""

    config_map: str
    route: Route
    text: str


class ObjectFault(NamedTuple):
    """Something wrong with an object. `level`: error (it does not run what its jobs say), warning, note."""

    level: str
    config_map: str
    route: Route
    message: str


@dataclass
class ObjectInspection:
    """
    read    run id -> the job in the object that has this hash
    places  run id -> where that job stands
    faults  what is wrong with the object
    """

    read: dict[str, ResolvedJob] = field(default_factory=dict)
    places: dict[str, JobText] = field(default_factory=dict)
    faults: list[ObjectFault] = field(default_factory=list)
    unknown: bool = False  # this version cannot render its jobs

    @property
    def jobs(self) -> dict[str, ResolvedJob]:
        """Run id -> job; empty where the object does not run what its jobs say, or where that cannot be told."""
        return {} if self.errors or self.unknown else self.read

    @property
    def errors(self) -> list[ObjectFault]:
        return [fault for fault in self.faults if fault.level == "error"]


def inspect(value: Mapping[str, Any], maps: Objects, *, served: bool) -> ObjectInspection:
    """Compares the jobs inside a Job or JobSet with its annotations, then the object and its ConfigMaps with what the
    jobs render to. `served`: it was read from a cluster, so what servers and Kueue add is allowed."""
    done = ObjectInspection()
    hashes = runs_of(value)
    at: Route = ("metadata", "annotations", names.RUNS)
    for place in job_texts(value, maps):
        try:
            job = decode_job(place.text.encode())
            hashed = run_hash(job)
        except (BadInput, UnicodeEncodeError) as error:
            done.faults.append(ObjectFault("error", place.config_map, place.route, f"does not hold a job: {error}"))
            return done
        run = run_id(job, hashed)
        if hashes.get(run) != hashed:
            message = f"the job in it is {run}, which {names.RUNS} does not name: it was edited"
            done.faults.append(ObjectFault("error", place.config_map, place.route, message))
            return done
        done.read[run], done.places[run] = job, place
    if missing := sorted(set(hashes) - set(done.read)):
        done.faults.append(ObjectFault("error", "", at, f"{', '.join(missing)}: the file does not hold this job"))
    elif hashes:
        _compare(value, maps, served, done)
    return done


def _compare(value: Mapping[str, Any], maps: Objects, served: bool, done: ObjectInspection) -> None:
    version = string(mapping(value, "metadata", "annotations"), names.RENDERER)
    # an object of an older launcher may hold in each pod what is a ConfigMap today
    repeated = not any(place.config_map for place in done.places.values())
    try:
        made = objects(list(done.read.values()), repeated=repeated, version=version)
        rendered = {each.name: each.documents for each in made}
    except BadInput as error:
        message = f"this version of launcher cannot render it: {error}"
        done.faults.append(ObjectFault("error" if served else "warning", "", (), message))
        done.unknown = True
        return
    name = string(mapping(value, "metadata"), "name")
    if name not in rendered:
        done.faults.append(
            ObjectFault("error", "", ("metadata", "name"), f"its jobs render to {', '.join(sorted(rendered))}")
        )
        return
    harmless: list[FieldDifference] = []
    for wanted in rendered[name]:
        called = wanted["metadata"]["name"] if wanted["kind"] in names.OWNED_KINDS else ""
        there = maps.get(called) if called else value
        if there is None:
            done.faults.append(ObjectFault("error", "", (), f"the {wanted['kind']} `{called}` is missing"))
            continue
        for each in differences(there, wanted, allows=Additions(there, wanted) if served else None):
            if each.route[-1] == names.RENDERER:
                continue
            if version != names.RENDERER_VERSION and tolerated(str(wanted["kind"]), each.route):
                harmless.append(each)
            else:
                message = f"edited after rendering: {each.message}"
                done.faults.append(ObjectFault("error", called, each.route, message))
    _renderer(version, harmless, done)


def _renderer(version: str, harmless: Sequence[FieldDifference], done: ObjectInspection) -> None:
    at: Route = ("metadata", "annotations", names.RENDERER)
    if version not in RENDERERS:
        known = ", ".join(sorted(RENDERERS))
        message = f"rendered by launcher {version or 'unknown'}, which this one does not know; known: {known}"
        done.faults.append(ObjectFault("warning", "", at, message))
    elif harmless:
        message = f"rendered by launcher {version}; this one, {names.RENDERER_VERSION}, writes bounds differently"
        done.faults.append(ObjectFault("note", "", at, message))


def runs_of(value: Mapping[str, Any]) -> dict[str, str]:
    """Run id -> run hash, as the object's annotation says; empty where it says nothing that can be read."""
    try:
        text = string(mapping(value, "metadata", "annotations"), names.RUNS)
        return decode(text or "{}", dict[str, str])
    except msgspec.DecodeError:
        return {}


def job_texts(value: Mapping[str, Any], maps: Objects) -> Iterator[JobText]:
    """Every job.json that an object carries: in its containers' environment, and in the ConfigMaps that it mounts."""
    names_seen: set[str] = set()
    for route, template in templates(value):
        for at, container in items(mapping(template, "spec"), "containers", (*route, "spec")):
            for where, item in items(container, "env", at):
                if string(item, "name") == "SLIPWAY_JOB" and string(item, "value"):
                    yield JobText("", (*where, "value"), unescape(string(item, "value")))
        for name in config_maps(mapping(template, "spec")):
            if name in maps and name not in names_seen:
                names_seen.add(name)
                for key, text in mapping(maps[name], "data").items():
                    if isinstance(text, str):
                        yield JobText(name, ("data", key), text)


def jobs_of_file(text: str) -> Iterator[ResolvedJob]:
    """The jobs that a rendered file holds, as far as this version can read them."""
    import yaml

    try:
        found = [each for each in yaml.load_all(text, yaml.CSafeLoader) if isinstance(each, dict)]
    except yaml.YAMLError:
        return
    maps = {string(mapping(each, "metadata"), "name"): each for each in found if each.get("kind") == CONFIG_MAP.name}
    for value in found:
        for place in job_texts(value, maps):
            with suppress(BadInput, UnicodeEncodeError):
                yield decode_job(place.text.encode())


def gang(template: Mapping[str, Any]) -> str:
    """The name of the PodGroup of a pod."""
    return string(mapping(template, "metadata", "labels"), names.POD_GROUP)


def config_maps(spec: Mapping[str, Any]) -> Iterator[str]:
    """The names of the ConfigMaps that a pod mounts."""
    for _, volume in items(spec, "volumes", ()):
        yield string(mapping(volume, "configMap"), "name")
        for _, source in items(mapping(volume, "projected"), "sources", ()):
            yield string(mapping(source, "configMap"), "name")


# Compares objects in a cluster with what the jobs in them render to.

_SHOWN: Final = 3  # differences in a message


def inspect_there(api: Api, value: Mapping[str, Any]) -> ObjectInspection:
    """Inspects a Job or JobSet as the API server gave it. Reads its ConfigMaps, those whose names begin with its own,
    and the PodGroups of its runs; one that may not be read counts as missing."""
    metadata = value["metadata"]
    names_of = {name for _, template in templates(value) for name in config_maps(template.get("spec") or {})}
    # what is not ours is not read: the comparison of the volumes and labels says so
    wanted = [(CONFIG_MAP, name) for name in sorted(names_of) if name.startswith(f"{metadata['name']}-")]
    groups = {gang(template) for _, template in templates(value)}
    wanted += [(POD_GROUP, run) for run in runs_of(value) if run in groups]
    maps: dict[str, Mapping[str, Any]] = {}
    for kind, name in wanted:
        try:
            answer = api.get(kind.path(metadata["namespace"], name))
        except ApiRefused as error:
            if error.status != 403:
                raise
            continue
        if answer is not None:
            version = kind.group.removeprefix("/apis/").removeprefix("/api/")
            maps[name] = {"apiVersion": version, "kind": kind.name, **answer.json()}
    return inspect({"apiVersion": None, "kind": None, **value}, maps, served=True)


def refuse_changed(api: Api, value: Mapping[str, Any]) -> None:
    """Raises Conflict when an object in a cluster runs something else than the jobs in it say."""
    inspection = inspect_there(api, value)
    if inspection.errors:
        raise Conflict(f"{told(str(value.get('kind')), value, inspection)} and submit again")


def refuse_results(api: Api, value: Mapping[str, Any]) -> None:
    """Raises Conflict when an object whose runs have ended ran something else than the jobs in it say. Their results in
    the store stay after the object is deleted, so they go first, and the jobs are computed under other names."""
    inspection = inspect_there(api, value)
    if inspection.errors:
        runs = " ".join(runs_of(value))
        raise Conflict(
            f"{told(str(value.get('kind')), value, inspection, ended=True)}, but first what it wrote "
            f"(`launcher rm {runs} --yes`): "
            "its results do not count. `launcher submit --fresh 1` computes the job once more"
        )


def told(kind: str, value: Mapping[str, Any], inspection: ObjectInspection, *, ended: bool = False) -> str:
    """What is wrong with an object, in one sentence that ends with the command that deletes it. `ended`: its runs
    have."""
    metadata = value["metadata"]
    said = [f"{dotted(fault.route)}: {fault.message}" if fault.route else fault.message for fault in inspection.errors]
    more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    command = f"kubectl delete {kind.lower()} {metadata['name']} -n {metadata['namespace']}"
    todo = f"delete it ({command})" if ended else f"undo that, or delete the object, which ends its runs ({command})"
    return (
        f"{kind} {metadata['name']} in namespace {metadata['namespace']} does not run what its job says: "
        f"{'; '.join(said[:_SHOWN])}{more}. Find out who changed it; {todo}"
    )
