"""The queues of this machine and of the clusters that the settings name; to stop one and to resume it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from launcher.backends.base import Backend, Queues, QueueState, StopsQueues, backend
from launcher.errors import BadInput, NotFound, SlipwayError
from launcher.spec.backends import backends, traits
from launcher.spec.profile import Profile


class QueuesFound(NamedTuple):
    """`problems`: a line for each thing that is not known, and why; `code`: the exit code of the worst of them."""

    queues: list[QueueState]
    problems: list[str]
    code: int = 0


def read_queues(profile: Profile, names: Sequence[str] = ()) -> QueuesFound:
    """The queues of these backends; without names, of this machine and of every backend that the settings name. A
    backend that does not answer costs a line, not the others' queues. Raises BadInput for a backend without queues."""
    found = QueuesFound([], [])
    code = 0
    for name in names or _named(profile):
        try:
            place = backend(name, profile.backend_options(name))
            if not isinstance(place, Queues):
                if not names:
                    continue
                raise BadInput(f"backend `{name}` has no queues that can be listed")
            listing = place.queues()
        except SlipwayError as error:
            if isinstance(error, BadInput) and names:
                raise
            found.problems.append(f"{name}: {error}")
            code = max(code, error.exit_code)
            continue
        # local and docker share one queue
        found.queues.extend(each for each in listing.queues if each not in found.queues)
        found.problems.extend(f"{name}: {problem}" for problem in listing.problems)
    return found._replace(code=code)


def choose(queues: Sequence[QueueState], name: str, *, cluster_queue: bool) -> list[QueueState]:
    """The queues of that name; with `cluster_queue`, those that use a ClusterQueue of that name. Raises NotFound."""
    chosen = [each for each in queues if (each.cluster_queue if cluster_queue else each.name) == name]
    if not chosen:
        known = sorted({each.cluster_queue if cluster_queue else each.name for each in queues} - {""})
        kind = "ClusterQueue" if cluster_queue else "queue"
        raise NotFound(f"there is no {kind} `{name}` here; there is: {', '.join(known) or 'none'}")
    return chosen


def stopper(profile: Profile, names: Sequence[str]) -> tuple[str, Backend, StopsQueues]:
    """The one backend among these, or among those that the settings name, whose queues can be stopped. Raises
    BadInput."""
    able: list[tuple[str, Backend, StopsQueues]] = []
    for name in names or _named(profile):
        place = backend(name, profile.backend_options(name))
        if isinstance(place, StopsQueues):
            able.append((name, place, place))
    if len(able) == 1:
        return able[0]
    if able:
        raise BadInput(f"which backend? --backend {' or --backend '.join(name for name, _, _ in able)}")
    known = [name for name in backends() if not traits(name).on_this_machine]
    raise BadInput(
        "no backend here has queues that can be stopped. This machine's own queue: `launcher local stop`. "
        f"A cluster's: `--backend NAME`; there is: {', '.join(known)}"
    )


def _named(profile: Profile) -> list[str]:
    """This machine's queue, and the backends that the settings name."""
    return [
        name
        for name, known in backends().items()
        if not known.runs_images or (not known.on_this_machine and (name == profile.backend or name in profile.blocks))
    ]
