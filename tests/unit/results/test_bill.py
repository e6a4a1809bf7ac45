"""Bills of scripted runs. Every expected amount is worked out by hand in the comment beside it."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from msgspec.structs import replace

from launcher.protocol.records import Beat, Claim, Event, Exit, Placement, Result
from launcher.protocol.view import AttemptView, RunView
from launcher.reasons import Reason
from launcher.results.run_cost import HeldTime, MachineTime, bill, held_times, machine_times, until_now
from launcher.spec.model import Alternative, Budget, Limits, ResolvedJob, Resources, Role
from launcher.spec.prices.rates import PricedRole, PricedRun, any_rate

START = 1_780_000_000.0
JOB = ResolvedJob(
    name="sft",
    roles={"main": Role(("x",), replicas=2, resources=Resources(gpus=4, gpu="H100"))},
    store="s3://b",
    backend="kubernetes",
)
LAMBDA = PricedRun("lambda", (PricedRole(2),), True, types=("gpu_1x_a10", "gpu_1x_h100_pcie"))


def attempt(number: int, start: float, *, held: float = 0.0, ends: bool = True, at: str = "") -> AttemptView:
    place = Placement("machine", "account/run", container=at)
    claims = {member: Claim(place, "n", start) for member in JOB.members()}
    ended = {"main-0": Exit("main-0", Reason.PREEMPTED, held=held)} if ends else {}
    beats = {} if ends else {"main-0": (Beat(3, "running", held=held), start + held)}
    return AttemptView(number, claims=claims, claimed=dict.fromkeys(claims, start), exits=ended, beats=beats)


def view(*attempts: AttemptView, now: float, ended: bool = True, events: tuple[Event, ...] = ()) -> RunView:
    result = Result("failed", len(attempts), Reason.PREEMPTED, "", now, "n") if ended else None
    return RunView("sft-1", job=JOB, attempts=attempts, result=result, now=now, events=events)


def test_every_attempt_is_billed_and_a_killed_one_until_its_last_heartbeat() -> None:
    """Attempts of 1,800 s, of 450 s (killed) and of 900 s: 3,150 s. 2 ranks x 4 GPUs x 2.10 USD = 16.80 USD an hour.
    16.80 x 3,150 / 3,600 = 14.70 USD."""
    seen = view(
        attempt(1, START, held=1800.0),
        attempt(2, START + 2000, held=450.0, ends=False),
        attempt(3, START + 4000, held=900.0),
        now=START + 5000,
    )
    times = held_times(seen)
    assert times == (HeldTime(START, 1800.0), HeldTime(START + 2000, 450.0), HeldTime(START + 4000, 900.0))
    found = bill(PricedRun.of(JOB), times, (), {"H100": (2.1, "USD")}, seen.now)
    assert (found.cost, found.currency) == (Decimal("14.700000"), "USD")


def test_a_live_attempt_is_billed_until_now() -> None:
    """100 s of the first, and 700 s since the claim of the second, whose last heartbeat is 10 s old."""
    seen = view(
        attempt(1, START, held=100.0),
        attempt(2, START + 300, held=690.0, ends=False),
        now=START + 1000,
        ended=False,
    )
    assert [time.until(seen.now) for time in held_times(seen)] == [100.0, 700.0]
    # 16.80 USD an hour: .466667 and 3.266667, each to a millionth
    cost = bill(PricedRun.of(JOB), held_times(seen), (), {"H100": (2.1, "USD")}, seen.now).cost
    assert cost == Decimal("3.733334")


def test_a_thousand_small_bills_are_exact() -> None:
    """.1 USD an hour for 36 s is .001 USD; a thousand of them are 1 USD, where floats would give .9999999999999994."""
    run = PricedRun("local", (PricedRole(),))
    each = bill(run, [HeldTime(START, 36.0)], (), {"cpu": (0.1, "USD")}, START)
    assert each.cost == Decimal("0.001")
    assert sum([each.cost] * 1000, Decimal(0)) == 1


def handle(seq: int, state: str, instance: str, **fields: str) -> Event:
    return Event(0, "lambda-main-0", seq, "handle", "", {"state": state, "instance": instance, **fields}, START)


def test_machines_are_billed_from_their_first_health_check_in_full_minutes() -> None:
    """i-1: healthy at 300, told to end at 3,990: 3,690 s, 62 minutes: 3.29 x 62 / 60 = 3.399667.
    i-2: healthy at 330, told to end at 3,990: 3,660 s, 61 minutes: 3.29 x 61 / 60 = 3.344833. Together 6.744500."""
    a10 = {"type": "gpu_1x_h100_pcie", "region": "us-east-1"}
    ending = {**a10, "cents_per_hour": "329", "at": f"{START + 3990:.0f}"}
    seen = view(
        attempt(1, START + 400, held=3500.0, at="i-1"),
        now=START + 9000,
        events=(
            handle(0, "launched", "i-1", **a10),
            handle(1, "launched", "i-2", **a10),
            handle(2, "ending", "i-1", **ending, first_healthy=f"{START + 300:.0f}"),
            handle(3, "ending", "i-2", **ending, first_healthy=f"{START + 330:.0f}"),
        ),
    )
    machines = machine_times(seen)
    assert [(machine.id, machine.seconds, machine.ended) for machine in machines] == [
        ("i-1", 3690.0, True),
        ("i-2", 3660.0, True),
    ]
    found = bill(LAMBDA, held_times(seen), machines, {}, START)
    assert [charge.seconds for charge in found.charges] == [3720.0, 3660.0]
    assert found.cost == Decimal("6.744500")
    assert found.origin == "what lambda says"
    own = bill(LAMBDA, (), machines, {"lambda/us-east-1/gpu_1x_h100_pcie": (3.0, "USD")}, START)  # 3 x 123 / 60
    assert own.cost == Decimal("6.150000")


def test_a_machine_whose_health_nobody_recorded_counts_from_its_first_claim() -> None:
    """Claimed at 400 and at 2,000 on i-1, still running at 2,200: 1,800 s, 30 minutes of an A10: 1.29 / 2 = .645."""
    seen = view(
        attempt(1, START + 400, held=900.0, at="i-1"),
        attempt(2, START + 2000, held=190.0, ends=False, at="i-1"),
        now=START + 2200,
        ended=False,
        events=(handle(0, "launched", "i-1", type="gpu_1x_a10", region="us-west-1"),),
    )
    (machine,) = machine_times(seen)
    assert (machine.start, machine.seconds, machine.ended) == (START + 400, 1800.0, False)
    assert bill(LAMBDA, (), (machine,), {}, START).cost == Decimal("0.645000")


def test_a_machine_of_which_nobody_knows_since_when_it_is_billed_is_not_free() -> None:
    """Two hours since its launch at 1.29: 2.58 at most."""
    launched = handle(0, "launched", "i-1", type="gpu_1x_a10", region="us-east-1")
    seen = view(now=START + 7200, ended=False, events=(launched,))
    (machine,) = machine_times(seen)
    assert (machine.start, machine.seconds, machine.bound) == (START, 7200.0, True)
    found = bill(LAMBDA, (), (machine,), {}, START)
    assert (found.cost, found.bound) == (Decimal("2.580000"), True)
    # told to end; an older launcher wrote that nobody knows
    end = {"type": "gpu_1x_a10", "region": "us-east-1", "first_healthy": "0", "at": f"{START + 3600:.0f}"}
    ended = view(now=START + 9000, events=(launched, handle(1, "ending", "i-1", **end)))
    assert [(each.seconds, each.bound) for each in machine_times(ended)] == [(3600.0, True)]


def test_a_machine_that_was_told_to_end_while_it_booted_is_not_billed() -> None:
    end = {
        "type": "gpu_1x_a10",
        "region": "us-east-1",
        "first_healthy": "0",
        "booting": "true",
        "at": f"{START + 99:.0f}",
    }
    events = (handle(0, "launched", "i-1", type="gpu_1x_a10"), handle(1, "ending", "i-1", **end))
    (machine,) = machine_times(view(now=START + 500, events=events))
    assert (machine.start, machine.seconds, machine.bound) == (0.0, 0.0, False)


def test_a_run_that_ended_is_not_billed_for_ever_where_nobody_recorded_its_machines_end() -> None:
    seen = view(
        attempt(1, START, held=600.0, at="i-1"),
        now=START + 90_000,
        events=(handle(0, "launched", "i-1", type="gpu_1x_a10"),),
    )
    seen = replace(seen, result=msgspec.structs.replace(seen.result, time=START + 610))
    (machine,) = machine_times(seen)
    assert (machine.seconds, machine.ended) == (610.0, False)


def test_what_the_provider_bills_now_counts_until_now_and_what_was_told_to_end_does_not() -> None:
    """At 1000 s. a: the run's record ends with the run after 60 s, the provider says since 400: 600 s. b: told to end
    after 90 s, and still listed. c: no record. d: it boots. e: only its claim is known, at 700: 300 s. f: gone."""
    recorded = [
        MachineTime("a", 500.0, 60.0, backend="lambda"),
        MachineTime("b", 500.0, 90.0, ended=True, backend="lambda"),
        MachineTime("e", 700.0, 10.0, backend="lambda"),
        MachineTime("f", 500.0, 70.0, backend="lambda"),
    ]
    listed = {"a": 400.0, "b": 500.0, "c": 950.0, "d": 0.0, "e": 0.0}
    found = until_now(recorded, [MachineTime(each, at, 0.0, backend="lambda") for each, at in listed.items()], 1000.0)
    assert {each.id: each.seconds for each in found} == {"a": 600, "b": 90, "c": 50, "d": 0, "e": 300, "f": 70}
    assert until_now(recorded, [], 1000.0) == tuple(recorded)


def test_without_a_price_nothing_is_guessed() -> None:
    odd = msgspec.structs.replace(LAMBDA, types=("gpu_1x_z9000",))
    found = bill(odd, [HeldTime(START, 61.0)], (), {}, START)
    assert (found.cost, found.missing, found.charges[0].seconds) == (None, ("lambda/gpu_1x_z9000",), 120.0)
    machine = MachineTime("i-1", START, 60.0, "gpu_1x_z9000", "us-east-1", backend="lambda")
    assert bill(odd, (), (machine,), {}, START).missing == ("lambda/us-east-1/gpu_1x_z9000",)


def test_attempts_on_machines_that_nobody_recorded_cost_the_dearest_that_the_job_allows() -> None:
    """61 s are 2 minutes; 2 ranks x 3.29 x 2 / 60 = .219333."""
    assert bill(LAMBDA, [HeldTime(START, 61.0)], (), {}, START).cost == Decimal("0.219333")


def test_the_price_in_a_budget_stays_that_of_the_day() -> None:
    made = msgspec.structs.replace(JOB, limits=Limits(budget=Budget(40.0, "USD", hourly=10.0)))
    found = bill(PricedRun.of(made), [HeldTime(START, 1800.0)], (), {"H100": (99.0, "EUR")}, START)
    assert (found.cost, found.currency) == (Decimal("5.000000"), "USD")


@pytest.mark.parametrize("text", ["", "soon", "nan?"])
def test_what_is_no_number_in_an_event_counts_as_unknown(text: str) -> None:
    event = handle(0, "launched", "i-1", first_healthy=text, cents_per_hour=text)
    (machine,) = machine_times(view(now=START, ended=False, events=(event,)))
    assert (machine.start, machine.bound, machine.cents) == (START, True, 0)


def test_a_run_that_moved_is_billed_by_each_of_its_backends() -> None:
    """Half an hour on the cluster at 16.80 USD: 8.40. Then a claim that only moves it. Then two machines of Lambda,
    each for 30 minutes at 1.29: 1.29. Together 9.69 USD."""
    both = msgspec.structs.replace(
        JOB, alternatives=(Alternative("lambda", {"instance_types": ["gpu_1x_a10"], "ssh_key": "k"}),)
    )
    moves = {member: Claim(Placement("move", ""), "n", START, moved_to="lambda") for member in ["main-0"]}
    healthy = {"type": "gpu_1x_a10", "region": "us-east-1", "first_healthy": f"{START + 3000:.0f}"}
    seen = view(
        attempt(1, START, held=1800.0),
        AttemptView(2, claims=moves, claimed={"main-0": START + 1900}),
        attempt(3, START + 3100, held=1650.0, at="i-1"),
        now=START + 9000,
        events=tuple(
            handle(number, "ending", instance, **healthy, at=f"{START + 4800:.0f}")
            for number, instance in enumerate(["i-1", "i-2"])
        ),
    )
    seen = replace(seen, job=both)
    assert [(time.seconds, time.turn) for time in held_times(seen)] == [(1800.0, 0), (1650.0, 1)]
    run = PricedRun.of(both)
    found = bill(run, held_times(seen), machine_times(seen), {"H100": (2.1, "USD")}, seen.now)
    assert (found.cost, found.currency) == (Decimal("9.690000"), "USD")
    mixed = bill(run, held_times(seen), machine_times(seen), {"H100": (2.1, "EUR")}, seen.now)
    assert mixed.missing == ("one currency for all: these prices are in EUR and USD",)
    # before it starts: 16.80 an hour on the cluster, 2 x 1.29 on Lambda
    assert any_rate(run, {"H100": (2.1, "USD")})[:2] == (Decimal("2.58"), Decimal("16.8"))
