"""Job, CronJob, Deployment and similar kinds: which fields exclude each other, and the names of their pods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.rules.forms import (
    LABEL,
    LABEL_1035,
    SUBDOMAIN,
    Say,
    items,
    least,
    mapping,
    number,
    qualified,
    selector,
    selects,
    string,
    texts,
)
from launcher.backends.kubernetes.check.rules.pods import pod, template
from launcher.spec.values.problems import near, show
from launcher.spec.values.source import Route

MAX_NAME: Final = 63  # of a pod's host name, and of the label that carries a Job's name
CRON_NAME: Final = 52  # the Jobs of a CronJob add 11 characters
_CONTROLLED: Final = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
_BIG: Final = 100_000


def a_pod(say: Say, value: Mapping[str, Any]) -> None:
    pod(say, mapping(value, "spec"), ("spec",))


def job(say: Say, value: Mapping[str, Any]) -> None:
    """Checks a Job: its spec, and the names that follow from its own."""
    spec, name = mapping(value, "spec"), string(mapping(value, "metadata"), "name")
    job_spec(say, spec, ("spec",), name=name)
    if len(name) > MAX_NAME:
        say(
            ("metadata", "name"),
            f"{len(name)} characters, and the pods' label job-name carries it",
            f"at most {MAX_NAME}",
        )
    elif string(spec, "completionMode") == "Indexed":
        host = f"{name}-{max((number(spec, 'completions') or 1) - 1, 0)}"
        if len(host) > MAX_NAME:
            say(
                ("metadata", "name"),
                f"its last pod would be called {host}, {len(host)} characters",
                f"at most {MAX_NAME}",
            )
        elif SUBDOMAIN.pattern.fullmatch(name) and not LABEL.pattern.fullmatch(host):
            say(("metadata", "name"), f"its pods would be called {show(host)}", LABEL.allowed)


def job_spec(say: Say, spec: Mapping[str, Any], route: Route, *, restart: str = "", name: str = "") -> None:
    """Checks a Job's spec. `restart`: the pods' restart policy where they set none; `name`: the Job's, where it is
    known."""
    bounds = dict.fromkeys(
        ("parallelism", "completions", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes"), 0
    )
    least(say, spec, route, {**bounds, "activeDeadlineSeconds": 0, "ttlSecondsAfterFinished": 0})
    if number(spec, "activeDeadlineSeconds") == 0:
        say((*route, "activeDeadlineSeconds"), "`0` is too small", "1 or more", policy=policies.NEVER_STARTS)
    indexed, completions = string(spec, "completionMode") == "Indexed", number(spec, "completions")
    if indexed and completions is None and "parallelism" in spec:  # where neither is written, both are 1
        say.missing(route, "completions", ", which Indexed needs")
    if indexed and (number(spec, "parallelism") or 0) > _BIG:
        say((*route, "parallelism"), "an Indexed Job that wide", f"at most {_BIG:,}")
    if "backoffLimitPerIndex" in spec and (completions or 0) > _BIG:
        say((*route, "completions"), "an Indexed Job that large, with a limit for each index", f"at most {_BIG:,}")
    for field in ("backoffLimitPerIndex", "successPolicy"):
        if field in spec and not indexed:
            say((*route, field), "is only for Indexed Jobs", "completionMode: Indexed")
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        say((*route, "maxFailedIndexes"), "needs backoffLimitPerIndex")
    if "maxFailedIndexes" in spec and (number(spec, "maxFailedIndexes") or 0) > (completions or _BIG):
        say((*route, "maxFailedIndexes"), "is more than there are indexes", f"at most {completions}")
    _selector(say, spec, route, name)
    pods = mapping(spec, "template", "spec")
    policy = string(pods, "restartPolicy") or restart
    if policy not in ("Never", "OnFailure"):
        where = (
            (*route, "template", "spec", "restartPolicy") if "restartPolicy" in pods else (*route, "template", "spec")
        )
        say(
            where,
            f"a Job cannot restart its pods {policy or 'Always, which is the default'}",
            "Never, OnFailure",
            key=True,
        )
    if "podFailurePolicy" in spec:
        if policy != "Never":
            say((*route, "podFailurePolicy"), "needs restartPolicy Never", key=True)
        if spec.get("podReplacementPolicy", "Failed") != "Failed":
            say(
                (*route, "podReplacementPolicy"), "with podFailurePolicy a pod is replaced when it has failed", "Failed"
            )
        _failure_policy(say, spec, mapping(spec, "podFailurePolicy"), (*route, "podFailurePolicy"))
    template(say, mapping(spec, "template"), (*route, "template"))


def _selector(say: Say, spec: Mapping[str, Any], route: Route, own: str) -> None:
    if spec.get("manualSelector") is True:
        given = mapping(spec, "template", "metadata", "labels")
        if not mapping(spec, "selector") or not selects(spec["selector"], given):
            say((*route, "selector"), "does not choose the template's labels")
        return
    if "selector" in spec:
        say((*route, "selector"), "is made by the cluster, and cannot be changed", "leave it out", key=True)
    for name, value in mapping(spec, "template", "metadata", "labels").items():
        if name in _CONTROLLED and not (name.endswith("job-name") and value == own):
            where = (*route, "template", "metadata", "labels", name)
            say(where, "is the cluster's own label", "leave it out", key=True)


def _failure_policy(say: Say, spec: Mapping[str, Any], policy: Mapping[str, Any], route: Route) -> None:
    pods = mapping(spec, "template", "spec")
    known = [
        string(container, "name") for part in ("containers", "initContainers") for _, container in items(pods, part, ())
    ]
    if len(listed := list(items(policy, "rules", route))) > 20:
        say((*route, "rules"), f"{len(listed)} rules", "at most 20")
    for at, rule in listed:
        kind = say.one_of(rule, at, ("onExitCodes", "onPodConditions"))
        if rule.get("onPodConditions") == []:
            say((*at, "onPodConditions"), "has no condition", "one at least")
        if string(rule, "action") == "FailIndex" and "backoffLimitPerIndex" not in spec:
            say((*at, "action"), "FailIndex needs backoffLimitPerIndex", "FailJob, Ignore, Count")
        codes, where = mapping(rule, "onExitCodes"), (*at, "onExitCodes")
        name = string(codes, "containerName")
        if name and name not in known:
            say((*where, "containerName"), f"there is no container `{name}`{near(name, known)}", ", ".join(known))
        if kind == "onExitCodes":
            _codes(say, codes, where)
        for there, condition in items(rule, "onPodConditions", at):
            qualified(say, string(condition, "type"), (*there, "type"))
            if string(condition, "status") not in ("", "True", "False", "Unknown"):
                message = f"{show(condition['status'])} is not one of them"
                say((*there, "status"), message, '"True", "False", "Unknown"')


def _codes(say: Say, codes: Mapping[str, Any], route: Route) -> None:
    values = codes.get("values")
    if type(values) is not list or not all(type(code) is int for code in values):
        return
    if not 1 <= len(values) <= 255:
        say((*route, "values"), f"has {len(values)} codes", "1 to 255")
    if values != sorted(set(values)):
        say((*route, "values"), "are not in order, each once", ", ".join(map(str, sorted(set(values)))))
    if 0 in values and string(codes, "operator") == "In":
        say((*route, "values"), "0 is not a failure", "1 to 255")


def cron_job(say: Say, value: Mapping[str, Any]) -> None:
    spec, name = mapping(value, "spec"), string(mapping(value, "metadata"), "name")
    if len(name) > CRON_NAME:
        say(("metadata", "name"), f"has {len(name)} characters, and its Jobs add 11", f"at most {CRON_NAME}")
    schedule = string(spec, "schedule")
    if "TZ=" in schedule:
        say(("spec", "schedule"), "names a time zone", "spec.timeZone")
    elif "schedule" in spec and not _is_cron(schedule):
        say(("spec", "schedule"), f"{show(schedule)} is not a schedule", "`minute hour day month weekday`, @hourly ...")
    least(say, spec, ("spec",), dict.fromkeys(("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), 0))
    job_spec(say, mapping(spec, "jobTemplate", "spec"), ("spec", "jobTemplate", "spec"))


_MONTHS: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS: Final = "sun|mon|tue|wed|thu|fri|sat"
_CRON: Final = ((0, 59, ""), (0, 23, ""), (1, 31, ""), (1, 12, _MONTHS), (0, 6, _DAYS))


def _is_cron(schedule: str) -> bool:
    if schedule.startswith("@"):
        every = re.fullmatch(r"@every (\d+(\.\d+)?(ns|us|ms|s|m|h))+", schedule)
        return bool(every) or schedule[1:] in ("yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly")
    fields = schedule.split()
    return len(fields) == 5 and all(
        all(_in_range(part, *bounds) for part in field.split(",")) for field, bounds in zip(fields, _CRON, strict=True)
    )


def _in_range(part: str, low: int, high: int, words: str) -> bool:
    at = re.fullmatch(
        rf"(?:\*|\?|(\d+{'|' + words if words else ''})(?:-(\d+{'|' + words if words else ''}))?)(?:/(\d+))?",
        part.lower(),
    )
    if at is None:
        return False
    bounds = [int(bound) for bound in at.groups()[:2] if bound is not None and bound.isdigit()]
    return all(low <= bound <= high for bound in bounds) and bounds == sorted(bounds) and at[3] != "0"


def deployment(say: Say, value: Mapping[str, Any]) -> None:
    """Checks Deployment, StatefulSet, DaemonSet: pods that run for ever, selected by labels."""
    spec = mapping(value, "spec")
    least(say, spec, ("spec",), {"replicas": 0, "minReadySeconds": 0, "revisionHistoryLimit": 0})
    chosen = mapping(spec, "selector")
    selector(say, chosen, ("spec", "selector"))
    if "selector" in spec and not (chosen.get("matchLabels") or chosen.get("matchExpressions")):
        say(("spec", "selector"), "chooses nothing", "labels of the template")
    elif not selects(chosen, mapping(spec, "template", "metadata", "labels")):
        say(("spec", "selector"), "does not choose the template's labels", "labels of the template")
    pods, where = mapping(spec, "template", "spec"), ("spec", "template", "spec")
    if string(pods, "restartPolicy") not in ("", "Always"):
        say((*where, "restartPolicy"), f"{show(pods['restartPolicy'])} is for Jobs", "Always")
    if "activeDeadlineSeconds" in pods:
        say((*where, "activeDeadlineSeconds"), "is for Jobs", "leave it out")
    claims = [string(mapping(claim, "metadata"), "name") for _, claim in items(spec, "volumeClaimTemplates")]
    policy = unjudged(str(value.get("kind")), where, say.version)
    template(say, mapping(spec, "template"), ("spec", "template"), claims, policy)


_KEPT: Final = (("spec", "template", "spec"), ("spec", "volumeClaimTemplates"))
DEVICES: Final = frozenset(("resourceClaims", "claims"))


def unjudged(kind: str, route: Route, version: tuple[int, int]) -> str:
    """The house policy that an error at `route` of a built-in kind breaks, where the server takes the object whatever
    it says there as long as its types are right; empty elsewhere. Before 1.34 it does not look at a StatefulSet's pods
    and claims, so its controller fails later, and removes a pod's claims of devices."""
    if version >= (1, 34):
        return ""
    if kind == "StatefulSet" and any(route[: len(part)] == part for part in _KEPT):
        return policies.NEVER_STARTS
    return policies.NO_EFFECT if DEVICES.intersection(route) else ""


_REASONS: Final = (
    *("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"),
)
_RULE: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
SUFFIX: Final = "-abcde"  # as long as the random end that the cluster adds to a pod's name


def job_set(say: Say, value: Mapping[str, Any]) -> None:
    spec, name = mapping(value, "spec"), string(mapping(value, "metadata"), "name")
    names: list[str] = []
    listed = list(items(spec, "replicatedJobs", ("spec",)))
    if not listed:
        say(
            ("spec", "replicatedJobs") if "replicatedJobs" in spec else ("spec",),
            "has no replicated jobs",
            "one at least",
        )
    known = [string(job, "name") for _, job in listed]
    for index, (at, job) in enumerate(listed):
        _depends(say, job, at, index, names, known)
        names.append(string(job, "name"))
        _names(say, name, job, at)
        if "spec" not in mapping(job, "template"):
            say((*at, "template"), "`spec` is missing", key=True)
        before = len(say.found)
        job_spec(say, mapping(job, "template", "spec"), (*at, "template", "spec"), restart="OnFailure")
        # the webhook takes the JobSet, and the server refuses the Jobs that are made of it
        say.found[before:] = [
            item if item.policy else item._replace(policy=policies.NEVER_STARTS) for item in say.found[before:]
        ]
    success = mapping(spec, "successPolicy")
    _targets(say, success, ("spec", "successPolicy"), known)
    _failure(say, mapping(spec, "failurePolicy"), ("spec", "failurePolicy"), known)
    _coordinator(say, spec, dict(zip(known, (job for _, job in listed), strict=True)))
    if string(mapping(spec, "network"), "subdomain"):
        say.form(("spec", "network", "subdomain"), spec["network"]["subdomain"], LABEL_1035)
    if string(mapping(spec, "startupPolicy"), "startupPolicyOrder") == "InOrder" and any(
        "dependsOn" in job for _, job in listed
    ):
        say(("spec", "startupPolicy"), "InOrder and `dependsOn` exclude each other", "one of them")


def _depends(
    say: Say, job: Mapping[str, Any], route: Route, index: int, before: Sequence[str], known: Sequence[str]
) -> None:
    if index == 0 and "dependsOn" in job:
        say((*route, "dependsOn"), "the first replicated job can depend on none", "leave it out", key=True)
        return
    for at, item in items(job, "dependsOn", route):
        name = string(item, "name")
        if name not in known:
            say((*at, "name"), f"there is no replicated job `{name}`{near(name, known)}", ", ".join(before))
        elif name not in before:
            other = "itself" if name == string(job, "name") else f"`{name}`, which comes after it"
            message = f"`{job.get('name')}` cannot depend on {other}"
            policy = policies.NEVER_STARTS if name == string(job, "name") else ""
            say((*at, "name"), message, ", ".join(before), policy=policy)


def _names(say: Say, name: str, replicated: Mapping[str, Any], route: Route) -> None:
    """`<set>-<job>-<index>` is a Job's name, `<that>-<pod>-abcde` a pod's: both are labels of RFC 1035, so they begin
    with a letter."""
    own, replicas = string(replicated, "name"), number(replicated, "replicas")
    least(say, replicated, route, {"replicas": 0}, policies.NEVER_STARTS)
    last = max((1 if replicas is None else replicas) - 1, 0)
    spec = mapping(replicated, "template", "spec")
    # the webhook checks only written completion modes, but pods get these names with the default mode too
    indexed = string(spec, "completionMode") in ("", "Indexed")
    completions = number(spec, "completions") or number(spec, "parallelism") or 1
    job = f"{name}-{own}-{last}"
    longest = f"{job}-{completions - 1}{SUFFIX}" if indexed else f"{job}{SUFFIX}"
    if not own or not name:
        return
    if len(longest) > MAX_NAME:
        at = (*route, "name")
        say(at, f"its last pod would be called {longest}, {len(longest)} characters", f"at most {MAX_NAME}")
    elif not LABEL_1035.pattern.fullmatch(job):
        wrong = ("metadata", "name") if not LABEL_1035.pattern.fullmatch(name) else (*route, "name")
        say(wrong, f"its Job would be called {show(job)}", LABEL_1035.allowed)
    if "groupName" in replicated:
        say.form((*route, "groupName"), replicated["groupName"], LABEL_1035)


def _targets(say: Say, value: Mapping[str, Any], route: Route, known: Sequence[str]) -> None:
    for at, name in texts(value, "targetReplicatedJobs", route):
        if name not in known:
            say(at, f"there is no replicated job `{name}`{near(name, known)}", ", ".join(known))


def _failure(say: Say, policy: Mapping[str, Any], route: Route, known: Sequence[str]) -> None:
    least(say, policy, route, {"maxRestarts": 0}, policies.NO_EFFECT)
    names: set[str] = set()
    for at, rule in items(policy, "rules", route):
        name = string(rule, "name")
        if name and (len(name) > 128 or not _RULE.fullmatch(name)):
            say((*at, "name"), f"{show(name)} is not a rule's name", "a letter first, then letters, digits, _ , :")
        if name in names:
            say((*at, "name"), f"the rule `{name}` is listed twice", "each name once")
        names.add(name)
        _targets(say, rule, at, known)
        for where, reason in texts(rule, "onJobFailureReasons", at):
            if reason not in _REASONS:
                say(
                    where,
                    f"{show(reason)} is not a reason of a failed Job{near(reason, _REASONS)}",
                    ", ".join(_REASONS),
                )
        for where, pattern in texts(rule, "onJobFailureMessagePatterns", at):
            try:
                re.compile(pattern)
            except re.error as error:
                message = f"{show(pattern)} is not a regular expression: {error}"
                say(where, message, policy=policies.NO_EFFECT)


def _coordinator(say: Say, spec: Mapping[str, Any], jobs: Mapping[str, Mapping[str, Any]]) -> None:
    value, route = mapping(spec, "coordinator"), ("spec", "coordinator")
    if not value:
        return
    name = string(value, "replicatedJob")
    if name not in jobs:
        say((*route, "replicatedJob"), f"there is no replicated job `{name}`{near(name, jobs)}", ", ".join(jobs))
        return
    inner = mapping(jobs[name], "template", "spec")
    replicas, completions = number(jobs[name], "replicas"), number(inner, "completions")
    if completions is None or string(inner, "completionMode") not in ("", "Indexed"):
        say(route, f"`{name}` must be Indexed and have `completions`")
    for field, bound in (("jobIndex", 1 if replicas is None else replicas), ("podIndex", completions or 1)):
        if not 0 <= (number(value, field) or 0) < bound:
            say((*route, field), f"`{value[field]}` is out of range", f"0 to {bound - 1}")
