"""Who starts first, and what a run that waits is told of its place."""

from __future__ import annotations

from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.queue import describe_position, queue_positions
from launcher.spec.model import Resources
from tests.integration.local.bench import Bench, bench
from tests.support.jobs import job

__all__ = ["bench"]

ONE_CPU = {"resources": Resources(cpus=1)}


def test_higher_priority_first_and_first_come_within(bench: Bench) -> None:
    priorities = [0, 5, -1, 5, 0]
    jobs = [
        job(f"j{k}", role=ONE_CPU, options={"queue_priority": priority} if priority else {})
        for k, priority in enumerate(priorities)
    ]
    runs = bench.queue(*jobs)
    bench.drain(bench.supervisor("echo $me >> log", cpus=1.0))
    assert bench.lines("log") == [runs[k] for k in (1, 3, 0, 4, 2)]


def test_what_a_higher_one_waits_for_is_set_aside(bench: Bench) -> None:
    """A small run of lower priority does not slip by for ever."""
    holds, big, small = bench.queue(
        job("holds", role={"resources": Resources(cpus=2)}),
        job("big", role={"resources": Resources(cpus=3)}, options={"queue_priority": 1}),
        job("small", role={"resources": Resources(cpus=1)}),
    )
    # all three are there before the first turn, so the highest starts first
    bench.drain(bench.supervisor("echo $me >> log", cpus=3.0))
    assert bench.lines("log")[0] == big
    assert set(bench.lines("log")) == {holds, big, small}


def test_the_place_in_the_queue_is_told(bench: Bench) -> None:
    runs = bench.queue(
        job("a", role={"resources": Resources(cpus=3, gpus=1)}),
        job("b", role={"resources": Resources(cpus=2)}),
        job("c", role={"resources": Resources(cpus=1, gpus=1)}, options={"queue_priority": 1}),
        job("d", role={"resources": Resources(cpus=1)}, options={"queue_priority": -1}),
    )
    supervisor = bench.supervisor("echo $me >> starts; while [ ! -e go ]; do sleep 0.02; done", cpus=4.0, gpus=("0",))
    bench.drive(supervisor, lambda: bool(queue_positions(bench.state)) and bench.lines("starts") == [runs[2]])
    told = {run: describe_position(place) for run, place in queue_positions(bench.state).items()}
    # c, of higher priority, has the only GPU; for a three CPUs are set aside, so that nothing is left for b and d
    assert told == {
        runs[0]: f"1st of 3, waits for 1 gpu, after {runs[2]}",
        runs[1]: f"2nd of 3, waits for 2 cpus, after {runs[2]} and 1 more",
        runs[3]: f"3rd of 3, waits for 1 cpu, after {runs[2]} and 2 more",
    }
    backend = LocalBackend({"state": bench.state.path, "cpus": 4})
    backend._ensure = lambda **how: None  # type: ignore[method-assign]
    seen = backend.look_up(runs[1])
    assert seen is not None
    assert (seen.phase, seen.evidence) == ("queued", f"2nd of 3, waits for 2 cpus, after {runs[2]} and 1 more")
    (bench.path / "go").touch()
    bench.drain(supervisor)
    bench.drive(supervisor, lambda: queue_positions(bench.state) == {})
