"""Slots: never more than there is, never later for a run that waits, nobody starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.local.slots import Capacity, Need, Slots, capacity
from launcher.spec.model import Resources, Role
from tests.support.jobs import job

needs = st.builds(Need, st.integers(0, 4).map(float), st.integers(0, 8), st.integers(0, 2))
ROOM = Capacity(4.0, 8, ("0", "1"))


@given(st.lists(needs, max_size=12), st.lists(st.integers(0, 11), max_size=6))
def test_never_more_than_there_is_and_no_wait_grows(queue: list[Need], ending: list[int]) -> None:
    slots = Slots(ROOM)
    waiting = {str(k): need for k, need in enumerate(queue)}
    order = list(waiting)
    for round_ in range(len(queue) + 1):
        head = next((name for name in order if name in waiting), None)
        for name in slots.choose((name, waiting[name]) for name in order if name in waiting):
            slots.take(name, waiting.pop(name))
        free = slots.free
        assert free.cpus >= 0
        assert free.memory >= 0
        assert free.gpus >= 0
        given_out = [gpu for ids in slots.gpus.values() for gpu in ids]
        assert len(given_out) == len(set(given_out))
        if not slots.holders:
            assert head is None  # an empty machine always starts the first of the queue
            break
        # whoever ends, the first in the queue comes nearer: here the oldest holder does
        held = sorted(slots.holders, key=order.index)
        slots.release(held[ending[round_ % len(ending)] % len(held)] if ending else held[0])


@given(needs, st.lists(needs, min_size=1, max_size=6))
def test_a_later_run_takes_nothing_that_the_first_waits_for(first: Need, later: list[Need]) -> None:
    busy = Need(3.0, 2, 1)
    slots = Slots(ROOM)
    slots.take("busy", busy)
    queue = [("first", first), *((str(k), need) for k, need in enumerate(later))]
    chosen = slots.choose(queue)
    if "first" in chosen:
        return
    for name in chosen:
        slots.take(name, dict(queue)[name])
    slots.release("busy")
    assert slots.choose([("first", first)]) == ["first"]


def test_the_machine_is_asked_only_for_what_the_profile_leaves_open() -> None:
    assert capacity({"cpus": 3, "memory": 10, "gpus": 2}) == Capacity(3.0, 10, ("0", "1"))
    assert capacity({"gpus": ["GPU-a", 7], "memory": 1, "cpus": 1}).gpus == ("GPU-a", "7")
    found = capacity({"gpus": 0})
    assert found.cpus >= 1
    assert found.memory > 1 << 28


def test_all_ranks_count_and_cpus_are_capped() -> None:
    wide = job("wide", role={"replicas": 3, "resources": Resources(cpus=4, memory=2, gpus=1)})
    assert ROOM.need(wide) == Need(4.0, 6, 3)
    assert "3 GPUs" in ROOM.shortage(wide)
    big = job("big", role={"resources": Resources(memory=2**40)})
    assert "1024.0 GiB" in ROOM.shortage(big)
    roles = {"a": Role(("x",), leader=True, resources=Resources(cpus=1)), "b": Role(("x",), replicas=2)}
    assert ROOM.need(job("roles", roles=roles)) == Need(3.0, 0, 0)
