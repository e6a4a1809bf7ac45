"""What runs cost so far, or in the end (docs/howto/cost.md). `estimate` has what jobs would cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from launcher.decoding import unpacker
from launcher.errors import NotFound
from launcher.parallel import Threads
from launcher.protocol.read import read_events, read_run
from launcher.protocol.view import RunView
from launcher.results.run_cost import MICRO, Bill, Charge, MachineTime, bill, events_tell, machine_times, until_now
from launcher.spec.prices.rates import STORAGE, Prices, Rate, any_rate, exact, worst_case
from launcher.store.base import Meta, Store, settable
from launcher.store.layout import RUNS, RunKeys
from launcher.userdata.record_cache import Memory
from launcher.verbs.status import FAR, PARALLEL, Line

TEAM: Final = "team"  # the label of `--by team`
GIB: Final = 2**30
NONE: Final = "-"  # the group of runs without the label
KEPT: Final = "machines"  # a row that only the cache has, below a run: its machines, once all were told to end


class RunCost(NamedTuple):
    """`worst`: what the run costs at most, see `worst_case`; None where nothing bounds it."""

    line: Line
    bill: Bill
    rate: Rate
    worst: Decimal | None

    @property
    def seconds(self) -> float:
        return sum(charge.seconds for charge in self.bill.charges)


class StoredRun(NamedTuple):
    """What a run has in the store, and what that costs a month; None where nobody prices it. The run `""`: what the
    runs share, code overlays above all."""

    run: str
    bytes: int
    objects: int
    monthly: Decimal | None
    currency: str


class CostGroup(NamedTuple):
    """Runs with the same value of what they are grouped by. `unknown`: how many of them have no known price; they are
    not in the `cost`. One currency each: the same key may come several times."""

    key: str
    runs: int
    seconds: float
    cost: Decimal
    currency: str
    unknown: int


def costs(
    store: Store,
    lines: Sequence[Line],
    prices: Prices,
    memory: Memory,
    billed: Mapping[str, Sequence[MachineTime]] = MappingProxyType({}),
) -> list[RunCost]:
    """The cost of runs, in their order. Only runs on machines that a provider bills are read beyond their line.
    `billed`: run -> its machines that a provider bills now, where one was asked."""
    with Threads(PARALLEL if settable(store) else FAR) as pool:
        machines = pool.map(lambda line: _machines(store, line, memory), lines)
        now = store.now()
        return [
            _cost(line, until_now(found, billed.get(line.run, ()), now), prices, now)
            for line, found in zip(lines, machines, strict=True)
        ]


def _cost(line: Line, machines: Sequence[MachineTime], prices: Prices, now: float) -> RunCost:
    if line.priced is None:
        return RunCost(line, Bill(None, missing=("its job is not in the store",)), Rate(), None)
    found = any_rate(line.priced, prices)
    return RunCost(line, bill(line.priced, line.held, machines, prices, now), found, worst_case(found, line.limits))


def _machines(store: Store, line: Line, memory: Memory) -> tuple[MachineTime, ...]:
    if line.priced is None or not any(turn.machines for turn in line.priced.turns):
        return ()
    key = RunKeys(line.run).prefix + KEPT
    if line.final and (row := memory.known(key)) is not None:
        return unpacker(tuple[MachineTime, ...]).decode(row[0])
    view = read_events(store, RunView(line.run, now=store.now()), few=True) if line.final else None
    if view is None or not events_tell(view):
        try:
            view = read_run(store, line.run)
        except NotFound:
            return ()
    found = machine_times(view)
    if line.final and found and all(machine.ended for machine in found):
        body = msgspec.msgpack.encode(found)
        memory.learn(body, Meta(key, len(body), 0.0))
    return found


def by(found: Iterable[RunCost], what: str) -> list[CostGroup]:
    """The runs in groups: by `team` (the label), `backend`, `job`, `day` (UTC; a run that lasts over midnight is in
    both days), or any label's name. Sorted by the key, then by the currency."""
    groups: dict[tuple[str, str], list[tuple[str, float, Decimal | None]]] = {}
    for one in found:
        for key, seconds, cost in _parts(one, what):
            groups.setdefault((key, one.bill.currency), []).append((one.line.run, seconds, cost))
    return [
        CostGroup(
            key,
            len({run for run, _, _ in parts}),
            sum(seconds for _, seconds, _ in parts),
            sum((cost for _, _, cost in parts if cost is not None), Decimal(0)),
            currency,
            len({run for run, _, cost in parts if cost is None}),
        )
        for (key, currency), parts in sorted(groups.items())
    ]


def _parts(one: RunCost, what: str) -> Iterable[tuple[str, float, Decimal | None]]:
    if what == "day":
        for charge in one.bill.charges:
            yield from days(charge)
        return
    yield group_key(one.line, what), one.seconds, one.bill.cost


def group_key(line: Line, what: str) -> str:
    """The value of `backend`, `job`, or of a label."""
    keys: Mapping[str, str] = {"backend": line.backend, "job": line.name}
    return keys.get(what) or line.labels.get(what, NONE)


def days(charge: Charge) -> Iterable[tuple[str, float, Decimal | None]]:
    """A charge by days (UTC), each with its share of the time and of the cost; the last one has what is left."""
    at, left, cost = datetime.fromtimestamp(charge.start, UTC), charge.seconds, charge.cost
    while True:
        midnight = (at + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        seconds = min(left, (midnight - at).total_seconds())
        whole = seconds >= left
        share = cost if cost is None or whole else (cost * exact(seconds) / exact(left)).quantize(Decimal("0.000001"))
        yield at.strftime("%Y-%m-%d"), seconds, share
        if whole:
            return
        at, left = midnight, left - seconds
        cost = None if cost is None or share is None else cost - share


def totals(found: Iterable[RunCost]) -> dict[str, Decimal]:
    """Currency -> the sum of what is known."""
    sums: dict[str, Decimal] = {}
    for one in found:
        if one.bill.cost is not None and one.bill.currency:
            sums[one.bill.currency] = sums.get(one.bill.currency, Decimal(0)) + one.bill.cost
    return sums


def stored(store: Store, prices: Prices) -> list[StoredRun]:
    """What every run has in the store, the largest first. One listing of the whole store."""
    sizes: dict[str, list[int]] = {}
    for meta in store.scan(""):
        room, _, rest = meta.key.partition("/")
        total = sizes.setdefault(rest.partition("/")[0] if f"{room}/" == RUNS else "", [0, 0])
        total[0] += meta.size
        total[1] += 1
    price = exact(prices[STORAGE][0]) if STORAGE in prices else None
    currency = prices[STORAGE][1] if STORAGE in prices else ""
    found = [
        StoredRun(run, size, count, None if price is None else (price * size / GIB).quantize(MICRO), currency)
        for run, (size, count) in sizes.items()
    ]
    return sorted(found, key=lambda one: (-one.bytes, one.run))
