"""Machines that must end: those nobody else would end, those that a list does not show, and how to end one. `end` asks
until each was seen gone: Lambda's answer to a request says little (`global/unknown` comes also
where it took effect), so only a later look counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from launcher.backends.lambda_labs import names
from launcher.backends.lambda_labs.api import EffectUnknown, LambdaApi, LambdaRefused
from launcher.backends.lambda_labs.wire import CloudInstance
from launcher.errors import NotFound, Unreachable
from launcher.protocol.finish import seconds_silent
from launcher.protocol.read import read_run
from launcher.protocol.view import RunView
from launcher.store.base import Store
from launcher.wait_hint import LongWait

PATIENCE: Final = 300  # looks; about as many seconds
ASK_AGAIN: Final = 15  # looks between two requests


def end(api: LambdaApi, ids: Collection[str], interval: float) -> None:
    """Returns when none of the machines is living any more. Raises Unreachable."""
    left, wait = set(ids), LongWait()
    trouble = ""
    for look in range(PATIENCE):
        left = {each for each in left if (seen := api.instance(each)) is not None and seen.living}
        if not left:
            return
        if look >= ASK_AGAIN:
            wait.tell(f"waits until Lambda has ended {', '.join(sorted(left))}")
        if look % ASK_AGAIN == 0:
            for each in sorted(left):  # one by one: one unknown id would refuse them all
                try:
                    api.terminate([each])
                except (EffectUnknown, LambdaRefused) as error:
                    trouble = f": {error}"
        else:
            time.sleep(interval)
    raise Unreachable(f"machine {min(left)} still lives, and is billed, after {PATIENCE} looks{trouble}")


# A machine whose run has no result must end where nobody else would end it, because it is billed.

LATE: Final = 600.0  # seconds that a machine may take to power off at its deadline
UNCLAIMED: Final = 45 * 60.0  # seconds from the launch to the first claim: booting takes up to 25 min, then the image
SILENT: Final = 900.0  # seconds without a heartbeat, beyond those after which another machine may take over


def overdue(living: Sequence[CloudInstance], store_of: Callable[[str], Store]) -> str:
    """Why the machines of one run must end; "" if they may go on. Raises Unreachable when the store cannot be read."""
    first = living[0]
    store = store_of(first.tag(names.STORE))
    now = store.now()
    if text := expired(living, now):
        return text
    try:
        view = read_run(store, first.tag(names.RUN), full=False)
    except NotFound:
        return ""  # a submit on another machine is about to write it, or its store is another
    launched = max(_seconds(each.tag(names.LAUNCHED)) for each in living)
    if not view.attempts:
        late = bool(launched) and now > launched + UNCLAIMED
        return f"machine {first.id} has started no runtime in {UNCLAIMED / 60:.0f} min" if late else ""
    stale = view.job.timing.stale if view.job is not None else 0.0
    if text := _never_whole(living, view, now, launched):
        return text
    silent, age = seconds_silent(view), now - launched
    if silent > age and age <= UNCLAIMED:
        return ""  # it replaced another machine, and may be booting
    if silent > stale + SILENT:
        return f"its machines have been silent for {silent / 60:.0f} min"
    return ""


def expired(living: Sequence[CloudInstance], now: float | None) -> str:
    """Which of the machines is past its deadline, by its tag; "" if none is. It has powered off by then, and is billed.
    `now`: seconds since the epoch by a clock that nobody here may set, or None, which proves nothing."""
    for each in living:
        expires = _seconds(each.tag(names.EXPIRES))
        if now is not None and expires and now > expires + LATE:
            return f"machine {each.id} is past its deadline"
    return ""


def _never_whole(living: Sequence[CloudInstance], view: RunView, now: float, launched: float) -> str:
    """Why a run waits in vain for a member: its submit died between two launches, or its machine is gone, or starts no
    runtime."""
    attempt = view.attempts[-1]
    missing = [
        member for member in (view.job.members() if view.job is not None else ()) if member not in attempt.claims
    ]
    if view.job is None or not missing:
        return ""
    there = any(each.tag(names.MEMBER) == missing[0] for each in living)
    # a launcher may still be waiting for capacity
    patience = UNCLAIMED + (0.0 if there else float(view.job.options.get("wait_for_capacity", 0.0)))
    waiting = now - max(launched, *attempt.claimed.values())
    if waiting <= patience:
        return ""
    trouble = "has started no runtime" if there else "has had no machine"
    return f"{missing[0]} {trouble} for {waiting / 60:.0f} min, and the others wait for it"


def duplicates(living: Sequence[CloudInstance], view: RunView) -> list[CloudInstance]:
    """The machines of a run that do no work, because another machine of the same member has claimed, lives and sends
    heartbeats. Where none has claimed yet, nobody knows which of them will."""
    if not view.attempts or view.job is None or view.result is not None:
        return []
    attempt, idle = view.attempts[-1], []
    for member, claim in attempt.claims.items():
        machines = [each for each in living if each.tag(names.MEMBER) == member]
        working = [each.id for each in machines if each.tag(names.LAUNCH) == claim.placement.container != ""]
        seen = attempt.seen(member)
        if working and seen is not None and view.now - seen < view.job.timing.stale / 2:
            idle += [each for each in machines if each.id not in working]
    return idle


def _seconds(text: str) -> int:
    return int(text) if text.isdecimal() else 0


# A list of machines may lag. The account's audit events name the machines that it does not show.

BACK: Final = 24 * 3600.0  # seconds of the audit log that are read
MOST: Final = 60  # machines that are asked for by their ids; about as many seconds
OVER: Final = ("terminat", "delet")  # in the name of the action that ended a machine


def unlisted(api: LambdaApi, shown: set[str], now: float) -> list[CloudInstance]:
    """The machines of the last day's audit events that live and that are not `shown`; the newest ones if there are
    many, none where the key may not read audit events. `now`: seconds since the epoch. Raises Unreachable."""
    ended: set[str] = set()
    named: dict[str, None] = {}
    try:
        for event in api.audit_events(now - BACK):
            ids = [name.replace("/", ":").rpartition(":")[2] for name in event.resource_lrns]
            if any(word in event.action.lower() for word in OVER):
                ended.update(ids)
            else:
                named.update(dict.fromkeys(ids))
    except LambdaRefused:
        return []
    missing = [each for each in named if each and each not in shown and each not in ended]
    asked = [api.instance(each) for each in missing[-MOST:]]
    return [each for each in asked if each is not None and each.living]
