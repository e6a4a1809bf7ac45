"""Why a pod ended, by its own status; what is said of a run; and helpers for reading objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from launcher.backends.kubernetes import names
from launcher.reasons import EXIT_AGAIN, EXIT_NEVER, EXIT_PREEMPTED, EXIT_USER, Reason

Object = Mapping[str, Any]

LENGTH: Final = 400  # characters of evidence

# reason of a pod's condition DisruptionTarget -> our reason
_DISRUPTED: Final = {
    "PreemptionByScheduler": Reason.PREEMPTED,
    "PreemptionByKubeScheduler": Reason.PREEMPTED,
    "EvictionByEvictionAPI": Reason.EVICTED,
    "TerminationByKubelet": Reason.EVICTED,
    "DeletionByTaintManager": Reason.LOST,
    "DeletionByPodGC": Reason.LOST,
}
_EXITS: Final = {
    EXIT_USER: Reason.USER_ERROR,
    EXIT_AGAIN: Reason.INFRASTRUCTURE,
    EXIT_NEVER: Reason.CONFIG_ERROR,
    EXIT_PREEMPTED: Reason.PREEMPTED,
}
# the container never ran its own code: the image lacks the runtime, or its interpreter
_NEVER_RAN: Final = frozenset({"StartError", "ContainerCannotRun"})


class Judgement(NamedTuple):
    """`active`: something runs or may still start. `hopeless`: nothing starts until somebody changes something."""

    active: bool
    phase: str
    reason: str = ""
    evidence: str = ""
    hopeless: bool = False


class Why(NamedTuple):
    reason: Reason
    evidence: str
    hopeless: bool = False


def why_pod_ended(pod: Object) -> Why | None:
    """Why a pod failed; None for one that did not."""
    name = at(pod, "metadata", "name") or "?"
    if at(pod, "status", "phase") != "Failed":
        return None
    status_reason, message = at(pod, "status", "reason") or "", at(pod, "status", "message") or ""
    if status_reason == "DeadlineExceeded":
        return Why(Reason.DEADLINE, cut(f"pod {name}: {status_reason}: {message}"))
    main: Object = next(
        (each for each in at(pod, "status", "containerStatuses") or () if each.get("name") == names.CONTAINER), {}
    )
    ended = at(main, "state", "terminated") or {}
    code = ended.get("exitCode")
    if ended.get("reason") == "OOMKilled":
        containers = at(pod, "spec", "containers") or ()
        ours = next((each for each in containers if each.get("name") == names.CONTAINER), None)  # not a sidecar
        limit = at(ours, "resources", "limits", "memory")
        above = f" at its limit of {limit}" if limit else ""
        return Why(Reason.OUT_OF_MEMORY, f"pod {name}: OOMKilled, exit code {code}{above}")
    disrupted = disruption(pod)
    if disrupted is not None:
        why = _DISRUPTED.get(disrupted.get("reason") or "", Reason.EVICTED)
        return Why(why, cut(f"pod {name}: {disrupted.get('reason')}: {disrupted.get('message') or ''}"))
    if status_reason == "Evicted":
        return Why(Reason.EVICTED, cut(f"pod {name}: {status_reason}: {message}"))
    if status_reason in ("NodeLost", "NodeAffinity", "NodeShutdown", "Terminated", "Shutdown"):
        return Why(Reason.LOST, cut(f"pod {name}: {status_reason}: {message}"))
    if status_reason == "Preempting":  # by the kubelet, for a pod that the node itself needs
        return Why(Reason.PREEMPTED, cut(f"pod {name}: {status_reason}: {message}"))
    # the node had less free than the scheduler assumed: OutOfcpu, OutOfnvidia.com/gpu
    if status_reason.startswith("OutOf") or status_reason in ("UnexpectedAdmissionError", "TopologyAffinityError"):
        return Why(Reason.CAPACITY, cut(f"pod {name}: {status_reason}: {message}"))
    if ended.get("reason") in _NEVER_RAN:
        return Why(Reason.CONFIG_ERROR, cut(f"pod {name}: {ended['reason']}: {ended.get('message') or ''}"))
    if code is not None:
        why = _EXITS.get(int(code), Reason.INFRASTRUCTURE)
        return Why(why, cut(f"pod {name}: exit code {code}: {ended.get('message') or ended.get('reason') or ''}"))
    return Why(Reason.INFRASTRUCTURE, cut(f"pod {name}: {status_reason or 'Failed'}: {message}"))


def disruption(pod: Object) -> Object | None:
    for condition in at(pod, "status", "conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            disrupted: Object = condition
            return disrupted
    return None


# helpers


def moment(text: Any) -> float | None:
    """RFC 3339 -> seconds since the epoch."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def at(value: Any, *route: str) -> Any:
    """A nested value; None where any part of the path is missing."""
    for key in route:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def cut(text: str) -> str:
    text = " ".join(text.split()).rstrip(": ")
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + "…"


def newest(events: Iterable[Object]) -> list[Object]:
    return sorted(events, key=event_time, reverse=True)


def event_time(event: Object) -> float:
    for key in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if (seconds := moment(event.get(key))) is not None:
            return seconds
    return moment(at(event, "metadata", "creationTimestamp")) or 0.0
