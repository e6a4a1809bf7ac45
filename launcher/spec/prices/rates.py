"""The price of a run per hour. Pure; docs/howto/cost.md states the rules.

A backend with `Traits.machines` gives each rank a machine of its own, which is billed whole: the price is that of the
machine's type, from the profile or else from `table.yaml`. On any other backend a rank costs what the profile says for
its GPUs, or for its cores, or for a rank (`node`); without such a price it is free. A price is never guessed: a type
that nobody prices is named in `Rate.missing`. Amounts are decimals, so sums are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from launcher.spec.backends import MachineChoice, traits
from launcher.spec.model import ResolvedJob, Resources

Prices = Mapping[str, tuple[float, str]]  # a profile's: unit -> (amount, currency)
NODE: Final = "node"  # the unit of a rank, whatever it has
SPOT: Final = " spot"  # at the end of a unit: for machines that may be taken away
TABLE: Final = Path(__file__).with_name("table.yaml")
HOUR: Final = 3600


class Price(NamedTuple):
    """Per hour of one unit. `origin`: who says so, for users."""

    amount: Decimal
    currency: str
    origin: str


class Rate(NamedTuple):
    """The price of all ranks of a run per hour.

    low, high  of the cheapest and of the dearest machines that the job allows
    currency   "" when the run is free
    origin     where the prices come from, for users
    increment  each rank's time is billed in full steps of so many seconds
    missing    units without a known price; then the amounts mean nothing
    """

    low: Decimal = Decimal(0)
    high: Decimal = Decimal(0)
    currency: str = ""
    origin: str = ""
    increment: int = 1
    missing: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        return not self.missing

    @property
    def free(self) -> bool:
        return not self.missing and not self.high


def exact(amount: float) -> Decimal:
    """The decimal that a user wrote, from the float that was read."""
    return Decimal(repr(amount))


def rate(job: ResolvedJob, prices: Prices) -> Rate:
    """The rate of a run. A price in the run's budget comes first: the run is stopped by it."""
    increment = _increment(job.backend)
    budget = job.limits.budget
    if budget is not None and budget.hourly:
        price = exact(budget.hourly)
        return Rate(price, price, budget.currency, "the price in the run's budget", increment)
    choice = machines(job)
    return _of_machines(job, choice, prices, increment) if choice is not None else _of_units(job, prices, increment)


def machines(job: ResolvedJob) -> MachineChoice | None:
    """The machines that a job allows; None on a backend that does not bill by the machine."""
    chosen = traits(job.backend).machines
    return chosen(job.options) if chosen is not None else None


def paid(job: ResolvedJob) -> bool:
    """Whether a provider sends a bill for the run's machines."""
    return traits(job.backend).machines is not None


def ranks(job: ResolvedJob) -> int:
    return sum(role.replicas for role in job.roles.values())


def machine_price(backend: str, region: str, kind: str, spot: bool, prices: Prices) -> Price | None:
    """The price of a machine: the most specific of the profile's prices, then the table's. `region`: "" if the job
    leaves it open. There is no way from a spot price to another."""
    suffix = SPOT if spot else ""
    names = [f"{backend}/{region}/{kind}{suffix}"] if region else []
    for name in (*names, f"{backend}/{kind}{suffix}", f"{kind}{suffix}"):
        if name in prices:
            amount, currency = prices[name]
            return Price(exact(amount), currency, f"prices: {name} in the profile")
    listed = _table().get(backend, {})
    entry = listed.get("spot" if spot else "types", {}).get(kind)
    if isinstance(entry, Mapping):
        entry = entry.get(region)  # an open region may be one that costs more than all that are listed
    if entry is None:
        return None
    return Price(exact(entry), listed["currency"], f"list price read on {listed['read']}")


def unit_price(backend: str, resources: Resources, prices: Prices) -> tuple[Price, float] | str:
    """(the price of a unit, how many units a rank has), or the unit whose price is missing. GPUs are priced by their
    name, then as `gpu`; ranks without GPUs as `cpu`, by cores; and what has no such price as `node`. Each may stand
    after `BACKEND/`."""
    if resources.gpus:
        names, count = dict.fromkeys(filter(None, (resources.gpu, "gpu"))), float(resources.gpus)
    else:
        names, count = {"cpu": None}, resources.cpus
    for name, number in (*((name, count) for name in names), (NODE, 1.0)):
        for unit in (f"{backend}/{name}", name):
            if unit in prices:
                amount, currency = prices[unit]
                return Price(exact(amount), currency, f"prices: {unit} in the profile"), number
    return next(iter(names))


def _of_machines(job: ResolvedJob, choice: MachineChoice, prices: Prices, increment: int) -> Rate:
    found: list[Price] = []
    missing: list[str] = []
    for kind in choice.types:
        for region in choice.regions or ("",):
            price = machine_price(job.backend, region, kind, choice.spot, prices)
            if price is None:
                where = f"{region}/" if region else ""
                missing.append(f"{job.backend}/{where}{kind}{SPOT if choice.spot else ''}")
            else:
                found.append(price)
    if not choice.types:
        missing.append(f"{job.backend}: the job names no type of machine")
    currencies = sorted({price.currency for price in found})
    if len(currencies) > 1:
        missing.append(f"one currency for all: these prices are in {' and '.join(currencies)}")
    if missing:
        return Rate(increment=increment, missing=tuple(dict.fromkeys(missing)))
    count = ranks(job)
    origins = ", ".join(dict.fromkeys(price.origin for price in found))
    low, high = min(price.amount for price in found), max(price.amount for price in found)
    return Rate(low * count, high * count, currencies[0], origins, increment)


def _of_units(job: ResolvedJob, prices: Prices, increment: int) -> Rate:
    total = Decimal(0)
    priced: list[Price] = []
    missing: list[str] = []
    for role in job.roles.values():
        price = unit_price(job.backend, role.resources, prices)
        if isinstance(price, str):
            missing.append(price)
        else:
            priced.append(price[0])
            total += price[0].amount * exact(price[1]) * role.replicas
    if not priced:
        return Rate(increment=increment)  # nobody prices this backend: it is free
    currencies = sorted({price.currency for price in priced})
    if len(currencies) > 1:
        missing.append(f"one currency for all: these prices are in {' and '.join(currencies)}")
    if missing:
        return Rate(increment=increment, missing=tuple(dict.fromkeys(missing)))
    origins = ", ".join(dict.fromkeys(price.origin for price in priced))
    return Rate(total, total, currencies[0], origins, increment)


def _increment(backend: str) -> int:
    return int(_table()[backend]["increment"]) if traits(backend).machines is not None and backend in _table() else 1


@cache
def _table() -> Mapping[str, Any]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    table: Mapping[str, Any] = yaml.load(TABLE.read_text(), Loader=loader)
    return table
