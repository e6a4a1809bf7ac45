"""Job, CronJob, Deployment and similar kinds: which fields exclude each other, and the names of their pods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.forms import (
    LABEL,
    LABEL_1035,
    SUBDOMAIN,
    Say,
    items,
    least,
    mapping,
    number,
    selects,
    string,
    texts,
)
from launcher.spec.values.problems import near, show
from launcher.spec.values.source import Route

MAX_NAME: Final = 63  # of a pod's host name, and of the label that carries a Job's name
_CRON_NAME: Final = 52  # the Jobs of a CronJob add 11 characters
_OWN_LABELS: Final = tuple(
    f"{part}{name}" for part in ("", "batch.kubernetes.io/") for name in ("controller-uid", "job-name")
)
_BIG: Final = 100_000
_PODS: Final = ("template", "spec")


def job(say: Say, value: Mapping[str, Any]) -> None:
    """Checks the names that follow from a Job's own."""
    spec, name = mapping(value, "spec"), string(mapping(value, "metadata"), "name")
    _own_labels(say.into("spec"), spec, name)
    at = ("metadata", "name")
    if len(name) > MAX_NAME:
        say(at, f"{len(name)} characters, and the pods' label job-name carries it", f"at most {MAX_NAME}")
    elif string(spec, "completionMode") == "Indexed":
        host = f"{name}-{max((number(spec, 'completions') or 1) - 1, 0)}"
        if len(host) > MAX_NAME:
            message = f"its last pod would be called {host}, {len(host)} characters"
            say(at, message, f"at most {MAX_NAME}")
        elif SUBDOMAIN.pattern.fullmatch(name) and not LABEL.pattern.fullmatch(host):
            say(at, f"its pods would be called {show(host)}", LABEL.allowed)


def _own_labels(say: Say, spec: Mapping[str, Any], own: str) -> None:
    """Reports labels of a Job's pods that the cluster sets. `own`: the Job's name, where it is known."""
    for name, value in mapping(spec, "template", "metadata", "labels").items():
        same = name.endswith("job-name") and value == own
        if name in _OWN_LABELS and not same and spec.get("manualSelector") is not True:
            say(("template", "metadata", "labels", name), "is the cluster's own label", "leave it out", key=True)


def job_spec(say: Say, spec: Mapping[str, Any]) -> None:
    if number(spec, "activeDeadlineSeconds") == 0:
        say("activeDeadlineSeconds", "`0` is too small", "1 or more", policy=policies.NEVER_STARTS)
    indexed, completions = string(spec, "completionMode") == "Indexed", number(spec, "completions")
    if indexed and completions is None and "parallelism" in spec:  # where neither is written, both are 1
        say.missing("completions", ", which Indexed needs")
    if indexed and (number(spec, "parallelism") or 0) > _BIG:
        say("parallelism", "an Indexed Job that wide", f"at most {_BIG:,}")
    if "backoffLimitPerIndex" in spec and (completions or 0) > _BIG:
        say("completions", "an Indexed Job that large, with a limit for each index", f"at most {_BIG:,}")
    for field in ("backoffLimitPerIndex", "successPolicy"):
        if field in spec and not indexed:
            say(field, "is only for Indexed Jobs", "completionMode: Indexed")
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        say("maxFailedIndexes", "needs backoffLimitPerIndex")
    most = number(spec, "maxFailedIndexes")
    if most is not None and most > (completions or _BIG):
        say("maxFailedIndexes", "is more than there are indexes", f"at most {completions}")
    labels = mapping(spec, "template", "metadata", "labels")
    if spec.get("manualSelector") is not True and "selector" in spec:
        say("selector", "is made by the cluster, and cannot be changed", "leave it out", key=True)
    elif spec.get("manualSelector") is True and not (mapping(spec, "selector") and selects(spec["selector"], labels)):
        say("selector", "does not choose the template's labels")
    pods = mapping(spec, *_PODS)
    policy = string(pods, "restartPolicy")
    if policy not in ("Never", "OnFailure"):
        message = f"a Job cannot restart its pods {policy or 'Always, which is the default'}"
        where = (*_PODS, "restartPolicy") if "restartPolicy" in pods else _PODS
        say(where, message, "Never, OnFailure", key=True)
    if "podFailurePolicy" in spec:
        _failure_policy(say, spec, policy)


def _failure_policy(say: Say, spec: Mapping[str, Any], restart: str) -> None:
    if restart != "Never":
        say("podFailurePolicy", "needs restartPolicy Never", key=True)
    if spec.get("podReplacementPolicy", "Failed") != "Failed":
        say("podReplacementPolicy", "with podFailurePolicy a pod is replaced when it has failed", "Failed")
    pods = mapping(spec, *_PODS)
    known = [string(value, "name") for part in ("containers", "initContainers") for _, value in items(pods, part)]
    rules = list(say.each(spec, "podFailurePolicy.rules"))
    if len(rules) > 20:
        say(("podFailurePolicy", "rules"), f"{len(rules)} rules", "at most 20")
    for at, rule in rules:
        if string(rule, "action") == "FailIndex" and "backoffLimitPerIndex" not in spec:
            at("action", "FailIndex needs backoffLimitPerIndex", "FailJob, Ignore, Count")
        name = string(mapping(rule, "onExitCodes"), "containerName")
        if name and name not in known:
            message = f"there is no container `{name}`{near(name, known)}"
            at(("onExitCodes", "containerName"), message, ", ".join(known))


def failure_rule(say: Say, rule: Mapping[str, Any]) -> None:
    say.one_of(rule, ("onExitCodes", "onPodConditions"))
    if rule.get("onPodConditions") == []:
        say("onPodConditions", "has no condition", "one at least")
    for at, condition in say.each(rule, "onPodConditions"):
        if string(condition, "status") not in ("", "True", "False", "Unknown"):
            message = f"{show(condition['status'])} is not one of them"
            at("status", message, '"True", "False", "Unknown"')


def codes(say: Say, value: Mapping[str, Any]) -> None:
    values = value.get("values")
    if type(values) is not list or not all(type(code) is int for code in values):
        return
    if not 1 <= len(values) <= 255:
        say("values", f"has {len(values)} codes", "1 to 255")
    if values != sorted(set(values)):
        say("values", "are not in order, each once", ", ".join(map(str, sorted(set(values)))))
    if 0 in values and string(value, "operator") == "In":
        say("values", "0 is not a failure", "1 to 255")


def cron_job(say: Say, value: Mapping[str, Any]) -> None:
    name = string(mapping(value, "metadata"), "name")
    if len(name) > _CRON_NAME:
        message = f"has {len(name)} characters, and its Jobs add 11"
        say(("metadata", "name"), message, f"at most {_CRON_NAME}")


def cron_spec(say: Say, spec: Mapping[str, Any]) -> None:
    schedule = string(spec, "schedule")
    if "TZ=" in schedule:
        say("schedule", "names a time zone", "spec.timeZone")
    elif "schedule" in spec and not _is_cron(schedule):
        say("schedule", f"{show(schedule)} is not a schedule", "`minute hour day month weekday`, @hourly ...")
    _own_labels(say.into("jobTemplate", "spec"), mapping(spec, "jobTemplate", "spec"), "")


_MONTHS: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS: Final = "sun|mon|tue|wed|thu|fri|sat"
_CRON: Final = ((0, 59, r"\d+"), (0, 23, r"\d+"), (1, 31, r"\d+"), (1, 12, rf"\d+|{_MONTHS}"), (0, 6, rf"\d+|{_DAYS}"))


def _is_cron(schedule: str) -> bool:
    if schedule.startswith("@"):
        every = re.fullmatch(r"@every (\d+(\.\d+)?(ns|us|ms|s|m|h))+", schedule)
        return bool(every) or schedule[1:] in ("yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly")
    fields = schedule.split()
    return len(fields) == 5 and all(
        all(_in_range(part, *bounds) for part in field.split(",")) for field, bounds in zip(fields, _CRON, strict=True)
    )


def _in_range(part: str, low: int, high: int, word: str) -> bool:
    at = re.fullmatch(rf"(?:\*|\?|({word})(?:-({word}))?)(?:/(\d+))?", part.lower())
    if at is None:
        return False
    bounds = [int(bound) for bound in at.groups()[:2] if bound is not None and bound.isdigit()]
    return all(low <= bound <= high for bound in bounds) and bounds == sorted(bounds) and at[3] != "0"


def service(say: Say, spec: Mapping[str, Any]) -> None:
    """Checks Deployment, StatefulSet, DaemonSet: pods that run for ever, selected by labels."""
    chosen, pods = mapping(spec, "selector"), mapping(spec, *_PODS)
    if "selector" in spec and not (chosen.get("matchLabels") or chosen.get("matchExpressions")):
        say("selector", "chooses nothing", "labels of the template")
    elif not selects(chosen, mapping(spec, "template", "metadata", "labels")):
        say("selector", "does not choose the template's labels", "labels of the template")
    if string(pods, "restartPolicy") not in ("", "Always"):
        message = f"{show(pods['restartPolicy'])} is for Jobs"
        say((*_PODS, "restartPolicy"), message, "Always", judged=False)
    if "activeDeadlineSeconds" in pods:
        say((*_PODS, "activeDeadlineSeconds"), "is for Jobs", "leave it out", judged=False)


_KEPT: Final = (("spec", "template", "spec"), ("spec", "volumeClaimTemplates"))
DEVICES: Final = frozenset(("resourceClaims", "claims"))


def unjudged(kind: str, route: Route, version: tuple[int, int]) -> str:
    """The house policy that an error at `route` of a built-in kind breaks, where the server takes the object whatever
    it says there as long as its types are right; empty elsewhere. Before 1.34 it does not look at a StatefulSet's pods
    and claims, so its controller fails later, and removes a pod's claims of devices."""
    if version >= (1, 34):
        return ""
    if kind == "StatefulSet" and (route == ("spec", "template") or any(route[: len(part)] == part for part in _KEPT)):
        return policies.NEVER_STARTS
    return policies.NO_EFFECT if DEVICES.intersection(route) else ""


_REASONS: Final = (
    *("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"),
)
_RULE: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
SUFFIX: Final = "-abcde"  # as long as the random end that the cluster adds to a pod's name


def job_set(say: Say, value: Mapping[str, Any]) -> None:
    spec, name = mapping(value, "spec"), string(mapping(value, "metadata"), "name")
    listed = list(say.each(value, "spec.replicatedJobs"))
    at_spec = say.into("spec")
    if not listed:
        at_spec("replicatedJobs" if "replicatedJobs" in spec else "", "has no replicated jobs", "one at least")
    jobs = {string(job, "name"): job for _, job in listed}
    for index, (at, job) in enumerate(listed):
        _depends(at, job, list(jobs)[:index], jobs)
        _names(at, job, name, say)
        if "spec" not in mapping(job, "template"):
            at("template", "`spec` is missing", key=True)
        before = len(say.found)
        _own_labels(at.into("template", "spec"), mapping(job, "template", "spec"), "")
        say.found[before:] = [item._replace(policy=policies.NEVER_STARTS) for item in say.found[before:]]
    _targets(at_spec.into("successPolicy"), mapping(spec, "successPolicy"), jobs)
    _failure(at_spec.into("failurePolicy"), mapping(spec, "failurePolicy"), jobs)
    _coordinator(at_spec.into("coordinator"), mapping(spec, "coordinator"), jobs)
    if subdomain := string(mapping(spec, "network"), "subdomain"):
        at_spec.form(("network", "subdomain"), subdomain, LABEL_1035)
    ordered = string(mapping(spec, "startupPolicy"), "startupPolicyOrder") == "InOrder"
    if ordered and any("dependsOn" in job for job in jobs.values()):
        at_spec("startupPolicy", "InOrder and `dependsOn` exclude each other", "one of them")


def _depends(say: Say, job: Mapping[str, Any], before: Sequence[str], known: Mapping[str, Any]) -> None:
    if not before and "dependsOn" in job:
        say("dependsOn", "the first replicated job can depend on none", "leave it out", key=True)
        return
    own = string(job, "name")
    for at, item in say.each(job, "dependsOn"):
        name = string(item, "name")
        if name not in known:
            at("name", _unknown(name, known), ", ".join(before))
        elif name not in before:
            other = "itself" if name == own else f"`{name}`, which comes after it"
            policy = policies.NEVER_STARTS if name == own else ""
            at("name", f"`{own}` cannot depend on {other}", ", ".join(before), policy=policy)


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    return f"there is no replicated job `{name}`{near(name, known)}"


def _names(say: Say, replicated: Mapping[str, Any], name: str, whole: Say) -> None:
    """`<set>-<job>-<index>` is a Job's name, `<that>-<pod>-abcde` a pod's: both are labels of RFC 1035, so they begin
    with a letter. `name`: of the set; `whole`: says something of it."""
    own, replicas = string(replicated, "name"), number(replicated, "replicas")
    least(0, policies.NEVER_STARTS)(say.into("replicas"), replicas)
    spec = mapping(replicated, "template", "spec")
    # the webhook checks only written completion modes, but pods get these names with the default mode too
    indexed = string(spec, "completionMode") in ("", "Indexed")
    completions = number(spec, "completions") or number(spec, "parallelism") or 1
    job = f"{name}-{own}-{max((1 if replicas is None else replicas) - 1, 0)}"
    longest = f"{job}-{completions - 1}{SUFFIX}" if indexed else f"{job}{SUFFIX}"
    if not own or not name:
        return
    if len(longest) > MAX_NAME:
        message = f"its last pod would be called {longest}, {len(longest)} characters"
        say("name", message, f"at most {MAX_NAME}")
    elif not LABEL_1035.pattern.fullmatch(job):
        message = f"its Job would be called {show(job)}"
        if LABEL_1035.pattern.fullmatch(name):
            say("name", message, LABEL_1035.allowed)
        else:
            whole(("metadata", "name"), message, LABEL_1035.allowed)
    say.form("groupName", replicated.get("groupName"), LABEL_1035)


def _targets(say: Say, value: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for at, name in texts(value, "targetReplicatedJobs"):
        if name not in known:
            say(at, _unknown(name, known), ", ".join(known))


def _failure(say: Say, policy: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    least(0, policies.NO_EFFECT)(say.into("maxRestarts"), policy.get("maxRestarts"))
    names: set[str] = set()
    for at, rule in say.each(policy, "rules"):
        name = string(rule, "name")
        if name and (len(name) > 128 or not _RULE.fullmatch(name)):
            at("name", f"{show(name)} is not a rule's name", "a letter first, then letters, digits, _ , :")
        at.once("name", name, names, f"the rule `{name}` is listed twice", "each name once")
        _targets(at, rule, known)
        for where, reason in texts(rule, "onJobFailureReasons"):
            if reason not in _REASONS:
                message = f"{show(reason)} is not a reason of a failed Job{near(reason, _REASONS)}"
                at(where, message, ", ".join(_REASONS))
        for where, pattern in texts(rule, "onJobFailureMessagePatterns"):
            try:
                re.compile(pattern)
            except re.error as error:
                message = f"{show(pattern)} is not a regular expression: {error}"
                at(where, message, policy=policies.NO_EFFECT)


def _coordinator(say: Say, value: Mapping[str, Any], jobs: Mapping[str, Mapping[str, Any]]) -> None:
    if not value:
        return
    name = string(value, "replicatedJob")
    if name not in jobs:
        say("replicatedJob", _unknown(name, jobs), ", ".join(jobs))
        return
    inner = mapping(jobs[name], "template", "spec")
    replicas, completions = number(jobs[name], "replicas"), number(inner, "completions")
    if completions is None or string(inner, "completionMode") not in ("", "Indexed"):
        say("", f"`{name}` must be Indexed and have `completions`")
    for field, bound in (("jobIndex", 1 if replicas is None else replicas), ("podIndex", completions or 1)):
        if not 0 <= (number(value, field) or 0) < bound:
            say(field, f"`{value[field]}` is out of range", f"0 to {bound - 1}")
