"""What jobs would cost, and which are refused because of that. Pure; docs/howto/cost.md states the rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from launcher.errors import BadInput, Problem
from launcher.protocol.ceiling import cost
from launcher.spec.hashing import run_id
from launcher.spec.model import BUDGET_MARGIN, ResolvedJob
from launcher.spec.prices.missing import example, missing_prices
from launcher.spec.prices.rates import HOUR, PricedRun, Prices, Rate, any_rate, exact, worst_case
from launcher.spec.resolve.group import Group
from launcher.spec.values.types import MONEY


class JobEstimate(NamedTuple):
    """A job before it is submitted. `expected`: of the mean time that its earlier runs held their machines; None
    without one."""

    run: str
    name: str
    rate: Rate
    deadline: float | None
    budget: Decimal | None
    worst: Decimal | None
    expected: Decimal | None = None
    earlier: int = 0


def estimates(
    jobs: Sequence[ResolvedJob], names: Mapping[str, str], prices: Prices, earlier: Mapping[str, Sequence[float]] = {}
) -> list[JobEstimate]:
    """What jobs would cost. `names`: run -> name; `earlier`: job's name -> for how many seconds each of its runs that
    succeeded held its machines."""
    found = []
    for job in jobs:
        run, limits = run_id(job), job.limits
        price = any_rate(PricedRun.of(job), prices)
        times = earlier.get(job.name, ())
        expected = None
        if times and not price.missing:
            expected = exact(round(sum(times) / len(times), 3)) * price.high / HOUR
        budget = exact(limits.budget.amount) if limits.budget is not None else None
        worst = worst_case(price, limits)
        found.append(
            JobEstimate(run, names.get(run, job.name), price, limits.deadline, budget, worst, expected, len(times))
        )
    return found


def check_price(group: Group, prices: Prices, budget: str | None, *, without_price: bool) -> None:
    """Raises BadInput for runs on machines that a provider bills and whose price nobody knows, unless `without_price`;
    and, with a `budget` for all of them (`200 USD`), unless they cost at most this in the worst case."""
    if not without_price and (problems := _missing(group, prices, billed=True, otherwise="--without-price")):
        raise BadInput(problems)
    if budget is not None:
        _within(group, prices, *_money("--budget", budget))


def _missing(
    group: Group, prices: Prices, currency: str = "USD", *, billed: bool = False, otherwise: str = ""
) -> list[Problem]:
    """A problem for each price that is missing, at the line of the job that names what has none. `otherwise`: what
    helps, too."""
    found: dict[Problem, None] = {}
    for job in group.runs:
        for missing in missing_prices(job, prices, billed=billed):
            helps = [example(missing.keys, currency)] if missing.keys else []
            allowed = ", or ".join([*helps, *([otherwise] if otherwise else [])])
            found[group.problem(missing.job, missing.route, missing.what, allowed)] = None
    return list(found)


def _within(group: Group, prices: Prices, amount: Decimal, currency: str) -> None:
    """Raises BadInput unless the runs together cost at most this in the worst case."""
    if problems := _missing(group, prices, currency):
        raise BadInput([each._replace(what=f"{each.what}, which --budget needs") for each in problems])
    found = estimates(group.runs, group.names, prices)
    if unbound := [job for job, one in zip(group.runs, found, strict=True) if one.worst is None]:
        what = "neither limits.deadline nor limits.budget bounds what it costs, which --budget needs"
        raise BadInput([group.problem(job, ("limits", "deadline"), what, "a duration: 6h") for job in unbound])
    other = sorted({one.rate.currency for one in found if one.rate.currency and one.rate.currency != currency})
    if other:
        raise BadInput(f"--budget: the prices are in {', '.join(other)}, the budget in {currency}")
    worst = sum((one.worst for one in found if one.worst is not None), Decimal(0))
    if worst > amount:
        raise BadInput(
            f"--budget: these runs may cost {worst:.2f} {currency}, which is more than {amount:.2f} {currency}; "
            "allowed: shorter limits.deadline, smaller limits.budget of the runs, or a larger --budget"
        )


class CeilingPlan(NamedTuple):
    """What the runs of a submit may cost together, and what an hour of each costs."""

    amount: Decimal
    currency: str
    hourly: Mapping[str, Decimal]


def plan_ceiling(group: Group, prices: Prices, ceiling: str) -> CeilingPlan:
    """Raises BadInput where the price of a run is not known or in another currency, or where the ceiling pays for no
    more than what is kept back to stop all runs."""
    amount, currency = _money("--ceiling", ceiling)
    if problems := _missing(group, prices, currency):
        raise BadInput([each._replace(what=f"{each.what}, which --ceiling needs") for each in problems])
    found = estimates(group.runs, group.names, prices)
    for one in found:
        if one.rate.currency not in ("", currency):
            raise BadInput(f"--ceiling: {one.name} is priced in {one.rate.currency}, the ceiling is in {currency}")
    kept = sum(
        (cost(2 * job.limits.grace + BUDGET_MARGIN, one.rate.high) for job, one in zip(group.runs, found, strict=True)),
        Decimal(0),
    )
    if kept >= amount:
        raise BadInput(
            f"--ceiling: {amount} {currency} pays for nothing; allowed: more than {kept:.2f} {currency}, which are "
            "kept back to stop these runs and to save"
        )
    return CeilingPlan(amount, currency, {one.run: one.rate.high for one in found})


def _money(option: str, text: str) -> tuple[Decimal, str]:
    if not re.fullmatch(MONEY.pattern, text):
        raise BadInput(f"{option}: `{text}` is not {MONEY.name}; allowed: {MONEY.allowed}")
    amount, _, currency = text.partition(" ")
    return Decimal(amount), currency


def worst_line(found: Sequence[JobEstimate]) -> str:
    """One line about what runs may cost; "" where all of them are free."""
    paid = [one for one in found if not one.rate.free]
    if not paid:
        return ""
    unknown = [one for one in paid if one.worst is None]
    sums: dict[str, Decimal] = {}
    for one in paid:
        if one.worst is not None:
            sums[one.rate.currency] = sums.get(one.rate.currency, Decimal(0)) + one.worst
    parts = [f"at most {amount:.2f} {currency}" for currency, amount in sorted(sums.items())]
    if len(paid) == 1 and paid[0].worst is not None:
        one = paid[0]
        hours = f"{float(one.deadline) / HOUR:g} h" if one.deadline is not None else "no deadline"
        bound = "limits.budget" if one.budget is not None and one.worst == one.budget else f"{hours} of limits.deadline"
        if one.rate.spare and not bound.startswith("limits"):
            bound += f" and {one.rate.spare / HOUR:.2f} h that the machine may live beyond it"
        parts[0] += f": {one.rate.high:.2f} {one.rate.currency} per hour, {bound} ({one.rate.origin})"
    elif len(paid) > len(unknown):
        parts.append(f"{len(paid) - len(unknown)} runs")
    if unknown:
        reasons = unknown[0].rate.missing or ("no limits.deadline or limits.budget bounds it",)
        parts.append(f"of {len(unknown)} not known: {', '.join(reasons)}")
    return f"cost: {', '.join(parts)}"
