"""Settings of Argo CD, Flux and kustomize for the folder: options that kill running jobs or change objects."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import Final

from launcher.backends.kubernetes.check.rules.forms import items, mapping, string, texts
from launcher.backends.kubernetes.lint.runs import CARRIERS, LintedObject, LintLine
from launcher.protocol.decide import GONE_FOR_GOOD
from launcher.spec.values.problems import show
from launcher.spec.values.source import Route, YamlDocument

ARGO: Final = "argocd.argoproj.io"
FLUX: Final = "kustomize.toolkit.fluxcd.io"
_KILLS: Final = ("Replace=true", "Force=true")
_WHY: Final = "deletes a running job to make it again"
_PRUNES: Final = "prunes without asking: a file that is removed takes its running job with it"
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
            if name in (
                "images",
                "namePrefix",
                "nameSuffix",
                "replicas",
                "patches",
                "patchesStrategicMerge",
                "patchesJson6902",
            ):
                message = f"{show(name)} changes objects after their hash was made, so the names no longer match"
                lines.add(LintLine(file, line, "error", message, "change the jobs, and render them again"))
            elif name not in ("configMapGenerator", "secretGenerator", "generatorOptions"):
                message = f"{show(name)} may change objects after their hash was made"
                lines.add(LintLine(file, line, "warning", message, "leave it out of a folder of rendered jobs"))
