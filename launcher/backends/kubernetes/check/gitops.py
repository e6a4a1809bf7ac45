"""Rendered Jobs and JobSets under lint: each carries its whole runs, so rendering those again must give the same
object."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.check.forms import items, mapping, string, texts
from launcher.decoding import decode
from launcher.protocol.decide import GONE_FOR_GOOD
from launcher.spec.secrets.tokens import mask
from launcher.spec.values.problems import show
from launcher.spec.values.source import Route, YamlDocument, dotted

if TYPE_CHECKING:
    from launcher.spec.model import ResolvedJob


CARRIERS: Final = ("Job", "JobSet")
_RENDER: Final = "change the job and render it again; this file stays as it was"
_ADVICE: Final = {
    "error": _RENDER,
    "warning": "lint it with the launcher that rendered it, or render it again if the run has not started",
    "note": "nothing: an unchanged run keeps its file",
}
_SHOWN: Final = 5  # most differences that are reported for one object


def runs(looks: Sequence[LintedObject]) -> None:
    """Checks all objects that carry runs."""
    places: dict[str, LintedObject] = {}
    objects: dict[tuple[str, str, str], LintedObject] = {}
    works: dict[str, tuple[str, LintedObject]] = {}
    for look in looks:
        _twice(look, objects)
        if look.kind not in CARRIERS:
            continue
        _fields(look)
        hashes = _marks(look)
        for run in hashes:
            first = places.setdefault(run, look)
            if first.document.file != look.document.file:
                file, line, _ = first.document.place(first.route)
                look.error(
                    ("metadata", "annotations", names.RUNS), f"{run} is in {file}:{line}, too", "keep one of them"
                )
        if hashes:
            maps = {
                other.name: other
                for other in looks
                if other.kind in names.OWNED_KINDS and other.document.file == look.document.file
            }
            for run, job in _same(look, maps).items():
                _one_work(look, run, job, works)


def _one_work(look: LintedObject, run: str, job: ResolvedJob, works: dict[str, tuple[str, LintedObject]]) -> None:
    """Reports two files with the same work: one of them computes and the other adopts its result, or both compute at
    once."""
    from launcher.spec.hashing import work_hash

    if job.fresh:
        return
    other, first = works.setdefault(work_hash(job), (run, look))
    if other != run and first.document.file != look.document.file:
        file, line, _ = first.document.place(first.route)
        message = f"{run} is the same work as {other} in {file}:{line}: applied together, both compute it"
        look.warning((), message, "keep one of them, or set `fresh: 1` where it is meant")


def _twice(look: LintedObject, objects: dict[tuple[str, str, str], LintedObject]) -> None:
    identity = (look.kind, string(mapping(look.value, "metadata"), "namespace"), look.name)
    first = objects.setdefault(identity, look)
    if first.document.file != look.document.file and look.name:
        file, line, _ = first.document.place(first.route)
        look.error(("metadata", "name"), f"{look.kind} {show(look.name)} is in {file}:{line}, too", "keep one of them")


def _fields(look: LintedObject) -> None:
    """Reports `ttlSecondsAfterFinished` and `suspend`, which a Job in a folder of Git must not set."""
    spec = mapping(look.value, "spec")
    if "ttlSecondsAfterFinished" in spec:
        message = "a finished Job that is deleted is created again by Argo CD and Flux, and runs again"
        look.error(
            ("spec", "ttlSecondsAfterFinished"), message, "leave it out; `kubectl delete -f` removes a finished Job"
        )
    if "suspend" in spec:
        look.error(("spec", "suspend"), "Kueue sets it; from Git it would stop a running job", "leave it out")
    for at, job in items(spec, "replicatedJobs", ("spec",)):
        inner = mapping(job, "template", "spec")
        for name in ("ttlSecondsAfterFinished", "suspend"):
            if name in inner:
                look.error((*at, "template", "spec", name), "is not for a Job in a folder of Git", "leave it out")


def _marks(look: LintedObject) -> dict[str, str]:
    """Run id -> run hash, from the object's annotations, when these are valid."""
    at: Route = ("metadata", "annotations")
    fingerprint = string(look.annotations, names.FINGERPRINT)
    if not fingerprint:
        message = f"{look.kind} {show(look.name)} has no fingerprint ({names.FINGERPRINT})"
        look.error(("metadata",), message, "render it: `launcher render JOB --to DIR`")
        return {}
    if look.name and not look.name.endswith(f"-{fingerprint[:12]}"):
        message = f"{show(look.name)} does not carry its hash, {fingerprint[:12]}: a changed job would keep the name"
        look.error(("metadata", "name"), message, "render it again, without prefix or suffix")
    try:
        hashes = decode(string(look.annotations, names.RUNS) or "{}", dict[str, str])
    except msgspec.DecodeError:
        look.error((*at, names.RUNS), "is not JSON of run id -> run hash", _RENDER)
        return {}
    if not hashes:
        look.error(at, f"names no runs ({names.RUNS})", _RENDER)
    return hashes


def _same(look: LintedObject, maps: dict[str, LintedObject]) -> dict[str, ResolvedJob]:
    """Compares the object with what the jobs inside it render to. Returns run -> its job; empty when they differ."""
    from launcher.backends.kubernetes.check.carried import inspect
    from launcher.spec.hashing import plain
    from launcher.spec.secrets.disclosure import disclosures
    from launcher.spec.values.source import dotted

    inspection = inspect(look.value, {name: other.value for name, other in maps.items()}, served=False)
    for run, place in inspection.places.items():
        for inside, message, todo in disclosures(plain(inspection.read[run])):
            carrier = maps.get(place.config_map, look)
            carrier.error(place.route, f"{dotted(inside)}: {message}", todo)
    shown: dict[str, int] = {}
    for fault in inspection.faults:
        carrier = maps.get(fault.config_map, look)
        edits = shown[fault.config_map] = shown.get(fault.config_map, 0) + (fault.level == "error")
        if edits <= _SHOWN:
            carrier.say(fault.level, fault.route, fault.message, _ADVICE[fault.level], key=fault.level != "note")
    for name, edits in shown.items():
        if edits > _SHOWN:
            more = f"{edits - _SHOWN} more differences from what its job renders to"
            maps.get(name, look).error((), more, _RENDER)
    return inspection.jobs


# One object of a manifest under lint, and its findings: every check here takes and extends it.


class LintLine(NamedTuple):
    """One finding: `file:line: what; what to do`. `level`: error | warning | note."""

    file: str
    line: int
    level: str
    what: str
    todo: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        level = "" if self.level == "error" else f"{self.level}: "
        return f"{where}: {level}{self.what}{'; ' if self.todo else ''}{self.todo}"


class LintedObject:
    """A document and its object; findings about it are added here."""

    def __init__(self, document: YamlDocument, value: dict[str, Any], route: Route, lines: set[LintLine]) -> None:
        self.document = document
        self.value = value
        self.route = route
        self.lines = lines

    @property
    def kind(self) -> str:
        return string(self.value, "kind")

    @property
    def name(self) -> str:
        return string(mapping(self.value, "metadata"), "name")

    @property
    def annotations(self) -> dict[str, Any]:
        return mapping(self.value, "metadata", "annotations")

    def say(self, level: str, route: Route, message: str, todo: str = "", *, key: bool = False) -> None:
        file, line, _ = self.document.place((*self.route, *route), key=key)
        about = f"{dotted(route)}: {message}" if route else message
        self.lines.add(LintLine(file, line, level, mask(about), mask(todo)))

    def error(self, route: Route, message: str, todo: str = "") -> None:
        self.say("error", route, message, todo, key=True)

    def warning(self, route: Route, message: str, todo: str = "") -> None:
        self.say("warning", route, message, todo, key=True)


ARGO: Final = "argocd.argoproj.io"
FLUX: Final = "kustomize.toolkit.fluxcd.io"
_KILLS: Final = ("Replace=true", "Force=true")
_WHY: Final = "deletes a running job to make it again"
_PRUNES: Final = "prunes without asking: a file that is removed takes its running job with it"
_CHANGES: Final = (
    *("images", "namePrefix", "nameSuffix", "replicas", "patches", "patchesStrategicMerge", "patchesJson6902"),
)
# fields of a kustomization that do not change the rendered objects
_HARMLESS: Final = ("apiVersion", "kind", "metadata", "resources", "components", "openapi", "sortOptions")


def application(look: LintedObject, folders: Collection[str]) -> None:
    """Checks Argo CD's Applications, Flux' Kustomizations, and their annotations on any object. `folders`: the names of
    those that hold rendered jobs."""
    _annotations(look)
    if look.kind == "Application" and string(look.value, "apiVersion").startswith("argoproj.io/"):
        _argo(look, mapping(look.value, "spec"), ("spec",))
    elif look.kind == "ApplicationSet":
        _argo(look, mapping(look.value, "spec", "template", "spec"), ("spec", "template", "spec"))
    elif look.kind == "Kustomization" and string(look.value, "apiVersion").startswith(f"{FLUX}/"):
        _flux(look, folders)


def _options(text: str) -> list[str]:
    return [option.strip() for option in text.split(",")]


def _annotations(look: LintedObject) -> None:
    at: Route = ("metadata", "annotations", f"{ARGO}/sync-options")
    for option in _options(string(look.annotations, f"{ARGO}/sync-options")):
        if option in _KILLS:
            look.error(at, f"{option} {_WHY}", "leave it out")
    if look.kind in CARRIERS and f"{ARGO}/hook" in look.annotations:
        look.error(("metadata", "annotations", f"{ARGO}/hook"), "a hook runs at every sync", "leave it out")
    if look.kind in CARRIERS and string(look.annotations, f"{FLUX}/force").lower() == "enabled":
        look.error(("metadata", "annotations", f"{FLUX}/force"), f"force {_WHY}", "leave it out")


def _argo(look: LintedObject, spec: dict[str, object], at: Route) -> None:
    """`spec`: of an Application, at the route `at`."""
    policy, at_policy = mapping(spec, "syncPolicy"), (*at, "syncPolicy")
    options = [text for _, text in texts(policy, "syncOptions", at_policy)]
    for where, option in texts(policy, "syncOptions", at_policy):
        if option in _KILLS:
            look.error(where, f"{option} {_WHY}", "leave it out")
        elif option == "Prune=confirm":
            # Argo CD 3.5.7: the sync waits, the commits wait for the sync, and a confirmation does not end it
            message = "after the first file that is removed, no later commit is applied"
            look.error(where, f"{option}: {message}", "automated: {prune: false}, without this option")
    automated = mapping(policy, "automated")
    if automated.get("prune") is True and "Prune=false" not in options:
        look.warning((*at_policy, "automated", "prune"), _PRUNES, "prune: false")
    if spec.get("ignoreDifferences") and "RespectIgnoreDifferences=true" not in options:
        message = (
            "only the comparison ignores these fields: a sync sends them, so a Job that Kueue changed makes it fail"
        )
        look.warning((*at, "ignoreDifferences"), message, "syncOptions: [RespectIgnoreDifferences=true]")
    retry = mapping(policy, "retry")
    if retry and retry.get("refresh") is not True:
        message = "tries a commit that failed again until the limit, and takes its fix only then"
        look.say("note", (*at_policy, "retry"), message, "refresh: true (Argo CD 3.2 or later)")


def _flux(look: LintedObject, folders: Collection[str]) -> None:
    spec = mapping(look.value, "spec")
    if spec.get("force") is True:
        look.error(("spec", "force"), f"force {_WHY}", "force: false")
    patches = [string(patch, "patch") for _, patch in items(spec, "patches", ("spec",))]
    keeps = any(_sets(patch, "prune", "disabled") for patch in patches)
    if spec.get("prune") is True and not keeps:
        todo = f"prune: false, or a patch that sets {FLUX}/prune: disabled on Jobs"
        look.warning(("spec", "prune"), _PRUNES, todo)
    if keeps and not any(_sets(patch, "ssa", "IfNotPresent") for patch in patches):
        message = (
            "sends the Jobs that are there again: the API server refuses one that Kueue changed, and then no file of "
            "the folder is applied"
        )
        look.warning(("spec", "patches"), message, f"a patch that sets {FLUX}/ssa: IfNotPresent on Jobs and JobSets")
    if keeps or PurePosixPath(string(spec, "path")).name in folders:
        _interval(look, string(spec, "interval"))
    if spec.get("wait") is True:
        message = (
            "waits until every Job is complete, and calls the folder failed when one takes longer than its timeout"
        )
        look.warning(("spec", "wait"), message, "wait: false for a folder of jobs")


# a Go duration as Flux' CRDs allow it
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _interval(look: LintedObject, text: str) -> None:
    """Of a folder of jobs: the time after which Flux looks whether all that it applied is there. Argo CD watches."""
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(ms|s|m|h)", text))
    if seconds >= GONE_FOR_GOOD:
        bound = f"{GONE_FOR_GOOD / 60:.0f}"
        message = (
            f"makes a deleted Job again too late: after {bound} min without it `launcher status` and the reaper end "
            "its run as cancelled"
        )
        look.warning(("spec", "interval"), message, f"less than {bound}m, for example 10m")


def _sets(patch: str, name: str, value: str) -> bool:
    """Whether a patch of a Kustomization, in either form, sets Flux' annotation `name`."""
    at = re.search(rf"{re.escape(FLUX)}(?:/|~1){name}\b", patch)
    return at is not None and value in patch[at.end() :]


def kustomizations(documents: Sequence[YamlDocument], lines: set[LintLine]) -> None:
    """Checks kustomizations beside rendered jobs. They may list the jobs; if they change them, the hashes no longer
    match."""
    for document in documents:
        value = document.value if isinstance(document.value, dict) else {}
        for name in value:
            if name in _HARMLESS or (name == "patches" and not value[name]):
                continue
            file, line, _ = document.place((name,), key=True)
            if name in _CHANGES:
                message = f"{show(name)} changes objects after their hash was made, so the names no longer match"
                lines.add(LintLine(file, line, "error", message, "change the jobs, and render them again"))
            elif name not in ("configMapGenerator", "secretGenerator", "generatorOptions"):
                message = f"{show(name)} may change objects after their hash was made"
                lines.add(LintLine(file, line, "warning", message, "leave it out of a folder of rendered jobs"))
