"""How the pages write numbers, times and costs, and what their addresses name."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from sqlalchemy import RowMapping
from starlette.exceptions import HTTPException
from starlette.requests import Request

from launcher.decoding import decode
from launcher.monitor.rows import ENDED
from launcher.report.html import duration
from launcher.results.run_cost import HeldTime, MachineTime, bill
from launcher.results.text import difference, interval, money, probability
from launcher.results.text import number as metric
from launcher.spec.model import Limits
from launcher.spec.prices.rates import PricedRun, Prices, any_rate, worst_case

__all__ = [
    "ago", "amount", "clock", "cost", "difference", "duration", "interval", "iso", "metric", "number", "percent",
    "probability", "since", "size", "spent",
]  # fmt: skip


def number(value: float | None) -> str:
    """`12`, `0.031`: at most six digits."""
    return "" if value is None else f"{value:.6g}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def size(value: float | None) -> str:
    """Bytes as people write them."""
    if value is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def clock(seconds: float | None) -> str:
    """A time as local time of the monitor's machine, with its distance from UTC; a record may claim any number."""
    if seconds is None:
        return ""
    try:
        local = time.localtime(seconds)
    except (OverflowError, ValueError, OSError):
        return f"no time: {seconds:g}"
    sign, minutes = ("-" if local.tm_gmtoff < 0 else "+"), abs(local.tm_gmtoff) // 60
    zone = f"UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}" if minutes else "UTC"
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', local)} {zone}"


def ago(seconds: float | None, now: float) -> str:
    return "" if seconds is None else f"{duration(max(0.0, now - seconds))} ago"


def since(seconds: float, now: float) -> str:
    """`just now`, `3 min ago`, `5 h ago`, `12 d ago`; a time that is to come, or none, as `clock` writes it."""
    passed = now - seconds
    if not 0 <= passed < 400 * 86400:
        return "just now" if -60 < passed < 0 else clock(seconds)
    for length, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if passed >= length:
            return f"{passed // length:.0f} {name} ago"
    return "just now"


def iso(seconds: float) -> str:
    """For the attribute `datetime`; "" for what is no time."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return ""


def cost(run: RowMapping, prices: Prices, now: float) -> tuple[str, str]:
    """(what a run costs so far, what it may cost at most), as `launcher cost` computes both; "" for what is unknown."""
    if not run["priced"]:
        return "", ""
    rate = any_rate(decode(run["priced"], PricedRun), prices)
    worst = worst_case(rate, decode(run["limits"], Limits))
    return amount(*spent(run, prices, now)), amount(worst, rate.currency)


def spent(run: RowMapping, prices: Prices, now: float) -> tuple[Decimal | None, str]:
    """(what a run costs so far, None if that is unknown; its currency)."""
    if not run["priced"]:
        return None, ""
    held, machines = decode(run["held"], tuple[HeldTime, ...]), decode(run["machines"], tuple[MachineTime, ...])
    found = bill(decode(run["priced"], PricedRun), held, machines, prices, now)
    return found.cost, found.currency


def amount(value: Decimal | None, currency: str) -> str:
    return (money(float(value), currency) or "") if value is not None and currency else ""


def row_id(text: str) -> int:
    """The id of a row. Raises HTTPException 404 for what no row can have."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise HTTPException(404)
    return int(text)


def chosen_page(request: Request, count: int, shown: int) -> int:
    """The part of a long table that an address asks for."""
    last, text = max(0, (count - 1) // shown), request.query_params.get("page", "")
    return min(int(text), last) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def labels_of(run: RowMapping) -> str:
    """`example=login, team=agents`"""
    return ", ".join(f"{key}={value}" for key, value in sorted(json.loads(run["labels"] or "{}").items()))


def attempt_bars(attempts: Sequence[RowMapping], run: RowMapping, now: float) -> list[dict[str, Any]]:
    """The attempts on a line of 1000 units, from the first start to the last end."""
    begins = [row["started"] for row in attempts if row["started"] is not None]
    if not begins:
        return []
    last = attempts[-1]["number"]
    over = run["state"] in ENDED
    ends = {
        row["number"]: row["ended"] or (now if row["number"] == last and not over else run["ended"] or row["started"])
        for row in attempts
        if row["started"] is not None
    }
    first, end = min(begins), max(ends.values())
    scale = 1000 / max(end - first, 1e-9)
    return [
        {
            "row": row,
            "x": round((row["started"] - first) * scale, 2),
            "width": round(max(4.0, (ends[row["number"]] - row["started"]) * scale), 2),
            "seconds": max(0.0, ends[row["number"]] - row["started"]),
        }
        for row in attempts
        if row["started"] is not None
    ]
