"""Prints `launcher status --paid`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from launcher import safe_text
from launcher.cli.printing import output
from launcher.cli.printing.units import duration
from launcher.spec.profile import Profile
from launcher.store.base import Store
from launcher.userdata.cache import Cache
from launcher.verbs.paid import PaidItem, paid

NO_ANSWER = 4  # exit code
COLUMNS = ("run", "backend", "what", "since", "per_hour", "so_far", "deadline", "why")
RIGHT = ("since", "per_hour", "so_far", "deadline")


def show_paid(store: Store, profile: Profile, labels: Mapping[str, str | None], fmt: str) -> int:
    """Prints what costs money now. Returns the exit code."""
    with Cache() as cache:
        listing = paid(store, profile, cache)
    items = [  # only runs have labels
        item
        for item in listing.items
        if all(key in item.labels and value in (None, item.labels[key]) for key, value in labels.items())
    ]
    for name, why in listing.silent.items():
        print(
            safe_text.line(f"launcher status: {name} does not answer, what it has is not listed: {why}"),
            file=sys.stderr,
        )
    if fmt in ("json", "yaml"):
        output.emit([paid_record(item) for item in items], fmt)
    elif items:
        now = store.now()
        output.show([_row(item, now) for item in items], COLUMNS, RIGHT)
        print(f"\n{_total(items)}")
    else:
        asked = ", ".join(name for name in listing.asked if name not in listing.silent)
        told = f"nothing costs money now; asked: {asked}" if asked else "nothing was found that costs money"
        print(safe_text.line(told if listing.asked else "no backend of the profile costs money"), file=sys.stderr)
    return NO_ANSWER if listing.silent else 0


def _row(item: PaidItem, now: float) -> dict[str, Any]:
    return {
        "run": item.run or None,
        "backend": item.backend,
        "what": item.what,
        "since": f"{duration(max(now - item.since, 0.0))} ago" if item.since is not None else None,
        "per_hour": "not known" if item.hourly is None else f"{item.hourly:.2f} {item.currency}",
        "so_far": f"{item.cost:.2f} {item.currency}" if item.cost is not None and item.currency else None,
        "deadline": f"in {duration(item.left)}" if item.left is not None else None,
        "why": item.why,
    }


def _total(items: list[PaidItem]) -> str:
    sums: dict[str, Decimal] = {}
    for item in items:
        if item.hourly is not None:
            sums[item.currency] = sums.get(item.currency, Decimal(0)) + item.hourly
    parts = [f"{amount:.2f} {currency} per hour" for currency, amount in sorted(sums.items())]
    unknown = sum(item.hourly is None for item in items)
    parts += [f"{unknown} without a known price"] if unknown else []
    counts = {"run": 0, **Counter(item.kind for item in items)}
    words = {"run": "run", "machine": "machine without a run", "disk": "disk"}
    told = [f"{counts[kind]} {_several(words[kind], counts[kind])}" for kind in words if kind in counts]
    return f"{', '.join(told[:-1])}{' and ' if told[1:] else ''}{told[-1]}: {', '.join(parts)}"


def _several(words: str, count: int) -> str:
    first, space, rest = words.partition(" ")
    return words if count == 1 else f"{first}s{space}{rest}"


def paid_record(item: PaidItem) -> dict[str, Any]:
    return {
        "run": item.run or None,
        "backend": item.backend,
        "what": item.what,
        "since": item.since,
        "hourly": None if item.hourly is None else round(float(item.hourly), 6),
        "currency": item.currency or None,
        "cost": None if item.cost is None else round(float(item.cost), 6),
        "deadline_left_s": item.left,
        "why": item.why,
        "labels": dict(item.labels),
    }
