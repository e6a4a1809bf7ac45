"""What a run has cost so far, from its records and its rate. Pure; docs/howto/cost.md states the rules.

Where a provider bills machines, what counts is each machine's time from its first passed health check (or from the
first claim on it, where nobody recorded that) until it was told to end, in the provider's steps. Everywhere else it is
the time of each attempt from its claim to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import ceil
from typing import Final, NamedTuple

import msgspec

from launcher.protocol.view import AttemptView, RunView
from launcher.spec.prices.rates import HOUR, Price, PricedRun, Prices, exact, increment, machine_price, rate

MICRO: Final = Decimal("0.000001")
# the state and the fields of an event about a machine, as the backends write them
HANDLE: Final = "handle"
INSTANCE, TYPE, REGION, CENTS, HEALTHY, AT = "instance", "type", "region", "cents_per_hour", "first_healthy", "at"
STATE, ENDING, REFUSED = "state", "ending", "refused"
BOOTING: Final = "booting"  # it was told to end before it had passed one
BACKEND, LAUNCHED = "backend", "launched_at"  # of the first event: its writer's name, its time


class HeldTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt: when it was claimed, in seconds since the epoch, and for how many seconds it held its machines.
    `live`: it holds them still; `turn`: on which of the run's backends."""

    start: float
    seconds: float
    live: bool = False
    turn: int = 0

    def until(self, now: float) -> float:
        """Seconds for which it has held its machines at `now`."""
        return max(now - self.start, self.seconds) if self.live else self.seconds


class MachineTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine of a run, and the seconds for which it was billed so far. `cents`: an hour, as the provider said; 0:
    it did not. `ended`: it was told to end; without that, and once its run has ended, its end is not known. `bound`:
    nobody knows when its billing began; it is counted from its launch, so that it cost this at most."""

    id: str
    start: float
    seconds: float
    type: str = ""
    region: str = ""
    cents: int = 0
    ended: bool = False
    backend: str = ""
    bound: bool = False


class Charge(NamedTuple):
    """`seconds`: as billed, in full steps. `cost`: None without a known price."""

    start: float
    seconds: float
    cost: Decimal | None


class Bill(NamedTuple):
    """`cost`: None without a known price, then `missing` names what lacks one. `origin`: where prices come from.
    `bound`: nobody knows since when a machine was billed, so that it is this at most."""

    cost: Decimal | None
    currency: str = ""
    charges: tuple[Charge, ...] = ()
    missing: tuple[str, ...] = ()
    origin: str = ""
    bound: bool = False


def held_times(view: RunView) -> tuple[HeldTime, ...]:
    """The time of every attempt."""
    if view.job is None:
        return ()
    if view.result is not None and view.result.shown is not None and not view.attempts:
        return tuple(HeldTime(each.start, each.seconds) for each in view.result.shown.held)
    leader = view.job.members()[0]
    times: list[HeldTime] = []
    turn = 0
    for attempt in view.attempts:
        start = attempt.claimed.get(leader)
        turn += bool(attempt.moved_to)
        if start is None or attempt.moved_to:
            continue
        live = attempt is view.attempts[-1] and view.result is None and leader not in attempt.exits
        times.append(HeldTime(start, attempt.held(leader), live, turn))
    return tuple(times)


def machine_times(view: RunView) -> tuple[MachineTime, ...]:
    """The machines that the run's events name, in the order of their first events. `view` was read in full, or its
    events tell everything (`events_tell`)."""
    times = []
    for instance, known in _machine_fields(view).items():
        start = _number(known.get(HEALTHY)) or _claimed(view.attempts, instance)
        bound = not start and BOOTING not in known
        if bound:  # unknown is not free
            start = _number(known[LAUNCHED])
        ended = _number(known.get(AT))
        end = ended or (view.now if view.result is None else _end(view))
        times.append(
            MachineTime(
                instance,
                start or 0.0,
                max(end - start, 0.0) if start else 0.0,  # it passed no health check before its end: it was not billed
                known.get(TYPE, ""),
                known.get(REGION, ""),
                int(_number(known.get(CENTS))),
                bool(ended),
                known[BACKEND],
                bound,
            )
        )
    return tuple(times)


def events_tell(view: RunView) -> bool:
    """Whether the run's events say when the billing of each of its machines began and ended: then what `machine_times`
    says of them depends on nothing else."""
    return all(_number(known.get(HEALTHY)) and _number(known.get(AT)) for known in _machine_fields(view).values())


def _machine_fields(view: RunView) -> dict[str, dict[str, str]]:
    """Machine -> what the run's events say of it, the last word of each field."""
    fields: dict[str, dict[str, str]] = {}
    for event in view.events:
        if event.kind == HANDLE and (instance := event.fields.get(INSTANCE)):
            first = {BACKEND: event.writer.partition("-")[0], LAUNCHED: str(event.time)}
            known = fields.setdefault(instance, first)
            known |= {name: value for name, value in event.fields.items() if name != AT}
            if event.fields.get(STATE) == ENDING:
                known |= {AT: event.fields.get(AT, "")}
    return fields


def until_now(machines: Sequence[MachineTime], billed: Sequence[MachineTime], now: float) -> tuple[MachineTime, ...]:
    """The machines of a run, where the provider says which of them it bills at `now`: these count until then, also when
    the run has ended. One that was told to end counts as recorded. The `seconds` of `billed` are not read."""
    found = {machine.id: machine for machine in machines}
    for each in billed:
        known = found.get(each.id)
        if known is None or not known.ended:
            start = each.start or (known.start if known is not None else 0.0)
            bound = each.bound if each.start else known is not None and known.bound
            seconds = max(now - start, 0.0) if start else 0.0
            found[each.id] = msgspec.structs.replace(each, start=start, seconds=seconds, bound=bound)
    return tuple(found.values())


def bill(run: PricedRun, held: Sequence[HeldTime], machines: Sequence[MachineTime], prices: Prices, now: float) -> Bill:
    """The bill of a run at `now`, by the store's clock. `machines`: of a run whose machines a provider bills, where
    they are known; without them its attempts are counted, at the price of the dearest machines that its job allows."""
    bills = []
    for turn, there in enumerate(run.turns):
        known = [machine for machine in machines if machine.backend == there.backend]
        times = [time for time in held if time.turn == turn]
        bills.append(_of_machines(there, known, prices) if known else _of_attempts(there, times, prices, now))
    return bills[0] if len(bills) == 1 else _together(bills)


def _of_attempts(run: PricedRun, held: Sequence[HeldTime], prices: Prices, now: float) -> Bill:
    found = rate(run, prices)
    if found.missing:
        charges = tuple(Charge(time.start, _full(time.until(now), found.increment), None) for time in held)
        return Bill(None, charges=charges, missing=found.missing)
    charges = tuple(_charge(time.start, time.until(now), found.increment, found.high) for time in held)
    return Bill(_sum(charges), found.currency, charges, origin=found.origin)


def _together(bills: Sequence[Bill]) -> Bill:
    """The bill of a run that may have used several backends; one that it has not used says nothing."""
    used = [each for each in bills if each.charges]
    charges = tuple(charge for each in used for charge in each.charges)
    currencies = sorted({each.currency for each in used if each.currency})
    missing = [unit for each in used for unit in each.missing]
    if len(currencies) > 1:
        missing.append(f"one currency for all: these prices are in {' and '.join(currencies)}")
    if missing:
        return Bill(None, charges=charges, missing=tuple(dict.fromkeys(missing)))
    origins = dict.fromkeys(each.origin for each in used if each.origin)
    bound = any(each.bound for each in used)
    return Bill(_sum(charges), currencies[0] if currencies else "", charges, origin=", ".join(origins), bound=bound)


def machine_rate(backend: str, region: str, kind: str, cents: int, spot: bool, prices: Prices) -> Price | None:
    """The price of a machine that there is or was: the profile's, else what the provider said of it (`cents` an hour;
    0: nothing), else the list price."""
    price = machine_price(backend, region, kind, spot, prices)
    if cents and (price is None or not price.of_profile):
        return Price(Decimal(cents) / 100, "USD", f"what {backend} says")
    return price


def _of_machines(run: PricedRun, machines: Sequence[MachineTime], prices: Prices) -> Bill:
    step = increment(run.backend)
    charges: list[Charge] = []
    missing: list[str] = []
    currencies: dict[str, None] = {}
    origins: dict[str, None] = {}
    for machine in machines:
        price = machine_rate(run.backend, machine.region, machine.type, machine.cents, run.spot, prices)
        if price is None:
            charges.append(Charge(machine.start, _full(machine.seconds, step), None))
            missing.append(f"{run.backend}/{machine.region}/{machine.type}")
            continue
        charges.append(_charge(machine.start, machine.seconds, step, price.amount))
        currencies[price.currency], origins[price.origin] = None, None
    if len(currencies) > 1:
        missing.append(f"one currency for all: these prices are in {' and '.join(sorted(currencies))}")
    if missing:
        return Bill(None, charges=tuple(charges), missing=tuple(dict.fromkeys(missing)))
    bound = any(machine.bound and machine.seconds for machine in machines)
    return Bill(_sum(charges), next(iter(currencies)), tuple(charges), origin=", ".join(origins), bound=bound)


def _charge(start: float, seconds: float, step: int, price: Decimal) -> Charge:
    billed = _full(seconds, step)
    cost = exact(round(billed, 3)) * price / HOUR
    return Charge(start, billed, cost.quantize(MICRO, ROUND_HALF_UP))


def _full(seconds: float, step: int) -> float:
    """The time in full steps; a step of one second counts as it is."""
    return float(ceil(round(seconds, 3) / step) * step) if step > 1 else seconds


def _sum(charges: Sequence[Charge]) -> Decimal:
    return sum((charge.cost for charge in charges if charge.cost is not None), Decimal(0))


def _claimed(attempts: Sequence[AttemptView], instance: str) -> float:
    """When a process on this machine first claimed something; 0.0 if none did."""
    times = [
        attempt.claimed[member]
        for attempt in attempts
        for member, claim in attempt.claims.items()
        if claim.placement.container == instance
    ]
    return min(times, default=0.0)


def _end(view: RunView) -> float:
    """When the run ended: its machines ended later, but nobody recorded when."""
    exits = [end.ended for attempt in view.attempts for end in attempt.exits.values()]
    return max([*exits, view.result.time if view.result is not None else 0.0], default=view.now)


def _number(text: str | None) -> float:
    try:
        return float(text or 0.0)
    except ValueError:
        return 0.0
