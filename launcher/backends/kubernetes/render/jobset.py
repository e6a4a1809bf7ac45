"""Job and JobSet specs: which pods restart, how often, and what ends the run.

The runtime decides. It exits with 78 when nothing may be tried again; any other failure asks for a restart. The
counters of Kubernetes only stop pods in which no runtime ever ran: `TRIES` beyond the user's own retries, and more
failures than the runtime counts without a checkpoint in between, because a run may continue for weeks with checkpoints.

One rank (a Job; a one-rank stage of a pipeline; each run of an array). A failed pod is replaced in place. 78 fails
the Job (in an array, its index). A pod with the condition DisruptionTarget is replaced without being counted. The
rule for 78 comes first: it also holds for a runtime that was disrupted and then exited with 78.

Several ranks or roles (JobSet 0.10). When one rank ends, the attempt ends. So a child Job has no retries of its own and
fails at once, and the set restarts as a whole. That raises the number in the label jobset.sigs.k8s.io/restart-attempt:
the placement's `generation`. A higher number proves that pods of a lower one are dead only with `BlockingRecreate`: the
default strategy creates a Job again as soon as that Job is gone, while pods of other Jobs may still run. The set sees
only the condition of a failed Job, so its rules match the condition's message, which kube-controller-manager writes
(the same text in 1.33 to 1.35; pkg/controller/job/pod_failure_policy.go): 78 fails the set, a disruption restarts it
without counting, and any other failure, such as exit code 75, restarts it and counts.

In a pipeline a restart of the set also starts its finished stages again: JobSet recreates every child Job. Their pods
find result.json and exit with 0, but are first scheduled with all resources that they request. Therefore one-rank
stages restart in place, and only stages of several ranks restart the set. A stage that failed for good fails the set,
which also ends the stages that run beside it; their finished work is in the store, and `launcher retry` continues from
there. A cancelled stage exits with 0, and so do the stages that then have nothing to read: the others continue, and the
set ends as Completed. The result of each run is in the store. (SLIPWAY_STAGE tells a runtime that it is one of several
stages, and which of them it reads from.)

The set succeeds when every child Job has succeeded (JobSet's default). Helpers exit with 0 once their run's result is
there, so their logs are complete; if only the leading role counted, JobSet would kill them.

Kueue admits a JobSet as a whole: the quota must hold all stages of a pipeline at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.render.groups import Stage, fingerprint
from launcher.backends.kubernetes.render.pod import PodContext, template
from launcher.errors import BadInput
from launcher.reasons import EXIT_NEVER, MAX_INFRASTRUCTURE_ATTEMPTS
from launcher.spec.hashing import ID_DIGITS

TRIES: Final = 5 * MAX_INFRASTRUCTURE_ATTEMPTS
DEPENDENCIES: Final = 5  # most dependencies of one replicatedJob in JobSet 0.10
_SUFFIX: Final = "-abcde"  # the random end of a pod's name
_NEVER: Final = f"failed with exit code {EXIT_NEVER} matching FailJob rule at index 0$"
_DISRUPTED: Final = "has condition DisruptionTarget matching FailJob rule at index 1$"


def job_spec(stage: Stage, seat: PodContext, ttl: int | None = None) -> dict[str, Any]:
    """The spec of a Job, or of a child Job in a pipeline, for a stage whose runs have one rank each."""
    job, run = stage.job, stage.runs[0].id
    spec: dict[str, Any] = {}
    if ttl is not None:
        spec["ttlSecondsAfterFinished"] = ttl
    count = len(stage.runs)
    if stage.array or seat.kind == "set":
        spec |= {"completionMode": "Indexed", "completions": count, "parallelism": count}
    spec["backoffLimitPerIndex" if stage.array else "backoffLimit"] = job.limits.retries + TRIES
    spec["podReplacementPolicy"] = "Failed"
    spec["podFailurePolicy"] = _pod_failure_policy("FailIndex" if stage.array else "FailJob", "Ignore")
    spec["template"] = template(job, run, job.leading, seat)
    return spec


def _rank_spec(stage: Stage, role: str, seat: PodContext) -> dict[str, Any]:
    """The spec of a child Job for a run with several ranks."""
    replicas = stage.job.roles[role].replicas
    return {
        "completionMode": "Indexed",
        "completions": replicas,
        "parallelism": replicas,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": _pod_failure_policy("FailJob", "FailJob"),
        "template": template(stage.job, stage.runs[0].id, role, seat),
    }


def _pod_failure_policy(never: str, disrupted: str) -> dict[str, Any]:
    codes = {"containerName": names.CONTAINER, "operator": "In", "values": [EXIT_NEVER]}
    return {
        "rules": [
            {"action": never, "onExitCodes": codes},
            {"action": disrupted, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
    }


def jobset_spec(
    name: str, stages: Sequence[Stage], files: Callable[[Stage], tuple[str, ...]], former: bool = False
) -> dict[str, Any]:
    """`files`: the ConfigMaps that hold a stage's jobs. Raises BadInput for what a JobSet cannot express."""
    children = _children(name, stages)
    owner = {run.id: number for number, stage in enumerate(stages) for run in stage.runs}
    last = {number: child for (number, role), child in children.items() if role == stages[number].job.leading}
    pipeline = {names.PIPELINE: name} if len(stages) > 1 else {}
    jobs = []
    for (number, role), child in children.items():
        stage = stages[number]
        _check_name(name, child, stage, role)
        host = f"{name}-{child}-0-$(SLIPWAY_RANK).{name}"
        if stage.array:
            host = host.replace("SLIPWAY_RANK", "SLIPWAY_INDEX")
        seat = PodContext("set", host, files(stage), stage.array, pipeline, stage.after if pipeline else None, former)
        entry: dict[str, Any] = {"name": child, "replicas": 1}
        if needed := _needed(stages, number, owner):
            entry["dependsOn"] = [{"name": last[other], "status": "Complete"} for other in needed]
        # without our label, which only objects that we create directly carry
        labels = {names.ROLE: role} if stage.array else {names.RUN: stage.runs[0].id, names.ROLE: role}
        spec = job_spec(stage, seat) if stage.alone else _rank_spec(stage, role, seat)
        entry["template"] = {"metadata": {"labels": labels}, "spec": spec}
        jobs.append(entry)
    alone = [child for (number, _), child in children.items() if stages[number].alone]
    together = [stage for stage in stages if not stage.alone]
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": _failure_policy(alone, together),
        "replicatedJobs": jobs,
    }


def _failure_policy(alone: Sequence[str], together: Sequence[Stage]) -> dict[str, Any]:
    """`alone`: child Jobs that restart by themselves; `together`: runs that restart as a whole."""
    rules: list[dict[str, Any]] = [
        {
            "name": "over",
            "action": "FailJobSet",
            "onJobFailureReasons": ["PodFailurePolicy"],
            "onJobFailureMessagePatterns": [_NEVER],
        }
    ]
    if alone:
        targets = {"targetReplicatedJobs": list(alone)} if together else {}
        reasons = ["BackoffLimitExceeded", "FailedIndexes"]
        rules.append({"name": "tried_enough", "action": "FailJobSet", "onJobFailureReasons": reasons, **targets})
    if together:
        rules.append(
            {
                "name": "disruption",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [_DISRUPTED],
            }
        )
    most = max((stage.job.limits.retries + TRIES for stage in together), default=0)
    return {"maxRestarts": most, "restartStrategy": "BlockingRecreate", "rules": rules}


def _children(name: str, stages: Sequence[Stage]) -> dict[tuple[int, str], str]:
    """(stage, role) -> its child Job, in the order of writing: the leading role of a stage first. In a set of one run a
    child has its role's name. In a pipeline it has the name of the stage's job, with some digits of the run's hash
    where several have that name or the name would be too long."""
    roles = [list(dict.fromkeys(member.rpartition("-")[0] for member in stage.job.members())) for stage in stages]
    if len(stages) == 1:
        return {(0, role): role for role in roles[0]}
    names_of = [stage.job.name for stage in stages]
    for digits in range(4, ID_DIGITS + 1):
        titles = []
        for stage, own, of_stage in zip(stages, names_of, roles, strict=True):
            suffix = max(len(f"-{role}") for role in of_stage) if len(of_stage) > 1 else 0
            room = names.NAME_LENGTH - len(f"{name}--0-{_last(stage)}{_SUFFIX}") - suffix
            if len(own) > room or names_of.count(own) > 1 or digits > 4:
                own = f"{own[: max(1, room - digits - 1)].rstrip('-')}-{stage.id[-ID_DIGITS:][:digits]}"
            titles.append(own)
        spec = {
            (number, role): title if len(roles[number]) == 1 else f"{title}-{role}"
            for number, title in enumerate(titles)
            for role in roles[number]
        }
        if len(set(spec.values())) == len(spec):
            break
    return spec


def _last(stage: Stage) -> int:
    """The highest pod index of the stage."""
    return max(len(stage.runs), *(role.replicas for role in stage.job.roles.values())) - 1


def object_name(stages: Sequence[Stage]) -> str:
    """The run's id; for a pipeline, the first name among the stages that no other reads, with the hash over all
    runs."""
    if len(stages) == 1:
        return stages[0].id
    read = {run for stage in stages for run in stage.after}
    ends = [stage.job.name for stage in stages if not read.intersection(run.id for run in stage.runs)]
    return f"{min(ends)}-{fingerprint(run for stage in stages for run in stage.runs)[:ID_DIGITS]}"


def _needed(stages: Sequence[Stage], number: int, owner: Mapping[str, int]) -> list[int]:
    """The stages that a stage must wait for, without those that follow from others."""
    direct = {owner[run] for run in stages[number].after}
    through: set[int] = set()
    rest = list(direct)
    while rest:
        further = {owner[run] for run in stages[rest.pop()].after}
        rest += further - through
        through |= further
    needed = sorted(direct - through)
    if len(needed) > DEPENDENCIES:
        raise BadInput(
            f"{stages[number].job.name} reads the outputs of {len(needed)} runs at once, and a JobSet's dependsOn "
            f"takes {DEPENDENCIES}: `kubernetes: {{array: true}}` makes one stage of a matrix's runs"
        )
    return needed


def _check_name(name: str, child: str, stage: Stage, role: str) -> None:
    """JobSet's own rule: the longest pod name must be a DNS label that begins with a letter. Raises BadInput."""
    if not name[0].isalpha():
        raise BadInput(
            f"name: `{name}` becomes a JobSet (several ranks, roles or stages), and has to begin with a letter"
        )
    last = len(stage.runs) - 1 if stage.array else stage.job.roles[role].replicas - 1
    over = len(f"{name}-{child}-0-{last}{_SUFFIX}") - names.NAME_LENGTH
    if over > 0:
        raise BadInput(
            f"name: pods of {stage.job.name}'s role `{role}` would be called `{name}-{child}-0-{last}{_SUFFIX}`, "
            f"which is {over} characters too long ({names.NAME_LENGTH} at most): with this role a name may have "
            f"{max(0, len(name) - 13 - over)} characters"
        )
