"""The price of a run per hour. Pure; docs/howto/cost.md states the rules.

A backend with `Traits.machines` gives each rank a machine of its own, which is billed whole: the price is that of the
machine's type, from the profile or else from `table.yaml`. On any other backend a rank costs what the profile says for
its GPUs, or for its cores, or for a rank (`node`); without such a price it is free, but not the GPUs of a backend
that bills: `prices: {H100: 0}` says that they cost nothing. A price is never guessed: a type that nobody prices is
named in `Rate.missing`. Amounts are decimals, so sums are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from launcher.spec.backends import MachineChoice, traits
from launcher.spec.model import Limits, ResolvedJob, Resources, as_written, at_turn

Prices = Mapping[str, tuple[float, str]]  # a profile's: unit -> (amount, currency)
NODE: Final = "node"  # the unit of a rank, whatever it has
STORAGE: Final = "storage"  # the unit of a GiB that is kept in the store for a month
DISK: Final = "disk"  # the unit of a GiB on a provider's disk for a month
SPOT: Final = " spot"  # at the end of a unit: for machines that may be taken away
TABLE: Final = Path(__file__).with_name("table.yaml")
HOUR: Final = 3600


class Price(NamedTuple):
    """Per hour of one unit. `origin`: who says so, for users."""

    amount: Decimal
    currency: str
    origin: str

    @property
    def of_profile(self) -> bool:
        return self.origin.startswith("prices:")


class Rate(NamedTuple):
    """The price of all ranks of a run per hour.

    low, high  of the cheapest and of the dearest machines that the job allows
    currency   "" when the run is free
    origin     where the prices come from, for users
    increment  each rank's time is billed in full steps of so many seconds
    spare      seconds for which its machines may live beyond the deadline: nobody may end them sooner
    missing    units without a known price; then the amounts mean nothing
    """

    low: Decimal = Decimal(0)
    high: Decimal = Decimal(0)
    currency: str = ""
    origin: str = ""
    increment: int = 1
    spare: float = 0.0
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


class PricedRole(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rank of a role is priced by, and how many there are."""

    replicas: int = 1
    cpus: float = 1.0
    gpus: int = 0
    gpu: str | None = None


class PricedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a job that its price depends on, small enough to be kept for every run.

    machines         whether a provider bills machines: then `types`, `regions` and `spot` say which
    spare            seconds for which a machine may live beyond the deadline of the run
    price, currency  of the whole run per hour, from its budget; 0 without one
    others           the same for the job's other backends, in their order
    """

    backend: str
    roles: tuple[PricedRole, ...]
    machines: bool = False
    types: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    spot: bool = False
    spare: float = 0.0
    price: float = 0.0
    currency: str = ""
    others: tuple[PricedRun, ...] = ()

    @staticmethod
    def of(job: ResolvedJob) -> PricedRun:
        others = tuple(PricedRun._at(at_turn(job, turn)) for turn in range(1, len(job.alternatives) + 1))
        return msgspec.structs.replace(PricedRun._at(as_written(job)), others=others)

    @staticmethod
    def _at(job: ResolvedJob) -> PricedRun:
        choose = traits(job.backend).machines
        choice = choose(job.options) if choose is not None else MachineChoice(())
        budget, beyond = job.limits.budget, traits(job.backend).outlives
        roles = [
            PricedRole(role.replicas, role.resources.cpus, role.resources.gpus, role.resources.gpu)
            for role in job.roles.values()
        ]
        return PricedRun(
            job.backend,
            tuple(roles),
            choose is not None,
            *choice,
            spare=beyond(job) if beyond is not None and job.limits.deadline is not None else 0.0,
            price=budget.price if budget is not None else 0.0,
            currency=budget.currency if budget is not None and budget.price else "",
        )

    @property
    def ranks(self) -> int:
        return sum(role.replicas for role in self.roles)

    @property
    def turns(self) -> tuple[PricedRun, ...]:
        """What it is priced by on each of its backends, in the order in which it may use them."""
        return (self, *self.others)


def rate(run: PricedRun, prices: Prices) -> Rate:
    """The rate of a run. A price in the run's budget comes first: the run is stopped by it."""
    step = increment(run.backend) if run.machines else 1
    if run.price:
        price = exact(run.price)
        return Rate(price, price, run.currency, "the price in the run's budget", step, run.spare)
    return _of_machines(run, prices, step) if run.machines else _of_units(run, prices, step)


def any_rate(run: PricedRun, prices: Prices) -> Rate:
    """The rate of a run wherever it may go: of the cheapest and of the dearest machines on any of its backends."""
    rates = [rate(turn, prices) for turn in run.turns]
    missing = [unit for each in rates for unit in each.missing]
    currencies = sorted({each.currency for each in rates if each.currency})
    if len(currencies) > 1:
        missing.append(f"one currency for all: these prices are in {' and '.join(currencies)}")
    if missing or len(rates) == 1:
        return rates[0]._replace(missing=tuple(dict.fromkeys(missing)))
    dearest = max(rates, key=lambda each: each.high)
    return dearest._replace(low=min(each.low for each in rates), spare=max(each.spare for each in rates))


def worst_case(rate: Rate, limits: Limits) -> Decimal | None:
    """What a run costs at most: its deadline, and what its machines may live beyond it, at the price of the dearest
    ones; or its budget if that is less. None where the price is unknown, or nothing bounds a run that is not free."""
    if rate.missing:
        return None
    bounds = []
    if limits.deadline is not None or rate.free:
        bounds.append(rate.high * exact((limits.deadline or 0.0) + rate.spare) / HOUR)
    if limits.budget is not None and limits.budget.currency == rate.currency:
        bounds.append(exact(limits.budget.amount))
    return min(bounds, default=None)


def machine_price(backend: str, region: str, kind: str, spot: bool, prices: Prices) -> Price | None:
    """The price of a machine: the most specific of the profile's prices, then the table's. `region`: "" if the job
    leaves it open. There is no way from a spot price to another."""
    suffix = SPOT if spot else ""
    names = [f"{backend}/{region}/{kind}{suffix}"] if region else []
    names.append(f"{backend}/{kind}{suffix}")
    if "_" in kind or "-" in kind:  # a cluster may be called `gpu`, as the price of any GPU is
        names.append(f"{kind}{suffix}")
    # Azure writes the names of its sizes in another case than its price list, and than people
    written = {unit.lower(): unit for unit in prices}
    for name in names:
        if (unit := name if name in prices else written.get(name.lower(), "")) in prices:
            amount, currency = prices[unit]
            return Price(exact(amount), currency, f"prices: {unit} in the profile")
    entry = _listed(backend, kind, spot)
    if isinstance(entry, Mapping):
        entry = entry.get(region)  # an open region may be one that costs more than all that are listed
    if entry is None:
        return None
    listed = _table()[backend]
    return Price(exact(entry), listed["currency"], f"list price read on {listed['read']}")


def listed_regions(backend: str, kind: str) -> tuple[str, ...]:
    """The regions of which there is a list price, where the price depends on the region."""
    entry = _listed(backend, kind, False)
    return tuple(sorted(entry)) if isinstance(entry, Mapping) else ()


def _listed(backend: str, kind: str, spot: bool) -> Any:
    """What the table says of a type, in whatever case it is written: a price, or region -> price; None if nothing."""
    types = _table().get(backend, {}).get("spot" if spot else "types", {})
    if kind in types:
        return types[kind]
    return next((types[name] for name in types if name.lower() == kind.lower()), None)


def unit_price(backend: str, resources: PricedRole | Resources, prices: Prices) -> tuple[Price, float] | str:
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


def disk_price(backend: str, region: str, prices: Prices) -> Price | None:
    """The price of a GiB on a disk for a month, which only a profile says; None where it does not."""
    for unit in (f"{backend}/{region}/{DISK}", f"{backend}/{DISK}", DISK):
        if unit in prices:
            amount, currency = prices[unit]
            return Price(exact(amount), currency, f"prices: {unit} in the profile")
    return None


def _of_machines(run: PricedRun, prices: Prices, step: int) -> Rate:
    found: list[Price] = []
    missing: list[str] = []
    for kind in run.types:
        for region in run.regions or ("",):
            price = machine_price(run.backend, region, kind, run.spot, prices)
            if price is None:
                where = f"{region}/" if region else ""
                missing.append(f"{run.backend}/{where}{kind}{SPOT if run.spot else ''}")
            else:
                found.append(price)
    if not run.types:
        missing.append(f"{run.backend}: the job names no type of machine")
    currencies = sorted({price.currency for price in found})
    if len(currencies) > 1:
        missing.append(f"one currency for all: these prices are in {' and '.join(currencies)}")
    if missing:
        return Rate(increment=step, missing=tuple(dict.fromkeys(missing)))
    origins = ", ".join(dict.fromkeys(price.origin for price in found))
    low, high = min(price.amount for price in found), max(price.amount for price in found)
    return Rate(low * run.ranks, high * run.ranks, currencies[0], origins, step, run.spare)


def _of_units(run: PricedRun, prices: Prices, step: int) -> Rate:
    total = Decimal(0)
    priced: list[Price] = []
    missing: list[str] = []
    for role in run.roles:
        price = unit_price(run.backend, role, prices)
        if isinstance(price, str):
            missing.append(price)
        else:
            priced.append(price[0])
            total += price[0].amount * exact(price[1]) * role.replicas
    if not priced and not _prices_gpus(run, prices):
        # nobody prices this backend: it is free, but not the GPUs of one that bills
        missing = [
            unit for role in run.roles if role.gpus and isinstance(unit := unit_price(run.backend, role, prices), str)
        ]
        if not traits(run.backend).bills or not missing:
            return Rate(increment=step)
    currencies = sorted({price.currency for price in priced if price.currency})
    if len(currencies) > 1:
        missing.append(f"one currency for all: these prices are in {' and '.join(currencies)}")
    if missing:
        return Rate(increment=step, missing=tuple(dict.fromkeys(missing)))
    origins = ", ".join(dict.fromkeys(price.origin for price in priced))
    return Rate(total, total, currencies[0] if currencies else "", origins, step)


def _prices_gpus(run: PricedRun, prices: Prices) -> bool:
    """Whether the run has GPUs, and somebody prices other GPUs here: then theirs are forgotten, not free."""
    names = {unit.removeprefix(f"{run.backend}/") for unit in prices if not unit.endswith(SPOT)}
    others = {name for name in names if "/" not in name} - {"cpu", NODE, STORAGE, DISK}
    return bool(others) and any(role.gpus for role in run.roles)


def increment(backend: str) -> int:
    """Seconds in full steps of which a provider bills a machine."""
    return int(_table()[backend]["increment"]) if backend in _table() else 1


@cache
def _table() -> Mapping[str, Any]:
    import yaml  # only where a provider bills

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    table: Mapping[str, Any] = yaml.load(TABLE.read_text(), Loader=loader)
    return table
