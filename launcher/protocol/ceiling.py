"""A ceiling for the cost of a group, kept while its runs run: `launcher submit --ceiling`.

Each run of the group has an event that says how much all of them may cost, and what an hour of this run costs. The
leader of each run reads its siblings' events, heartbeats and exits, so no process beside the runs has to live. A later
event of a run replaces an earlier one: so a ceiling is raised or lowered while the runs run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

import msgspec

from launcher.decoding import decode_record
from launcher.protocol.records import Event
from launcher.protocol.view import RunView
from launcher.spec.model import BUDGET_MARGIN
from launcher.store.base import Store
from launcher.store.layout import RunKeys

KIND: Final = "ceiling"
GROUP, AMOUNT, CURRENCY, HOURLY = "group", "amount", "currency", "hourly"  # fields of the event
HOUR: Final = 3600


class GroupCeiling(NamedTuple):
    """What the runs of a group may cost together, as one of them knows it. `hourly`: of this run."""

    group: str
    amount: Decimal
    currency: str
    hourly: Decimal


class Spending(NamedTuple):
    """What a run of a group has cost.

    spent   in the ceiling's currency, at the last sight
    hourly  how much more each further hour may cost; 0 of a run that has ended
    kept    what it will cost to stop it and to save; 0 where no process of it runs
    """

    spent: Decimal = Decimal(0)
    hourly: Decimal = Decimal(0)
    kept: Decimal = Decimal(0)


def write_ceilings(
    store: Store, group: str, amount: Decimal, currency: str, hourly: Mapping[str, Decimal], runs: Iterable[str]
) -> None:
    """Gives runs of a group a ceiling, unless it is what they have. May be repeated. Raises Unreachable."""
    for run in runs:
        seq, known = _newest(store, run, group)
        wanted = GroupCeiling(group, amount, currency, hourly[run])
        while known != wanted:
            seq += 1
            text = f"the runs of group {group} may cost {amount} {currency} together"
            fields = {GROUP: group, AMOUNT: str(amount), CURRENCY: currency, HOURLY: str(hourly[run])}
            event = Event(0, _writer(group), seq, KIND, text, fields, time.time())
            if store.create(RunKeys(run).event(0, _writer(group), seq), msgspec.json.encode(event)):
                break
            seq, known = _newest(store, run, group)


def ceilings(store: Store, run: str) -> list[GroupCeiling]:
    """The ceilings of the groups that the run is in. Raises Unreachable."""
    found: dict[str, GroupCeiling] = {}
    for _, known in _read(store, f"{RunKeys(run).events}0-{KIND}-"):
        found[known.group] = known
    return list(found.values())


def ceiling_of(store: Store, run: str, group: str) -> GroupCeiling | None:
    return _newest(store, run, group)[1]


def _newest(store: Store, run: str, group: str) -> tuple[int, GroupCeiling | None]:
    seq, known = -1, None
    for number, each in _read(store, f"{RunKeys(run).events}0-{_writer(group)}-"):
        if each.group == group:
            seq, known = number, each
    return seq, known


def _read(store: Store, prefix: str) -> Iterable[tuple[int, GroupCeiling]]:
    """In the order of their numbers; an event that says no amount is passed over."""
    for meta in sorted(store.scan(prefix), key=lambda meta: meta.key):
        answer = store.read(meta.key)
        if answer is None:
            continue
        event = decode_record(meta.key, answer[0], Event)
        try:
            amount, hourly = Decimal(event.fields[AMOUNT]), Decimal(event.fields[HOURLY])
        except (KeyError, InvalidOperation):
            continue
        yield event.seq, GroupCeiling(event.fields.get(GROUP, ""), amount, event.fields.get(CURRENCY, ""), hourly)


def _writer(group: str) -> str:
    return f"{KIND}-{group}"


def spending(view: RunView, hourly: Decimal) -> Spending:
    """What a run has cost by its records, at `hourly`. A run that lives is counted until the store's time now."""
    leader = view.job.members()[0] if view.job is not None else ""
    held = sum(attempt.held(leader) for attempt in view.computing)
    if view.result is not None:  # of a deleted run only this is left
        return Spending(cost(max(view.result.held, held), hourly))
    if view.job is None or not view.attempts:
        return Spending(hourly=Decimal(0) if view.cancelled else hourly)
    last = view.attempts[-1]
    seen = last.seen(leader)
    silent = None if seen is None else max(view.now - seen, 0.0)
    if leader in last.exits or silent is None or silent > view.job.timing.stale:
        return Spending(cost(held, hourly), hourly)  # another attempt may follow at any time
    kept = 2 * view.job.limits.grace + BUDGET_MARGIN
    return Spending(cost(held + silent, hourly), hourly, cost(kept, hourly))


def cost(seconds: float, hourly: Decimal) -> Decimal:
    return Decimal(repr(seconds)) * hourly / HOUR
