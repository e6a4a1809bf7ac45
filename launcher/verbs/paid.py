"""Everything that costs money now, on all backends: what `launcher status --paid` shows. It asks each backend, so it
sees what this store does not know, too."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, Literal, NamedTuple

from launcher.backends.abilities import BilledDisk, BilledOther, BillsDisks, BillsOthers
from launcher.backends.base import Backend, BackendObservation, BilledMachine, backend
from launcher.clock import boottime
from launcher.errors import SlipwayError
from launcher.results.run_cost import MachineTime, machine_rate
from launcher.spec.backends import backends, traits
from launcher.spec.prices.rates import Prices, disk_price, rate
from launcher.spec.profile import Profile
from launcher.store.base import Store
from launcher.userdata.cache import Cache
from launcher.userdata.record_cache import Memory
from launcher.verbs.cost import GIB, RunCost, costs
from launcher.verbs.leftovers import LEAVING
from launcher.verbs.status import Line, list_runs, read_lines

PATIENCE: Final = 60.0  # seconds in which a backend has to answer
MONTH: Final = 730  # hours: a twelfth of a year


class PaidItem(NamedTuple):
    """A run that costs money now, or a disk, or a machine that no run has.

    run       "" for what is of no run
    kind      run | disk | machine
    what      its machines, or how many ranks it has; of a disk its name, region and size
    since     since when it is billed, in seconds since the epoch; None: unknown, or not yet
    hourly    None where the price is not known
    left      seconds of its deadline that are left; None without one, or where its job is not known here
    why       what keeps it: the state, or why somebody must end it
    """

    run: str
    backend: str
    what: str
    since: float | None
    hourly: Decimal | None
    currency: str
    cost: Decimal | None
    left: float | None
    why: str
    labels: Mapping[str, str]
    kind: Literal["run", "disk", "machine"] = "run"


class PaidListing(NamedTuple):
    """`silent`: backend -> why it did not answer; what it has is not in `items`. `asked`: the backends that were."""

    items: list[PaidItem]
    silent: dict[str, str]
    asked: list[str]


def asked_backends(profile: Profile, used: Iterable[str]) -> list[str]:
    """The backends that may cost something: of those that the profile or a living run (`used`) names, the ones on which
    a provider bills machines, and the ones that the profile prices."""
    named = dict.fromkeys([profile.backend, *profile.blocks, *used])
    return [
        name for name in backends() if name in named and (traits(name).machines is not None or _priced(name, profile))
    ]


def _priced(name: str, profile: Profile) -> bool:
    """Whether the profile has a price of GPUs, cores or ranks on this backend."""
    return any(unit.startswith(f"{name}/") or "/" not in unit for unit in profile.prices)


def paid(
    store: Store, profile: Profile, cache: Cache, *, open_backend: Mapping[str, Backend] | None = None
) -> PaidListing:
    """What costs money now. `open_backend`: backends to ask instead of those of the profile, by name."""
    lines, _ = read_lines(store, list_runs(store), cache=cache)
    living = [line for line in lines if not line.final]
    used = (name for line in living for name in _backends_of(line))
    names = list(open_backend) if open_backend is not None else asked_backends(profile, used)
    answers = _ask_all(names, profile, open_backend)
    seen: list[tuple[str, BackendObservation]] = []
    rest: list[PaidItem] = []
    silent = {}
    for name in names:
        answer = answers[name]
        if answer.fault:
            silent[name] = answer.fault
        seen += [(name, each) for each in answer.seen if each.billed or each.active]
        rest += [_other(name, other, profile.prices) for other in answer.others]
        rest += [_disk(name, disk, profile.prices) for disk in answer.disks]
    by_run = {line.run: line for line in lines}
    wanted = [by_run[each.handle.run] for _, each in seen if each.handle.run in by_run]
    billed: dict[str, list[MachineTime]] = {}
    for name, each in seen:
        billed.setdefault(each.handle.run, []).extend(_time(name, machine) for machine in each.machines)
    memory = Memory(store, cache)
    found = {cost.line.run: cost for cost in costs(store, wanted, profile.prices, memory, billed)}
    items = [*(_item(name, each, found.get(each.handle.run), profile.prices) for name, each in seen), *rest]
    return PaidListing([item for item in items if item.hourly is None or item.hourly], silent, names)


class DiskCost(NamedTuple):
    """A provider's disk, and what it costs a month; None where nobody says its size or its price."""

    backend: str
    disk: BilledDisk
    monthly: Decimal | None
    currency: str


def disk_costs(
    profile: Profile, *, open_backend: Mapping[str, Backend] | None = None
) -> tuple[list[DiskCost], dict[str, str]]:
    """(the disks of every provider that the profile names, backend -> why it did not answer). `open_backend`: as in
    `paid`."""
    found: list[DiskCost] = []
    silent: dict[str, str] = {}
    for name in open_backend if open_backend is not None else asked_backends(profile, ()):
        try:
            chosen = _open(name, profile, open_backend)
            disks = chosen.disks() if isinstance(chosen, BillsDisks) else ()
        except SlipwayError as error:
            silent[name] = str(error).partition("\n")[0]
            continue
        for disk in disks:
            price = disk_price(name, disk.region, profile.prices)
            known = price is not None and disk.size is not None
            monthly = price.amount * disk.size / GIB if price is not None and disk.size is not None else None
            currency = price.currency if price is not None and known else ""
            found.append(DiskCost(name, disk, monthly, currency))
    return found, silent


def _backends_of(line: Line) -> tuple[str, ...]:
    """Every backend that the run may use."""
    return tuple(turn.backend for turn in line.priced.turns) if line.priced is not None else (line.backend,)


class _Answer(NamedTuple):
    """What a backend has told up to now. `fault`: why that is not all of it, or ""."""

    fault: str
    seen: Sequence[BackendObservation] = ()
    others: Sequence[BilledOther] = ()
    disks: Sequence[BilledDisk] = ()


def _ask_all(names: Sequence[str], profile: Profile, given: Mapping[str, Backend] | None) -> dict[str, _Answer]:
    """Name -> what each backend told in time: its runs come before its disks, which may be slow. The threads of those
    that have more to tell end with the process."""
    answers = {name: _Answer(f"no answer within {PATIENCE:.0f} s") for name in names}

    def ask(name: str) -> None:
        for answer in _ask(name, profile, given, answers[name]):
            answers[name] = answer

    threads = [threading.Thread(target=ask, args=(name,), name=f"paid {name}", daemon=True) for name in names]
    until = boottime() + PATIENCE
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until - boottime(), 0.0))
    return dict(answers)


def _ask(name: str, profile: Profile, given: Mapping[str, Backend] | None, answer: _Answer) -> Iterator[_Answer]:
    """`answer`, with more each time."""
    seen: list[BackendObservation] = []
    try:
        chosen = _open(name, profile, given)
        for each in chosen.mine():
            seen.append(each)
            answer = answer._replace(seen=tuple(seen))
        yield answer
        if isinstance(chosen, BillsOthers):
            yield (answer := answer._replace(others=chosen.others()))
        yield answer._replace(fault="", disks=chosen.disks() if isinstance(chosen, BillsDisks) else ())
    except SlipwayError as error:
        yield answer._replace(fault=str(error).partition("\n")[0])


def _open(name: str, profile: Profile, given: Mapping[str, Backend] | None) -> Backend:
    if given is not None:
        return given[name]
    return backend(name, {"store": profile.store, **profile.backend_options(name)})


def _other(name: str, other: BilledOther, prices: Prices) -> PaidItem:
    price = machine_rate(name, other.region, other.type, other.cents, False, prices) if other.count else None
    several = f"{other.count} x {other.type}" if other.count > 1 else other.type
    return PaidItem(
        run="",
        backend=name,
        what=", ".join(filter(None, (other.what, several, other.region))),
        since=other.since or None,
        hourly=None if price is None else price.amount * other.count,
        currency="" if price is None else price.currency,
        cost=None,
        left=None,
        why=other.why,
        labels={},
        kind="machine",
    )


def _disk(name: str, disk: BilledDisk, prices: Prices) -> PaidItem:
    price, size = disk_price(name, disk.region, prices), disk.size
    told = "size not known" if size is None else f"{size / GIB:.1f} GiB"
    hourly = None if price is None or size is None else price.amount * size / GIB / MONTH
    if size == 0:
        hourly = Decimal(0)
    return PaidItem(
        run="",
        backend=name,
        what=", ".join(filter(None, (f"disk {disk.name or disk.id}", disk.region, told))),
        since=None,
        hourly=hourly,
        currency=price.currency if price is not None and hourly is not None else "",
        cost=None,
        left=None,
        why="a machine uses it" if disk.in_use else "no machine uses it: who made it can delete it",
        labels={},
        kind="disk",
    )


def _time(name: str, machine: BilledMachine) -> MachineTime:
    return MachineTime(
        machine.key or machine.id,
        machine.since,
        0.0,
        machine.type,
        machine.region,
        machine.cents,
        backend=name,
        bound=machine.bound,
    )


def _item(name: str, seen: BackendObservation, cost: RunCost | None, prices: Prices) -> PaidItem:
    line = cost.line if cost is not None else None
    hourly, currency = _hourly(name, seen, line, prices)
    since = [machine.since for machine in seen.machines if machine.since]
    if not since and line is not None and line.held and not seen.machines:
        since = [line.held[-1].start]
    deadline = line.limits.deadline if line is not None else None
    return PaidItem(
        run=seen.handle.run,
        backend=name,
        what=_what(seen.machines, line),
        since=min(since, default=None),
        hourly=hourly,
        currency=currency,
        cost=cost.bill.cost if cost is not None else None,
        left=max(deadline - line.running, 0.0) if line is not None and deadline is not None else None,
        why=_why(seen, line),
        labels=line.labels if line is not None else {},
    )


def _hourly(name: str, seen: BackendObservation, line: Line | None, prices: Prices) -> tuple[Decimal | None, str]:
    machines = seen.machines
    if not seen.active and not machines and traits(name).machines is not None:
        return Decimal(0), ""  # what is left of it is billed as something else, as a disk
    turns = line.priced.turns if line is not None and line.priced is not None else ()
    priced = next((turn for turn in turns if turn.backend == name), None)
    if machines:
        found = [
            machine_rate(name, machine.region, machine.type, machine.cents, priced is not None and priced.spot, prices)
            for machine in machines
        ]
        known = [price for price in found if price is not None]
        if len(known) < len(found) or len({price.currency for price in known}) > 1:
            return None, ""
        return sum((price.amount for price in known), Decimal(0)), known[0].currency
    if priced is None:
        return None, ""
    whole = rate(priced, prices)
    return (None, "") if whole.missing else (whole.high, whole.currency)


def _what(machines: Sequence[BilledMachine], line: Line | None) -> str:
    if machines:
        return ", ".join(" ".join(filter(None, (machine.type, machine.id))) for machine in machines)
    ranks = line.priced.ranks if line is not None and line.priced is not None else 0
    return f"{ranks} rank{'s' if ranks != 1 else ''}" if ranks else ""


def _why(seen: BackendObservation, line: Line | None) -> str:
    if seen.overdue:
        return f"must be ended: {seen.overdue}"
    if line is not None and line.final:
        reap = f"`launcher reap --backend {seen.handle.backend}` ends it"
        return f"the run has {line.state}: {reap}, {LEAVING / 60:.0f} min after the run's end at the earliest"
    if line is None:
        return "its run is not in this store"
    return line.state
