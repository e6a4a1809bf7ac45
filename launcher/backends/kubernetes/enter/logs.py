"""Live output of a run's pods: a member's pods one after another, from the first byte, until the run ends.

The kubelet keeps a container's output while its pod exists; output of older pods, or of lost nodes, is in the store.
Connections end (the API server ends them, and log rotation cuts them): a stream is opened again and skips the bytes
that were already returned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from launcher.backends.base import Handle
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import ApiRefused, hang_up
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.objects import POD
from launcher.backends.kubernetes.watch.snapshot import Object, Owner, Snapshot, labels
from launcher.errors import NotFound, SlipwayError, Unreachable

POLL: Final = 0.5
SILENCE: Final = 3600.0  # seconds without data after which a stream is opened again
HOPELESS: Final = 20.0  # seconds to wait for a pod that cannot start
CHUNK: Final = 1 << 16


def pods_of(sight: Snapshot, owner: Owner, run: str, role: str, rank: int) -> list[Object]:
    """A member's pods, oldest first."""
    pods = []
    for pod in sight.members(owner, run):
        pod_labels = labels(pod)
        index = pod_labels.get(names.COMPLETION_INDEX, "0") if names.ARRAY not in owner.metadata.labels else "0"
        if pod_labels.get(names.ROLE) == role and index == str(rank):
            pods.append(pod)
    return sorted(pods, key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]))


def logs(cluster: Connection, handle: Handle, role: str, rank: int, previous: bool) -> Iterator[bytes]:
    """A member's output. Raises NotFound when there is none to read, and when the member cannot start."""
    if previous:
        yield from _previous(cluster, handle, role, rank)
        return
    done: set[str] = set()
    any_output = False
    last_output = time.monotonic()
    while True:
        observation, snapshot, owner = cluster.look_closely(handle.run)
        pods = pods_of(snapshot, owner, handle.run, role, rank) if owner is not None else []
        fresh = [pod for pod in pods if pod["metadata"]["uid"] not in done and begun(pod)]
        if not done:
            fresh = fresh[-1:]  # following starts with the newest pod; --previous shows earlier ones
        for pod in fresh:
            for chunk in _whole(cluster, pod):
                any_output = True
                yield chunk
            done.add(pod["metadata"]["uid"])
        if observation is None or not observation.active:
            if not any_output:  # its pods are gone, or never existed: only the store can have output
                raise NotFound(f"{handle.run}: the cluster has no output of {role}-{rank} any more")
            return
        if fresh:
            last_output = time.monotonic()
            continue
        if owner is not None and not done and (told := snapshot.elsewhere(owner)):
            raise NotFound(f"{handle.run}: {told}")
        waited = time.monotonic() - last_output > HOPELESS and not done
        if waited and observation.phase == "pending" and _hopeless(snapshot, owner, handle.run):
            raise NotFound(f"{handle.run}: {role}-{rank} does not start: {observation.reason}: {observation.evidence}")
        time.sleep(POLL)


def _hopeless(sight: Snapshot, owner: Owner | None, run: str) -> bool:
    return owner is not None and sight.judge(owner, run, time.time()).hopeless


def begun(pod: Object) -> bool:
    """Whether the pod's container has, or had, a process."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") == names.CONTAINER:
            state = status.get("state") or {}
            return "running" in state or "terminated" in state
    return False


def _previous(cluster: Connection, handle: Handle, role: str, rank: int) -> Iterator[bytes]:
    """The output of the pod before the newest; with a single pod, of its container's previous run."""
    _, snapshot, owner = cluster.look_closely(handle.run)
    pods = [pod for pod in pods_of(snapshot, owner, handle.run, role, rank) if begun(pod)] if owner is not None else []
    if len(pods) > 1:
        yield from _whole(cluster, pods[-2])
        return
    try:
        if not pods:
            raise NotFound
        yield from _stream(cluster, pods[-1], {"previous": "true"})
    except (NotFound, ApiRefused):
        raise NotFound(
            f"{handle.run}: the cluster has no output of an earlier {role}-{rank}; the store may: "
            f"launcher logs {handle.run} --previous"
        ) from None


def _whole(cluster: Connection, pod: Object) -> Iterator[bytes]:
    """The whole output of a pod's container, each byte once, until it ends."""
    given, failed = 0, 0
    while True:
        skip = given
        try:
            for chunk in _stream(cluster, pod, {"follow": "true"}):
                failed = 0
                if skip < len(chunk):
                    yield chunk[skip:]
                    given += len(chunk) - skip
                skip = max(0, skip - len(chunk))
        except (ApiRefused, Unreachable, OSError) as error:
            if isinstance(error, ApiRefused) and not (error.status == 400 and "waiting to start" in error.message):
                if error.status not in (400, 404):
                    raise
                if failed:  # its stream broke off: the store has the rest
                    raise NotFound(
                        f"pod {pod['metadata']['name']} is gone, and the end of its output with it"
                    ) from None
                return  # deleted, or its node no longer has it
            # a kubelet that has just restarted says "waiting to start" of a running container
            failed += 1
            if failed > 8:
                raise SlipwayError(f"pod {pod['metadata']['name']}: {error}") from None
            time.sleep(min(5.0, 0.2 * 2**failed))
            continue
        answer = cluster.api.get(POD.path(pod["metadata"]["namespace"], pod["metadata"]["name"]))
        if answer is None or not _lives(answer.json()):
            return
        time.sleep(POLL)


def _lives(pod: Object) -> bool:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") == names.CONTAINER:
            return "running" in (status.get("state") or {})
    return False


def _stream(cluster: Connection, pod: Object, query: dict[str, str]) -> Iterator[bytes]:
    import urllib3

    path = POD.path(pod["metadata"]["namespace"], pod["metadata"]["name"]) + "/log"
    response: Any = cluster.api.stream(path, query={"container": names.CONTAINER, **query}, read=SILENCE)
    try:
        while chunk := response.read1(CHUNK):
            yield chunk
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"the log broke off: {error}") from None
    finally:
        hang_up(response)
