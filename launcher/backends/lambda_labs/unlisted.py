"""Machines that the list does not show: the account's audit events name them. A list may lag, and one witness that says
nothing proves nothing."""

from __future__ import annotations

from typing import Final

from launcher.backends.lambda_labs.api import LambdaApi, LambdaRefused
from launcher.backends.lambda_labs.wire import CloudInstance

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
