"""JobSet: what its admission webhook (0.10.1) refuses, and what it accepts although it can never run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.rules.forms import LABEL_1035, Say, items, least, mapping, number, string, texts
from launcher.backends.kubernetes.check.rules.workloads import MAX_NAME, job_spec
from launcher.spec.values.problems import near, show
from launcher.spec.values.source import Route

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
