"""Jobs for a queue that gives them to other clusters (Kueue's MultiKueue): Kueue copies the Job or JobSet there, and
nothing else. A run whose job is in a ConfigMap would wait for it in that cluster for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.admission import named
from launcher.backends.kubernetes.api import ApiRefused
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.creating import Creator
from launcher.backends.kubernetes.objects import CONFIG_MAP, Kind
from launcher.backends.kubernetes.queueing import queue_kinds
from launcher.backends.kubernetes.render.manifests import Object
from launcher.backends.kubernetes.watch.endings import at


def left_behind(place: Connection, creator: Creator, made: Iterable[Object]) -> Iterator[str]:
    """A line for each object whose ConfigMaps its queue would leave here. `made`: as they are sent. The open runs of a
    submit alone may render to others: a pipeline is sent as a whole, with the stages that have ended. Only queues of
    objects that have ConfigMaps are asked for; what this login may not read becomes a note."""
    checks: dict[tuple[str, str], str] = {}
    for held, way, namespace, queue in _apart(made, place.namespace):
        if (namespace, queue) not in checks:
            checks[namespace, queue] = _giving(place, creator, namespace, queue)
        if check := checks[namespace, queue]:
            why = f"queue {queue} gives jobs to other clusters (MultiKueue, admission check {check})"
            yield f"{held}; {why}, and Kueue does not copy ConfigMaps there: {way}"


def _apart(made: Iterable[Object], namespace: str) -> Iterator[tuple[str, str, str, str]]:
    """Each object with ConfigMaps that goes to a queue: what it is, what helps, its namespace and its queue."""
    for item in made:
        metadata = item.main["metadata"]
        maps = config_maps(item) if names.QUEUE in metadata["labels"] else []
        if not maps:
            continue
        held = f"{item.main['kind']} {item.name}: its jobs are in ConfigMap {', '.join(maps)}"
        way = "leave out `kubernetes.array`" if _array(item) else "make the job smaller, or take another queue"
        yield held, way, metadata.get("namespace") or namespace, metadata["labels"][names.QUEUE]


def config_maps(item: Object) -> list[str]:
    """The names of an object's ConfigMaps."""
    return [each["metadata"]["name"] for each in item.documents if each["kind"] == CONFIG_MAP.name]


def _array(item: Object) -> bool:
    """Whether some of its runs are an array's: then their jobs are in a ConfigMap, however small."""
    children = [each["template"]["spec"] for each in item.main["spec"].get("replicatedJobs", ())]
    return any("backoffLimitPerIndex" in spec for spec in children or [item.main["spec"]])


def _giving(place: Connection, creator: Creator, namespace: str, queue: str) -> str:
    """The admission check by which a queue gives its jobs to other clusters; "" without one."""
    kinds = queue_kinds(place)
    if kinds is None:
        return ""
    local, cluster = kinds
    checks = Kind("AdmissionCheck", cluster.group, "admissionchecks")
    try:
        there = place.api.get(local.path(namespace, queue))
        behind = str(at(there.json(), "spec", "clusterQueue") or "") if there is not None else ""
        whole = place.api.get(cluster.path("", behind)) if behind else None
        for name in named(whole.json()) if whole is not None else ():
            check = place.api.get(checks.path("", name))
            if check is not None and at(check.json(), "spec", "controllerName") == names.MULTIKUEUE:
                return name
    except ApiRefused as error:
        if error.status != 403:
            raise
        unknown = f"whether queue {queue} gives jobs to other clusters is not known ({error.message})"
        creator.note(f"{unknown}; there, jobs that are in ConfigMaps do not start")
    return ""
