"""Prices that nobody has told: where a job names what has none, and which lines of slipway.yaml give it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from launcher.spec.model import ResolvedJob, at_turn
from launcher.spec.prices.rates import NODE, SPOT, PricedRole, PricedRun, Prices, listed_regions, machine_price, rate
from launcher.spec.prices.rates import unit_price as price_of_unit
from launcher.spec.values.source import Route

MOST_KEYS: Final = 3  # of an example; for a type in more regions one key for all of them
EXAMPLE: Final = "1.50"


class MissingPrice(NamedTuple):
    """job    as the backend has it on which the price is missing
    route  the field of the resolved job that names what has no price; () if it is the job as a whole
    what   for a message
    keys   of `prices` in slipway.yaml that would give it; () if prices alone cannot"""

    job: ResolvedJob
    route: Route
    what: str
    keys: tuple[str, ...]


def missing_prices(job: ResolvedJob, prices: Prices, *, billed: bool = False) -> list[MissingPrice]:
    """Everything without a price on any backend of a job; `billed`: on those only where a provider bills machines. A
    price in its budget is one for all."""
    found: list[MissingPrice] = []
    for number, turn in enumerate(PricedRun.of(job).turns):
        if turn.machines or not billed:
            found += _on(at_turn(job, number), turn, prices)
    return found


def example(keys: Iterable[str], currency: str = "USD") -> str:
    """What to write: `prices: {lambda/gpu_1x_a10: 1.50 USD}` in slipway.yaml."""
    pairs = ", ".join(f"{key}: {EXAMPLE} {currency}" for key in keys)
    return f"`prices: {{{pairs}}}` in slipway.yaml, with what it really costs an hour"


def units(turn: PricedRun, prices: Prices) -> list[tuple[str, str, tuple[str, ...]]]:
    """(type, what, keys) of each of a run's types of machines without a price."""
    found = []
    for kind in turn.types:
        regions = [each for each in turn.regions or ("",) if _unknown(turn, each, kind, prices)]
        if regions:
            found.append((kind, _what(turn, kind, regions), _keys(turn, kind, regions)))
    return found


def _unknown(turn: PricedRun, region: str, kind: str, prices: Prices) -> bool:
    return machine_price(turn.backend, region, kind, turn.spot, prices) is None


def _keys(turn: PricedRun, kind: str, regions: Sequence[str]) -> tuple[str, ...]:
    last = f"{kind}{SPOT if turn.spot else ''}"
    if len(regions) > MOST_KEYS or not regions[0]:
        return (f"{turn.backend}/{last}",)
    return tuple(f"{turn.backend}/{region}/{last}" for region in regions)


def _what(turn: PricedRun, kind: str, regions: Sequence[str]) -> str:
    where = f" in {', '.join(regions)}" if regions[0] else ""
    told = f"no price of {turn.backend}'s {'spot machine ' if turn.spot else ''}`{kind}`{where} is known"
    listed = () if turn.spot else listed_regions(turn.backend, kind)
    if listed:  # never the price of another region
        told += f" (list prices are of {', '.join(listed)} only)"
    return told


def _on(job: ResolvedJob, turn: PricedRun, prices: Prices) -> Iterator[MissingPrice]:
    if turn.price:
        return
    if turn.machines:
        found = units(turn, prices)
        for kind, what, keys in found:
            inside = _route_of(job.options, kind)
            yield MissingPrice(job, ("options", *inside) if inside else (), what, keys)
        if not turn.types:
            yield MissingPrice(job, (), f"no price is known: the job names no type of machine of {job.backend}", ())
        told = bool(found) or not turn.types
    else:
        told = False
        for name, role in job.roles.items():
            need = role.resources
            priced = PricedRole(1, need.cpus, need.gpus, need.gpu)
            unit = price_of_unit(job.backend, priced, prices)
            if isinstance(unit, str) and rate(turn, prices).missing:
                told = True
                field = ("gpu" if need.gpu else "gpus") if need.gpus else "cpus"
                text = f"no price of `{unit}` is known, nor of a whole rank (`{NODE}`)"
                yield MissingPrice(job, ("roles", name, "resources", field), text, (unit,))
    if not told and (rest := rate(turn, prices).missing):  # prices in several currencies
        yield MissingPrice(job, (), f"its price is not known: {', '.join(rest)}", ())


def _route_of(value: Any, wanted: str) -> Route:
    """Where a block holds a text; () where it does not."""
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = enumerate(value)
    for key, item in inside:
        if item == wanted:
            return (key,)
        if rest := _route_of(item, wanted):
            return (key, *rest)
    return ()
